// SPDX-License-Identifier: Apache-2.0
//! Reads the leases that `rdma-ipam` stores on this node, without its locks. That is safe, because each file appears and
//! disappears as a whole.

use crate::output::CommandError;
use ipam::clock::KernelClock;
use ipam::config::Place;
use ipam::pool::{POOLS, PoolName};
use ipam::store::{LOCK_WAIT, Lease, Leases, Node, NodeDisk, Store};
use std::io::ErrorKind;
use std::path::Path;
use std::time::Duration;

/// A lease and the store it is in.
#[derive(Clone, Debug)]
pub struct NodeLease {
    /// The pool; `None` for a network with its own ranges.
    pub pool: Option<PoolName>,
    /// The lease.
    pub lease: Lease,
}

/// All leases below `data_dir`, and an error for each one that cannot be read.
///
/// # Errors
/// A directory cannot be listed, or the kernel does not return the boot ID.
pub fn all(data_dir: &Path) -> Result<(Vec<NodeLease>, Vec<String>), CommandError> {
    let (mut all, mut damaged) = (Vec::new(), Vec::new());
    for place in stores(data_dir)? {
        let pool = place
            .is_pool
            .then(|| PoolName::try_from(place.name.clone()).ok())
            .flatten();
        let leases = leases_of(&place)?;
        damaged.extend(leases.damaged.into_iter().map(|(_, error)| error.msg));
        all.extend(leases.intact.into_iter().map(|one| NodeLease {
            pool: pool.clone(),
            lease: one.lease,
        }));
    }
    Ok((all, damaged))
}

/// The names of this machine's Node that agents have written into the files of pools below `data_dir`.
///
/// # Errors
/// A directory cannot be listed, or the kernel does not return the boot ID.
pub fn node_names(data_dir: &Path) -> Result<Vec<String>, CommandError> {
    let mut names = Vec::new();
    for place in stores(data_dir)?.into_iter().filter(|place| place.is_pool) {
        // A damaged file names no node. The plugin reports it.
        let file = with_store(&place, |store| Ok(store.pool().ok().flatten()))?;
        names.extend(file.map(|file| file.node));
    }
    Ok(names)
}

/// All leases of the store at `place`.
///
/// # Errors
/// As [`with_store`], and the directory cannot be listed.
#[expect(
    clippy::redundant_closure_for_method_calls,
    reason = "the method alone has one lifetime too few"
)]
pub fn leases_of(place: &Place) -> Result<Leases, CommandError> {
    with_store(place, |store| store.leases())
}

/// Runs `work` on the store at `place`.
///
/// # Errors
/// The errors of `work`, or the kernel does not return the boot ID.
pub fn with_store<T>(
    place: &Place,
    work: impl FnOnce(&Store<'_>) -> Result<T, common::cni::Error>,
) -> Result<T, CommandError> {
    let node = Node {
        disk: &NodeDisk,
        clock: &KernelClock,
        lock_wait: LOCK_WAIT,
    };
    Ok(work(&Store::new(place, &node)?)?)
}

/// The stores below `data_dir`: those of networks, and those of pools.
///
/// # Errors
/// A directory cannot be listed.
pub fn stores(data_dir: &Path) -> Result<Vec<Place>, CommandError> {
    let networks = directories(data_dir)?.into_iter().filter(|name| name != POOLS);
    let network = |name: String| Place {
        dir: data_dir.join(&name),
        network: name.clone(),
        name,
        cooldown: Duration::ZERO,
        is_pool: false,
    };
    let pools = directories(&data_dir.join(POOLS))?;
    let pool = |name: String| Some(Place::of_pool(data_dir, &PoolName::try_from(name).ok()?));
    Ok(networks
        .map(network)
        .chain(pools.into_iter().filter_map(pool))
        .collect())
}

fn directories(dir: &Path) -> Result<Vec<String>, CommandError> {
    let entries = match std::fs::read_dir(dir) {
        Ok(entries) => entries,
        Err(e) if matches!(e.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => return Ok(Vec::new()),
        Err(e) => {
            return Err(CommandError(format!(
                "cannot list the leases in {}: {e}; run this as root, or name another directory with --data-dir",
                dir.display()
            )));
        }
    };
    let entries = entries.flatten().filter(|entry| entry.path().is_dir());
    let mut names: Vec<String> = entries
        .filter_map(|entry| entry.file_name().into_string().ok())
        .collect();
    names.sort();
    Ok(names)
}
