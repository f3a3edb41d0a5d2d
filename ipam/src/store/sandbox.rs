// SPDX-License-Identifier: Apache-2.0
//! The pod behind a lease, and what has become of its network namespace since.
//!
//! A namespace is looked at by its path and inode and never opened: an open handle would keep it alive.

use common::cni::Args;
use nix::sys::statfs::{NSFS_MAGIC, statfs};
use serde::{Deserialize, Serialize};
use std::io::ErrorKind;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// Who an attachment was made for, as far as the runtime said.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Sandbox {
    /// `namespace/name` of the pod.
    pub pod: Option<String>,
    /// The pod's UID.
    pub uid: Option<String>,
    /// The network namespace, if it was there when the lease was made.
    pub netns: Option<NetnsFile>,
}

/// A network namespace as a name and the file behind it (nsfs; an inode number is given again once it is free, so it
/// tells little without the name).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NetnsFile {
    /// `CNI_NETNS`.
    pub path: PathBuf,
    /// `st_dev`.
    pub device: u64,
    /// `st_ino`.
    pub inode: u64,
}

/// What has become of a namespace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fate {
    /// The name still stands for it.
    There,
    /// Nothing has its name any more, though the directory that had it is there.
    Gone,
    /// The name stands for another namespace.
    Replaced,
    /// This process cannot tell, which is no evidence of anything: the text says why.
    Unseen(String),
}

impl Sandbox {
    /// The sandbox that a call is about.
    pub fn of(args: &Args, netns: &Path) -> Self {
        let name = || Some((args.get("K8S_POD_NAMESPACE")?, args.get("K8S_POD_NAME")?));
        Self {
            pod: name().map(|(namespace, name)| format!("{namespace}/{name}")),
            uid: args.get("K8S_POD_UID").map(str::to_owned),
            netns: NetnsFile::at(netns),
        }
    }

    /// The namespace part of the pod's name.
    pub fn namespace(&self) -> Option<&str> {
        Some(self.pod.as_ref()?.split_once('/')?.0)
    }
}

impl NetnsFile {
    /// What is at `path` now; none if nothing is.
    pub fn at(path: &Path) -> Option<Self> {
        let meta = std::fs::metadata(path).ok()?;
        Some(Self {
            path: path.to_owned(),
            device: meta.dev(),
            inode: meta.ino(),
        })
    }

    /// What has become of it, seen from this process' mounts and processes.
    pub fn fate(&self) -> Fate {
        let unseen = |what: &str| Fate::Unseen(format!("{}: {what}", self.path.display()));
        let kind = match statfs(&self.path) {
            Ok(kind) => kind.filesystem_type(),
            Err(nix::errno::Errno::ENOENT) => return self.fate_of_missing(),
            Err(e) => return unseen(e.desc()),
        };
        // What was bound there once leaves an empty file, which is also what a mount not passed on looks like.
        if kind != NSFS_MAGIC {
            return unseen("a file that is no namespace; is the directory mounted with HostToContainer?");
        }
        match Self::at(&self.path) {
            Some(now) if now == *self => Fate::There,
            Some(_) => Fate::Replaced,
            None => self.fate_of_missing(),
        }
    }

    fn fate_of_missing(&self) -> Fate {
        let directory = self.path.parent().unwrap_or(Path::new("/"));
        match std::fs::metadata(directory) {
            Ok(_) => Fate::Gone,
            Err(e) if e.kind() == ErrorKind::NotFound => Fate::Unseen(format!(
                "{} is not there, so nothing below it can be seen",
                directory.display()
            )),
            Err(e) => Fate::Unseen(format!("{}: {e}", directory.display())),
        }
    }
}

#[cfg(test)]
mod tests;
