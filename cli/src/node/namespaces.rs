// SPDX-License-Identifier: Apache-2.0
//! Finds the network namespaces of attachments in which no process is.

use crate::leases::NodeLease;
use ipam::store::{Fate, NetnsFile};
use serde::Serialize;
use std::collections::{BTreeMap, HashSet};
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// A network namespace without a process. A pod whose containers have ended may have one, and so may a pod that the
/// container runtime has lost.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct EmptyNamespace {
    /// Its path.
    pub path: PathBuf,
    /// `CNI_CONTAINERID` of its attachments.
    pub container_id: String,
    /// The pod, if the runtime named it to rdma-ipam.
    pub pod: Option<String>,
    /// The addresses of its attachments.
    pub addresses: Vec<String>,
}

/// The device and inode of a namespace's file.
type Id = (u64, u64);

/// The network namespaces of all processes that this process sees.
pub(super) fn of_processes() -> HashSet<Id> {
    let processes = fs::read_dir("/proc").into_iter().flatten().flatten();
    let id = |directory: PathBuf| {
        let file = fs::metadata(directory.join("ns/net")).ok()?;
        Some((file.dev(), file.ino()))
    };
    processes.filter_map(|process| id(process.path())).collect()
}

/// The namespaces of `leases` that exist and are not among `processes`, by path.
pub(super) fn empty(leases: &[NodeLease], processes: &HashSet<Id>) -> Vec<EmptyNamespace> {
    let mut all: BTreeMap<&Path, EmptyNamespace> = BTreeMap::new();
    for lease in leases.iter().map(|one| &one.lease) {
        let is_empty = |netns: &&NetnsFile| {
            !processes.contains(&(netns.device, netns.inode)) && netns.fate() == Fate::There
        };
        let Some(netns) = lease.sandbox.netns.as_ref().filter(is_empty) else {
            continue;
        };
        let namespace = all.entry(&netns.path).or_insert_with(|| EmptyNamespace {
            path: netns.path.clone(),
            container_id: lease.owner.container_id.to_string(),
            pod: lease.sandbox.pod.clone(),
            addresses: Vec::new(),
        });
        namespace
            .addresses
            .extend(lease.addresses().map(|address| address.to_string()));
    }
    all.into_values().collect()
}

#[cfg(test)]
mod tests;
