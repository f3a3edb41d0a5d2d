// SPDX-License-Identifier: Apache-2.0
//! The pod of a lease, and the fate of its network namespace.
//!
//! A namespace is identified by its path and inode and never opened: an open handle would keep it alive.

use common::cni::Args;
pub use common::netns::Fate;
use serde::{Deserialize, Serialize};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// The pod and namespace of an attachment, if the runtime named them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Sandbox {
    /// `namespace/name` of the pod.
    pub pod: Option<String>,
    /// The pod's UID.
    pub uid: Option<String>,
    /// The network namespace, if it existed when the lease was made.
    pub netns: Option<NetnsFile>,
}

/// A network namespace: its path and the file behind it (nsfs). The kernel reuses an inode number once it is
/// free, so the inode means little without the path.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct NetnsFile {
    /// `CNI_NETNS`.
    pub path: PathBuf,
    /// `st_dev`.
    pub device: u64,
    /// `st_ino`.
    pub inode: u64,
    /// `st_ctime` in nanoseconds: when this kernel first looked the namespace up. After a reboot the first
    /// namespace may get the same device and inode, but not the same time. Absent below `/proc`, where the
    /// file comes and goes while the namespace stays, and in leases of earlier versions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub born: Option<i128>,
}

impl Sandbox {
    /// The sandbox of a call.
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
    /// The namespace at `path` now; `None` if the path does not exist.
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

    /// Whether the same kernel still has it, as far as can be determined: its path leads to a namespace with
    /// the same device and inode, and with the same time of birth if both are known.
    pub(crate) fn lives(&self) -> bool {
        let now = Self::at(&self.path).filter(|_| self.fate() == Fate::There);
        now.is_some_and(|now| match (self.born, now.born) {
            (Some(then), Some(now)) => then == now,
            _ => true,
        })
    }

    /// Its fate, as seen by this process' mounts and processes.
    pub fn fate(&self) -> Fate {
        Fate::of(&self.path, (self.device, self.inode))
    }
}

#[cfg(test)]
mod tests;
