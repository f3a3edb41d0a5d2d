// SPDX-License-Identifier: Apache-2.0
//! The gate of a network: ADDs pass it side by side, and GC shuts it while the IPAM plugin collects.
//!
//! Without the gate an ADD could begin between GC's listing and the IPAM plugin's, and lose the address that
//! it has just got. (The specification asks runtimes to run nothing beside GC, but not all of them comply.)
//! The gate is a lock on the directory itself; the kernel releases it when the process ends.

use super::io_error;
use crate::error::Error;
use std::fs::{File, TryLockError};
use std::path::Path;
use std::thread::sleep;
use std::time::{Duration, Instant};

/// The pause between two attempts to take the gate.
const POLL: Duration = Duration::from_millis(5);

/// A passage, or the shut gate, until it is dropped.
#[derive(Debug)]
pub(crate) struct Gate {
    _dir: File,
}

impl Gate {
    /// Passes the gate, beside other ADDs, once no GC shuts it.
    ///
    /// # Errors
    /// [`Error::Locked`] after `wait`, [`Error::Io`].
    pub(super) fn pass(dir: &Path, wait: Duration) -> Result<Self, Error> {
        Self::held(dir, wait, File::try_lock_shared)
    }

    /// Shuts the gate once no ADD is passing it.
    ///
    /// # Errors
    /// As [`Gate::pass`]; then another GC holds the gate.
    pub(super) fn shut(dir: &Path, wait: Duration) -> Result<Self, Error> {
        Self::held(dir, wait, File::try_lock)
    }

    fn held(
        dir: &Path,
        wait: Duration,
        lock: impl Fn(&File) -> Result<(), TryLockError>,
    ) -> Result<Self, Error> {
        let file = File::open(dir).map_err(|e| io_error("open", dir, e))?;
        let deadline = Instant::now() + wait;
        loop {
            match lock(&file) {
                Ok(()) => return Ok(Self { _dir: file }),
                Err(TryLockError::WouldBlock) if Instant::now() < deadline => sleep(POLL),
                Err(TryLockError::WouldBlock) => return Err(Error::locked(dir, &file, wait)),
                Err(TryLockError::Error(e)) => return Err(io_error("lock", dir, e)),
            }
        }
    }
}

#[cfg(test)]
mod tests;
