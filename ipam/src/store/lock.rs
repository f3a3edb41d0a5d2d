// SPDX-License-Identifier: Apache-2.0
//! The lock of a network: one process at a time works on its leases. The kernel releases the lock of a
//! process that dies.

use super::error::failed;
use common::cni::{Code, Error};
use common::lock::{LockError, Share, flock};
use std::fs::File;
use std::path::Path;
use std::time::Duration;

/// A lock that is held until it is dropped.
#[derive(Debug)]
pub(super) struct Lock {
    _file: File,
}

impl Lock {
    /// Takes the lock on the file at `path`, waiting at most `wait`.
    ///
    /// # Errors
    /// [`Code::TRY_AGAIN`] with the holder after `wait`, [`Code::IO`] if the file cannot be locked.
    pub(super) fn take(file: File, path: &Path, wait: Duration) -> Result<Self, Error> {
        match flock(&file, Share::Exclusive, wait) {
            Ok(()) => Ok(Self { _file: file }),
            Err(LockError::Io(e)) => Err(failed("lock", path, &e)),
            Err(LockError::Held { waited, holder }) => Err(Error::new(
                Code::TRY_AGAIN,
                format!(
                    "{} has been locked for {} s by {holder}; try again",
                    path.display(),
                    waited.as_secs()
                ),
            )),
        }
    }
}
