// SPDX-License-Identifier: Apache-2.0
//! The gate of a network: ADDs pass it side by side, and GC shuts it while the IPAM plugin collects.
//!
//! Without the gate an ADD could begin between GC's listing and the IPAM plugin's, and lose the address that
//! it has just got. (The specification asks runtimes to run nothing beside GC, but not all of them comply.)
//! The gate is a lock on the directory itself; the kernel releases it when the process ends.

use super::io_error;
use crate::error::Error;
use common::lock::{LockError, Share, flock};
use std::fs::File;
use std::path::Path;
use std::time::Duration;

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
        Self::lock(dir, Share::Shared, wait)
    }

    /// Shuts the gate once no ADD is passing it.
    ///
    /// # Errors
    /// As [`Gate::pass`]; then another GC holds the gate.
    pub(super) fn shut(dir: &Path, wait: Duration) -> Result<Self, Error> {
        Self::lock(dir, Share::Exclusive, wait)
    }

    fn lock(dir: &Path, share: Share, wait: Duration) -> Result<Self, Error> {
        let file = File::open(dir).map_err(|e| io_error("open", dir, e))?;
        match flock(&file, share, wait) {
            Ok(()) => Ok(Self { _dir: file }),
            Err(LockError::Held { waited, holder }) => Err(Error::locked(dir, waited, holder)),
            Err(LockError::Io(e)) => Err(io_error("lock", dir, e)),
        }
    }
}

#[cfg(test)]
mod tests;
