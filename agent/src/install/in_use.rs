// SPDX-License-Identifier: Apache-2.0
//! Finds the pods of a node that use rdmanet: by the state files of `cni-ipoib`, the leases of `rdma-ipam`, and the alias of
//! every link in a pod. Each alone may be missing: an interface may have no addresses, an address may be on an interface of
//! another plugin, and files can be deleted by hand.

use super::interface::InterfaceInUse;
use super::{Error, on_host};
use common::netlink::{Route, Socket};
use common::netns::{self, Netns};
use ipam::clock::KernelClock;
use ipam::config::Place;
use ipam::pool::POOLS;
use ipam::store::{LOCK_WAIT, Leases, Node, NodeDisk, Store};
use std::collections::BTreeMap;
use std::fs;
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// The prefix of the alias of each link (`cni-ipoib`'s `mark`).
const ALIAS: &str = "rdmanet:";

/// Where a node's plugins write, and its pods' namespaces are.
#[derive(clap::Args, Clone, Debug)]
pub struct Paths {
    /// Where rdma-ipam keeps its leases on the node
    #[arg(long, env = "RDMANET_DATA_DIR", default_value = ipam::config::DATA_DIR)]
    pub data_dir: PathBuf,
    /// Where cni-ipoib keeps its state on the node
    #[arg(long, env = "RDMANET_STATE", default_value = "/run/rdmanet")]
    pub state: PathBuf,
    /// Where the container runtime names the network namespaces of pods
    #[arg(long, env = "RDMANET_NETNS_DIR", default_value = "/run/netns")]
    pub netns: PathBuf,
}

/// Lists each use once, sorted by attachment.
///
/// # Errors
/// [`Error::Unseen`]: a place that cannot be read may contain a use.
pub fn users(host: &Path, paths: &Paths) -> Result<Vec<InterfaceInUse>, Error> {
    let mut found = BTreeMap::new();
    // Leases know the pod's name, so they come first.
    let all = [
        leases(host, &on_host(host, &paths.data_dir)),
        journal(host, &on_host(host, &paths.state)),
        links(host, &on_host(host, &paths.netns)),
    ];
    for uses in all {
        for one in uses? {
            found
                .entry((one.container.clone(), one.ifname.clone()))
                .or_insert(one);
        }
    }
    Ok(found.into_values().collect())
}

fn leases(host: &Path, data_dir: &Path) -> Result<Vec<InterfaceInUse>, Error> {
    let mut found = Vec::new();
    for (dir, is_pool) in stores(host, data_dir)? {
        let name = dir.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let Leases { intact, damaged } =
            read(&dir, is_pool, &name).map_err(|e| Error::Unseen { what: e.msg })?;
        let known = intact.into_iter().map(|stored| InterfaceInUse {
            network: stored.lease.network.clone(),
            container: stored.lease.owner.container_id.to_string(),
            ifname: stored.lease.owner.ifname.to_string(),
            pod: stored.lease.sandbox.pod.clone(),
            evidence: format!("lease in {}", dir.display()),
        });
        found.extend(known);
        found.extend(damaged.into_iter().map(|(owner, error)| InterfaceInUse {
            network: name.clone(),
            container: owner.container_id.to_string(),
            ifname: owner.ifname.to_string(),
            pod: None,
            evidence: error.msg,
        }));
    }
    Ok(found)
}

fn read(dir: &Path, is_pool: bool, name: &str) -> Result<Leases, common::cni::Error> {
    let place = Place {
        name: name.to_owned(),
        network: name.to_owned(),
        dir: dir.to_owned(),
        cooldown: Duration::ZERO,
        is_pool,
    };
    let node = Node {
        disk: &NodeDisk,
        clock: &KernelClock,
        lock_wait: LOCK_WAIT,
    };
    Store::new(&place, &node)?.leases()
}

/// The directory of each network and each pool.
fn stores(host: &Path, data_dir: &Path) -> Result<Vec<(PathBuf, bool)>, Error> {
    let networks = directories(host, data_dir)?;
    let mut all = Vec::new();
    for dir in networks {
        if dir.file_name().is_some_and(|name| name == POOLS) {
            all.extend(directories(host, &dir)?.into_iter().map(|pool| (pool, true)));
        } else {
            all.push((dir, false));
        }
    }
    Ok(all)
}

/// Reads the names of the files `<state>/attachments/<network>/<container id>@<interface>`, not their content.
fn journal(host: &Path, state: &Path) -> Result<Vec<InterfaceInUse>, Error> {
    entries(host, state)?;
    let networks = match fs::read_dir(state.join("attachments")) {
        Err(e) if e.kind() == ErrorKind::NotFound => return Ok(Vec::new()),
        _ => directories(host, &state.join("attachments"))?,
    };
    let mut found = Vec::new();
    for network in networks {
        for file in entries(host, &network)? {
            let name = file
                .file_name()
                .unwrap_or_default()
                .to_string_lossy()
                .into_owned();
            if let Some((container, ifname)) = name.split_once('@') {
                found.push(InterfaceInUse {
                    network: network
                        .file_name()
                        .unwrap_or_default()
                        .to_string_lossy()
                        .into_owned(),
                    container: container.to_owned(),
                    ifname: ifname.to_owned(),
                    pod: None,
                    evidence: file.display().to_string(),
                });
            }
        }
    }
    Ok(found)
}

/// Links in pods that have our alias.
fn links(host: &Path, netns_dir: &Path) -> Result<Vec<InterfaceInUse>, Error> {
    let mut found = Vec::new();
    for path in entries(host, netns_dir)? {
        let unseen = |why: String| Error::Unseen {
            what: format!("the network namespace {}: {why}", path.display()),
        };
        let netns = match Netns::open(&path) {
            Ok(netns) => netns,
            // The namespace was deleted just now, or the file is no namespace.
            Err(netns::Error::Missing { .. } | netns::Error::NotANamespace { .. }) => continue,
            Err(e) => return Err(unseen(e.to_string())),
        };
        let links = Socket::<Route>::open_in(&netns).and_then(|mut socket| socket.links());
        let links =
            links.map_err(|e| unseen(format!("{e}; to open a network namespace takes CAP_SYS_ADMIN")))?;
        found.extend(links.into_iter().filter_map(|link| {
            let alias = link.alias?;
            let (network, attachment) = alias.strip_prefix(ALIAS)?.split_once('/')?;
            let (container, ifname) = attachment.split_once('@')?;
            Some(InterfaceInUse {
                network: network.to_owned(),
                container: container.to_owned(),
                ifname: ifname.to_owned(),
                pod: None,
                evidence: format!("{} in {}", link.name, path.display()),
            })
        }));
    }
    Ok(found)
}

fn directories(host: &Path, dir: &Path) -> Result<Vec<PathBuf>, Error> {
    let mut all = entries(host, dir)?;
    all.retain(|path| path.is_dir());
    Ok(all)
}

/// The entries of `dir`. If all of the node's file system is mounted, a missing directory counts as empty. Otherwise a mount of
/// this directory may have been forgotten.
fn entries(host: &Path, dir: &Path) -> Result<Vec<PathBuf>, Error> {
    let unseen = |e: io::Error| Error::Unseen {
        what: format!("{}: {e}", dir.display()),
    };
    let list = match fs::read_dir(dir) {
        Ok(list) => list,
        Err(e) if e.kind() == ErrorKind::NotFound && is_whole(host) => return Ok(Vec::new()),
        Err(e) if e.kind() == ErrorKind::NotFound => {
            return Err(Error::Unseen {
                what: format!("{} is not there; is it mounted?", dir.display()),
            });
        }
        Err(e) => return Err(unseen(e)),
    };
    let mut all = list
        .map(|entry| entry.map(|entry| entry.path()))
        .collect::<Result<Vec<_>, _>>()
        .map_err(unseen)?;
    all.sort();
    Ok(all)
}

/// Every Linux distribution has one of the two (os-release(5)).
fn is_whole(host: &Path) -> bool {
    ["etc/os-release", "usr/lib/os-release"]
        .iter()
        .any(|file| host.join(file).symlink_metadata().is_ok())
}
