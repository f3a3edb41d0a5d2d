// SPDX-License-Identifier: Apache-2.0
//! The fate of a namespace that a program found at a path before.
//!
//! Invariant: the namespace is never opened, because an open handle would keep it alive.

use nix::errno::Errno;
use nix::sys::statfs::{NSFS_MAGIC, statfs};
use std::fs;
use std::io::ErrorKind;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// The fate of a namespace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fate {
    /// The path still leads to it.
    There,
    /// The path does not exist any more, though its directory does.
    Gone,
    /// The path leads to another namespace.
    Replaced,
    /// This process cannot see it, which proves nothing. The text is the reason.
    Unseen(String),
}

impl Fate {
    /// The fate of the namespace with the device and inode `id`, which was at `path`, as seen by this process' mounts
    /// and processes.
    ///
    /// The ids below `/proc` are those of this process' PID namespace, where another process may have the id. So
    /// such a path can prove that the namespace exists, and nothing else.
    pub fn of(path: &Path, id: (u64, u64)) -> Self {
        match Self::of_path(path, id) {
            Self::Gone | Self::Replaced if path.starts_with("/proc") => Self::Unseen(format!(
                "{}: another PID namespace may have another process with this id",
                path.display()
            )),
            fate => fate,
        }
    }

    /// Whether the namespace is proven gone: nothing is at the path any more, or another namespace is.
    pub fn is_proven_gone(&self) -> bool {
        matches!(self, Self::Gone | Self::Replaced)
    }

    fn of_path(path: &Path, id: (u64, u64)) -> Self {
        let unseen = |what: &str| Self::Unseen(format!("{}: {what}", path.display()));
        let kind = match statfs(path) {
            Ok(kind) => kind.filesystem_type(),
            Err(Errno::ENOENT) => return Self::of_missing(path),
            Err(e) => return unseen(e.desc()),
        };
        // An unmounted namespace leaves an empty file. So does a mount that was not propagated to this
        // process.
        if kind != NSFS_MAGIC {
            return unseen("a file that is no namespace; is the directory mounted with HostToContainer?");
        }
        match fs::metadata(path) {
            Ok(now) if (now.dev(), now.ino()) == id => Self::There,
            Ok(_) => Self::Replaced,
            Err(_) => Self::of_missing(path),
        }
    }

    fn of_missing(path: &Path) -> Self {
        let directory = path.parent().unwrap_or(Path::new("/"));
        match fs::metadata(directory) {
            Ok(_) => Self::Gone,
            Err(e) if e.kind() == ErrorKind::NotFound => Self::Unseen(format!(
                "{} is not there, so nothing below it can be seen",
                directory.display()
            )),
            Err(e) => Self::Unseen(format!("{}: {e}", directory.display())),
        }
    }
}
