// SPDX-License-Identifier: Apache-2.0
//! Only one agent at a time works on a node. A second one, as during an update, waits until the first ends.
//!
//! Invariant: only root can open the file. flock(2) needs no more, so another user could keep every agent from starting.

use common::lock::{LockError, Share, current, flock};
use std::fs::{File, OpenOptions, Permissions};
use std::io;
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::Path;
use std::time::Duration;

const MODE: u32 = 0o600;

/// The lock of the node, held until this value is dropped.
#[derive(Debug)]
pub(crate) struct NodeLock(#[expect(dead_code, reason = "held for its flock(2)")] File);

impl NodeLock {
    /// Waits until no other agent holds the lock.
    ///
    /// # Errors
    /// Errors of the file system.
    pub(crate) async fn take(data_dir: &Path) -> io::Result<Self> {
        std::fs::create_dir_all(data_dir)?;
        let path = data_dir.join(".agent.lock");
        let mut file = open(&path)?;
        let mut is_logged = false;
        loop {
            match flock(&file, Share::Exclusive, Duration::ZERO) {
                Ok(()) if current(&file, &path)?.is_some() => return Ok(Self(file)),
                // An administrator has removed the file, and another agent may hold the lock of a new one.
                Ok(()) => {
                    file = open(&path)?;
                    continue;
                }
                Err(LockError::Held { .. }) => {}
                Err(LockError::Io(e)) => return Err(e),
            }
            if !is_logged {
                tracing::info!(file = %path.display(), "another agent runs on this node; waiting until it ends");
                is_logged = true;
            }
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
    }
}

fn open(path: &Path) -> io::Result<File> {
    let file = OpenOptions::new()
        .create(true)
        .append(true)
        .mode(MODE)
        .open(path)?;
    // An earlier version let all users open it.
    file.set_permissions(Permissions::from_mode(MODE))?;
    Ok(file)
}

#[cfg(test)]
mod tests;
