// SPDX-License-Identifier: Apache-2.0
//! Ends a run in good order: on Ctrl-C, on TERM, and when a plugin hangs.
//!
//! The handler only notes the signal. Waits are interrupted by it (no `SA_RESTART`), see the note, and return an error, so
//! that destructors remove what the run made.

use std::sync::atomic::{AtomicI32, Ordering};

use nix::sys::signal::{SaFlags, SigAction, SigHandler, SigSet, Signal, sigaction};

use crate::error::{IoContext, Result};

static NOTED: AtomicI32 = AtomicI32::new(0);

/// A signal that asks the run, or the plugin that it waits for, to end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Noted {
    Nothing,
    TimeLimit,
    Interrupt,
}

extern "C" fn note(signal: libc::c_int) {
    // An interrupt must not be forgotten because an alarm came after it.
    if signal != libc::SIGALRM || NOTED.load(Ordering::Relaxed) == 0 {
        NOTED.store(signal, Ordering::Relaxed);
    }
}

/// Installs the handler. Programs that are started do not inherit it: exec resets handlers.
#[expect(unsafe_code, reason = "sigaction(2) has no safe form")]
pub(crate) fn install() -> Result<()> {
    let action = SigAction::new(SigHandler::Handler(note), SaFlags::empty(), SigSet::empty());
    for signal in [Signal::SIGINT, Signal::SIGTERM, Signal::SIGALRM] {
        // SAFETY: the handler touches one atomic and nothing else, which is async-signal-safe.
        unsafe { sigaction(signal, &action) }.context(|| format!("cannot handle {signal}"))?;
    }
    Ok(())
}

/// The signal since the start of the run. A time limit is reported once.
pub(crate) fn noted() -> Noted {
    match NOTED.load(Ordering::Relaxed) {
        0 => Noted::Nothing,
        libc::SIGALRM => {
            NOTED.store(0, Ordering::Relaxed);
            Noted::TimeLimit
        }
        _ => Noted::Interrupt,
    }
}
