// SPDX-License-Identifier: Apache-2.0
//! A lock for calls that choose a link to move, or restore one: the state that a call has read must not
//! change before the call has written its journal entry.

use crate::error::Error;
use crate::folders;
use std::fs::{File, TryLockError};
use std::io;
use std::path::Path;
use std::thread::sleep;
use std::time::{Duration, Instant};

/// A call holds the lock for milliseconds, and a runtime allows two minutes for a whole sandbox.
const TIMEOUT: Duration = Duration::from_secs(20);

/// The lock of one call. It ends with the value, or with the process.
#[derive(Debug)]
pub(crate) struct NodeLock {
    _file: File,
}

impl NodeLock {
    /// Waits for the lock. `state` is the state directory.
    ///
    /// # Errors
    /// [`Error::Locked`] after twenty seconds; [`Error::Io`].
    pub(crate) fn take(state: &Path) -> Result<Self, Error> {
        Self::take_within(state, TIMEOUT)
    }

    fn take_within(state: &Path, wait: Duration) -> Result<Self, Error> {
        let failed = |source: io::Error| Error::Io {
            what: "lock",
            path: state.to_owned(),
            remedy: "set RDMANET_STATE to a directory that root can write",
            source,
        };
        // Locks the folder itself, so that no lock file is left.
        let folder = folders::attachments(state).map_err(failed)?;
        let file = File::open(&folder).map_err(failed)?;
        let deadline = Instant::now() + wait;
        loop {
            match file.try_lock() {
                Ok(()) => return Ok(Self { _file: file }),
                Err(TryLockError::WouldBlock) if Instant::now() < deadline => sleep(Duration::from_millis(5)),
                Err(TryLockError::WouldBlock) => return Err(Error::locked(&folder, &file, wait)),
                Err(TryLockError::Error(e)) => return Err(failed(e)),
            }
        }
    }
}

#[cfg(test)]
mod tests;
