// SPDX-License-Identifier: Apache-2.0
//! Ends a run with a cleanup: on Ctrl-C, on TERM, and if a plugin exceeds the time limit.
//!
//! The handler only records the signal. The signal interrupts waits (no `SA_RESTART`); they check the record and return
//! an error, so that destructors remove the objects of the run.

use std::sync::atomic::{AtomicI32, Ordering};

use nix::sys::signal::{SaFlags, SigAction, SigHandler, SigSet, Signal, sigaction};

use crate::error::{IoContext, Result};

static NOTED: AtomicI32 = AtomicI32::new(0);

/// The recorded signal: it ends the run, or the plugin for which the run waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Noted {
    Nothing,
    TimeLimit,
    Interrupt,
}

extern "C" fn note(signal: libc::c_int) {
    // An alarm must not replace an earlier interrupt.
    if signal != libc::SIGALRM || NOTED.load(Ordering::Relaxed) == 0 {
        NOTED.store(signal, Ordering::Relaxed);
    }
}

/// Installs the handler. Child programs do not inherit it: exec resets handlers.
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
