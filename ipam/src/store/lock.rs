// SPDX-License-Identifier: Apache-2.0
//! One process at a time works on the leases of a network. The kernel takes the lock from a process that dies.

use super::failure::failed;
use common::cni::{Code, Error};
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
    /// Takes the lock on the file at `path`, waiting at most `wait` for the process that has it.
    ///
    /// # Errors
    /// [`Code::TRY_AGAIN`] with the holder when the time is up, [`Code::IO`] when the file cannot be locked.
    pub(super) fn take(file: File, path: &Path, wait: Duration) -> Result<Self, Error> {
        match file.try_lock() {
            Ok(()) => return Ok(Self { _file: file }),
            Err(TryLockError::WouldBlock) => {}
            Err(TryLockError::Error(e)) => return Err(failed("lock", path, &e)),
        }
        // flock(2) knows no time limit, so a thread waits in it; if it is still there at the end, it goes with the process.
        let inode = file.metadata().map(|meta| meta.ino()).unwrap_or_default();
        let (sender, receiver) = mpsc::channel();
        let waiter = std::thread::Builder::new()
            .name("lock".to_owned())
            .spawn(move || {
                // Nobody listens any more once the time is up, and then the lock goes with the file.
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
                    holder(inode)
                ),
            )),
        }
    }
}

/// The process that holds the lock on the file with this inode (proc(5), `/proc/locks`).
fn holder(inode: u64) -> String {
    let locks = std::fs::read_to_string("/proc/locks").unwrap_or_default();
    let Some(pid) = locks.lines().find_map(|line| holds(line, inode)) else {
        return "another process".to_owned();
    };
    let command = std::fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
    format!("process {pid} ({})", command.trim())
}

/// The pid in a line such as `1: FLOCK  ADVISORY  WRITE 4711 fe:00:1234 0 EOF`; waiting processes have `->` before FLOCK.
fn holds(line: &str, inode: u64) -> Option<&str> {
    let words: Vec<&str> = line.split_ascii_whitespace().collect();
    let [_, "FLOCK", _, _, pid, file, ..] = words.as_slice() else {
        return None;
    };
    (file.rsplit(':').next()?.parse() == Ok(inode)).then_some(pid)
}

/// What `file` is, if it is still what `path` names: an administrator may have removed the directory meanwhile.
pub(super) fn current(file: &File, path: &Path) -> io::Result<Option<Metadata>> {
    let held = file.metadata()?;
    match std::fs::metadata(path) {
        Ok(named) => Ok((named.ino() == held.ino() && named.dev() == held.dev()).then_some(held)),
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(e) => Err(e),
    }
}
