// SPDX-License-Identifier: Apache-2.0
//! The lock of the node, for calls that choose a link or an RDMA device, and for calls that restore one: the
//! state that a call has read must not change before the call has written its journal entry. And for calls that
//! move an RDMA device or bind its driver again: the device must get the number of its file back.
//!
//! A child on a named link needs only that no other call claims the link meanwhile. Such calls share the lock.

use crate::directories;
use crate::error::Error;
use common::lock::{LockError, Share, flock};
use std::fs::File;
use std::io;
use std::path::Path;
use std::time::Duration;

/// A call holds the lock for milliseconds, or for as long as a driver starts, since it releases the lock before it
/// calls any plugin. But hundreds may wait when a node starts. kubelet allows four minutes to start a sandbox, and two
/// to stop it.
const TIMEOUT: Duration = Duration::from_secs(20);

/// The lock of one call. It ends with the value, or with the process.
#[derive(Debug)]
pub(crate) struct NodeLock {
    _file: File,
    share: Share,
}

impl NodeLock {
    /// Waits for the lock. `state` is the state directory.
    ///
    /// # Errors
    /// [`Error::Locked`] after twenty seconds; [`Error::Io`].
    pub(crate) fn take(state: &Path) -> Result<Self, Error> {
        Self::take_within(state, Share::Exclusive, TIMEOUT)
    }

    /// As [`NodeLock::take`], for a call that continues without the lock. At worst two calls choose the same link,
    /// and the load is uneven; or two RDMA devices exchange the numbers of their files; or an ADD moves a link on
    /// which another ADD creates a child at this moment.
    pub(crate) fn attempt(state: &Path) -> Option<Self> {
        Self::attempt_within(state, Share::Exclusive, TIMEOUT)
    }

    /// As [`NodeLock::attempt`], beside other calls that share the lock.
    pub(crate) fn attempt_shared(state: &Path) -> Option<Self> {
        Self::attempt_within(state, Share::Shared, TIMEOUT)
    }

    /// Whether no other call holds the lock.
    pub(crate) fn is_exclusive(&self) -> bool {
        self.share == Share::Exclusive
    }

    fn attempt_within(state: &Path, share: Share, wait: Duration) -> Option<Self> {
        let lock = Self::take_within(state, share, wait);
        lock.inspect_err(|error| {
            tracing::warn!(%error, "cannot lock the node; continuing without the lock");
        })
        .ok()
    }

    fn take_within(state: &Path, share: Share, wait: Duration) -> Result<Self, Error> {
        let failed = |source: io::Error| Error::Io {
            what: "lock",
            path: state.to_owned(),
            remedy: "set RDMANET_STATE to a directory that root can write",
            source,
        };
        // Locks the directory itself, so that no lock file is left.
        let directory = directories::attachments(state).map_err(failed)?;
        let file = File::open(&directory).map_err(failed)?;
        match flock(&file, share, wait) {
            Ok(()) => Ok(Self { _file: file, share }),
            Err(LockError::Held { waited, holder }) => Err(Error::locked(&directory, waited, holder)),
            Err(LockError::Io(source)) => Err(failed(source)),
        }
    }
}

#[cfg(test)]
mod tests;
