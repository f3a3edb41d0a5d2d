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
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct NetnsFile {
    /// `CNI_NETNS`.
    pub path: PathBuf,
    /// `st_dev`.
    pub device: u64,
    /// `st_ino`.
    pub inode: u64,
    /// `st_ctime` in nanoseconds: when this kernel first looked the namespace up. A reboot gives device and inode
    /// again to the namespace that is made first, but not this. Absent below `/proc`, where the file comes and goes
    /// while the namespace stays, and in leases of earlier builds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub born: Option<i128>,
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
        let born = i128::from(meta.ctime()) * 1_000_000_000 + i128::from(meta.ctime_nsec());
        Some(Self {
            path: path.to_owned(),
            device: meta.dev(),
            inode: meta.ino(),
            born: (!path.starts_with("/proc")).then_some(born),
        })
    }

    /// Whether the same kernel still has it, as far as that can be told: its name stands for a namespace with the same
    /// device and inode, and with the same time of birth where both are known.
    pub(crate) fn lives(&self) -> bool {
        let now = Self::at(&self.path).filter(|_| self.fate() == Fate::There);
        now.is_some_and(|now| match (self.born, now.born) {
            (Some(then), Some(now)) => then == now,
            _ => true,
        })
    }

    fn is_file(&self, other: &Self) -> bool {
        (&self.path, self.device, self.inode) == (&other.path, other.device, other.inode)
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
            Some(now) if now.is_file(self) => Fate::There,
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
