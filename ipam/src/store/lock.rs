// SPDX-License-Identifier: Apache-2.0
//! The lock of a network: one process at a time works on its leases. The kernel releases the lock of a
//! process that dies.

use super::error::failed;
use common::cni::{Code, Error};
use common::lock::holder;
use std::fs::{File, Metadata, TryLockError};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::mpsc;
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
        match file.try_lock() {
            Ok(()) => return Ok(Self { _file: file }),
            Err(TryLockError::WouldBlock) => {}
            Err(TryLockError::Error(e)) => return Err(failed("lock", path, &e)),
        }
        // flock(2) has no time limit, so a thread waits in it. If it still waits at the end, it ends with the
        // process.
        let probe = file.try_clone().map_err(|e| failed("lock", path, &e))?;
        let (sender, receiver) = mpsc::channel();
        let waiter = std::thread::Builder::new()
            .name("lock".to_owned())
            .spawn(move || {
                // After the time limit there is no receiver, and the lock is released with the file.
                let _ = sender.send(file.lock().map(|()| file));
            });
        waiter.map_err(|e| failed("wait for", path, &e))?;
        match receiver.recv_timeout(wait) {
            Ok(Ok(file)) => Ok(Self { _file: file }),
            Ok(Err(e)) => Err(failed("lock", path, &e)),
            Err(_) => Err(Error::new(
                Code::TRY_AGAIN,
                format!(
                    "{} has been locked for {} s by {}; try again",
                    path.display(),
                    wait.as_secs(),
                    holder(&probe)
                ),
            )),
        }
    }
}

/// The metadata of `file` if `path` still names it: an administrator may have removed the directory
/// meanwhile.
pub(super) fn current(file: &File, path: &Path) -> io::Result<Option<Metadata>> {
    let held = file.metadata()?;
    match std::fs::metadata(path) {
        Ok(named) => Ok((named.ino() == held.ino() && named.dev() == held.dev()).then_some(held)),
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(e) => Err(e),
    }
}
