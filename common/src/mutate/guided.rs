// SPDX-License-Identifier: Apache-2.0
//! Cases that libFuzzer chooses: it keeps inputs that reach new code, and changes those (feature `guided`, `tests/guided`).
//!
//! Invariant: an input gives the same case each time. The choices of a case come from the input, and after its end from a fixed
//! seed.

#![expect(unsafe_code, reason = "libFuzzer is written in C++")]

use super::Random;
use libfuzzer_sys as _;
use std::cell::RefCell;
use std::ffi::{CString, c_char, c_int};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::slice;

/// The arguments of libFuzzer, with spaces between.
const ARGUMENTS: &str = "RDMANET_GUIDED";

unsafe extern "C" {
    /// Source: `FuzzerDriver.cpp` of LLVM's compiler-rt. It ends the process.
    fn LLVMFuzzerRunDriver(
        count: *mut c_int,
        arguments: *mut *mut *mut c_char,
        case: extern "C" fn(*const u8, usize) -> c_int,
    ) -> c_int;
}

/// A case of the test that runs.
type Case<'c> = Box<dyn FnMut(&[u8]) + 'c>;

thread_local! {
    static CASE: RefCell<Option<Case<'static>>> = const { RefCell::new(None) };
}

/// The crate `libfuzzer-sys` wants this symbol of its users. Nothing calls it, because [`run`] passes its own function.
#[unsafe(no_mangle)]
extern "Rust" fn rust_fuzzer_test_input(_: &[u8]) -> i32 {
    0
}

extern "C" fn one(data: *const u8, length: usize) -> c_int {
    // SAFETY: libFuzzer keeps `length` bytes at `data` valid during the call.
    let input = if length == 0 {
        &[]
    } else {
        unsafe { slice::from_raw_parts(data, length) }
    };
    let ran = catch_unwind(AssertUnwindSafe(|| {
        CASE.with_borrow_mut(|case| {
            if let Some(case) = case {
                case(input);
            }
        });
    }));
    // libFuzzer writes the input to a file when the process aborts.
    if ran.is_err() {
        std::process::abort();
    }
    0
}

/// Runs `case` under libFuzzer if [`ARGUMENTS`] is set. The process ends then.
pub(super) fn run(name: &str, case: &mut dyn FnMut(&str, &mut Random)) {
    let Some(arguments) = std::env::var_os(ARGUMENTS) else {
        return;
    };
    let words = arguments.to_string_lossy().into_owned();
    let words = std::iter::once("guided").chain(words.split_whitespace());
    let words: Vec<CString> = words.filter_map(|word| CString::new(word).ok()).collect();
    let mut pointers: Vec<*mut c_char> = words.iter().map(|word| word.as_ptr().cast_mut()).collect();
    pointers.push(std::ptr::null_mut());
    let (mut count, mut arguments) = (
        c_int::try_from(words.len()).unwrap_or_default(),
        pointers.as_mut_ptr(),
    );
    let name = format!("{name}: an input of libFuzzer");
    let body: Case<'_> = Box::new(move |input| case(&name, &mut Random::of(input)));
    // SAFETY: `case` outlives every call, because the driver ends the process and does not return.
    unsafe {
        CASE.set(Some(std::mem::transmute::<Case<'_>, Case<'static>>(body)));
        LLVMFuzzerRunDriver(&raw mut count, &raw mut arguments, one);
    }
}
