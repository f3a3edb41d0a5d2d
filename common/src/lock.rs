// SPDX-License-Identifier: Apache-2.0
//! flock(2) with a time limit, and the process that holds such a lock.
//!
//! Invariant: a lock belongs to the open file that was locked: it ends when the last copy of its descriptor
//! is closed, or with the process. The query for the holder never blocks and never fails. If the holder is
//! unknown, it is "another process".

use nix::sys::stat::{major, minor};
use std::fs::{self, File, Metadata, TryLockError};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

/// How a lock is shared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Share {
    /// One holder.
    Exclusive,
    /// Any number of holders, and no exclusive one beside them.
    Shared,
}

impl Share {
    fn attempt(self, file: &File) -> Result<(), TryLockError> {
        match self {
            Self::Exclusive => file.try_lock(),
            Self::Shared => file.try_lock_shared(),
        }
    }

    fn wait(self, file: &File) -> io::Result<()> {
        match self {
            Self::Exclusive => file.lock(),
            Self::Shared => file.lock_shared(),
        }
    }
}

/// The lock was not taken.
#[derive(Debug, thiserror::Error)]
pub enum LockError {
    /// Another process held it during the whole wait.
    #[error("locked for {waited:?} by {holder}")]
    Held {
        /// How long the call waited.
        waited: Duration,
        /// The process, as [`holder`] describes it.
        holder: String,
    },
    /// The file cannot be locked.
    #[error(transparent)]
    Io(#[from] io::Error),
}

/// Locks `file`, and waits at most `wait` for other holders; with [`Duration::ZERO`] it does not wait.
///
/// # Errors
/// [`LockError`]. The caller then closes `file`, because a late lock ends with it.
pub fn flock(file: &File, share: Share, wait: Duration) -> Result<(), LockError> {
    match share.attempt(file) {
        Ok(()) => return Ok(()),
        Err(TryLockError::WouldBlock) if wait.is_zero() => return Err(held_error(file, wait)),
        Err(TryLockError::WouldBlock) => {}
        Err(TryLockError::Error(e)) => return Err(e.into()),
    }
    // flock(2) has no time limit, so a thread waits in it, in the kernel's queue: no holder's end is noticed
    // late. After the time limit the thread closes its copy of the file as soon as it has the lock.
    let copy = file.try_clone()?;
    let (sender, receiver) = mpsc::channel();
    thread::Builder::new().name("flock".to_owned()).spawn(move || {
        let locked = share.wait(&copy);
        drop(copy);
        // After the time limit there is no receiver.
        let _ = sender.send(locked);
    })?;
    match receiver.recv_timeout(wait) {
        Ok(locked) => Ok(locked?),
        Err(_) => Err(held_error(file, wait)),
    }
}

fn held_error(file: &File, waited: Duration) -> LockError {
    LockError::Held {
        waited,
        holder: holder(file),
    }
}

/// The metadata of `file` if `path` still names it. The last holder of a lock may have removed the file, or
/// an administrator its directory.
///
/// # Errors
/// The file system refuses.
pub fn current(file: &File, path: &Path) -> io::Result<Option<Metadata>> {
    let locked = file.metadata()?;
    match fs::metadata(path) {
        Ok(named) => Ok((named.ino() == locked.ino() && named.dev() == locked.dev()).then_some(locked)),
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(e) => Err(e),
    }
}

/// How often [`holder`] reads the list of locks.
const READS: usize = 3;

/// Describes the process that holds a lock on `file`, such as `process 9495 (flock)`. For messages only: the
/// lock may have changed hands since.
///
/// The kernel gives the list in parts, and a lock that ends between two parts can hide another one. So a list
/// without the holder is read again.
///
/// Inode numbers repeat among file systems, so the device is compared too. But btrfs and overlayfs report
/// another device for a file than the list has, so a lock on the inode alone counts if no better one is found.
///
/// Source: `proc_locks(5)`.
pub fn holder(file: &File) -> String {
    let Some(pid) = file.metadata().ok().and_then(|meta| holder_of(&meta)) else {
        return "another process".to_owned();
    };
    let command = fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
    format!("process {pid} ({})", command.trim())
}

fn holder_of(meta: &Metadata) -> Option<String> {
    let exact = place(meta);
    let inode = format!(":{}", meta.ino());
    let locks = || fs::read_to_string("/proc/locks").unwrap_or_default();
    (0..READS)
        .find_map(|_| owner(&locks(), |it| it == exact))
        .or_else(|| owner(&locks(), |it| it.ends_with(&inode)))
}

/// A file as `/proc/locks` names it: device and inode.
fn place(meta: &Metadata) -> String {
    let (major, minor) = (major(meta.dev()), minor(meta.dev()));
    format!("{major:02x}:{minor:02x}:{}", meta.ino())
}

/// Waits until another call waits for a lock on the file or directory at `path`. For tests (feature `testing`).
///
/// # Panics
/// If no call waits for one within a minute, or if there is no such file.
#[cfg(any(test, feature = "testing"))]
pub fn wait_until_awaited(path: &Path) {
    let Ok(meta) = fs::metadata(path) else {
        panic!("{} does not exist", path.display());
    };
    let inode = format!(":{}", meta.ino());
    let is_waiter =
        |line: &str| line.contains("-> FLOCK") && line.split(' ').any(|word| word.ends_with(&inode));
    let started = std::time::Instant::now();
    while !fs::read_to_string("/proc/locks").is_ok_and(|locks| locks.lines().any(is_waiter)) {
        assert!(
            started.elapsed() < Duration::from_secs(60),
            "no call waits for the lock of {}",
            path.display()
        );
        thread::sleep(Duration::from_millis(2));
    }
}

/// Returns the pid of the first line such as `1: FLOCK  ADVISORY  WRITE 4711 fe:00:1234 0 EOF` whose device and
/// inode match. Waiting processes have `->` before FLOCK.
fn owner(locks: &str, is_place: impl Fn(&str) -> bool) -> Option<String> {
    locks.lines().find_map(|line| {
        let words: Vec<&str> = line.split_ascii_whitespace().collect();
        match words.as_slice() {
            [_, "FLOCK", _, _, pid, place, ..] if is_place(place) => Some((*pid).to_owned()),
            _ => None,
        }
    })
}

#[cfg(test)]
mod tests;
