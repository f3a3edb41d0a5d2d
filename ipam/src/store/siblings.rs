// SPDX-License-Identifier: Apache-2.0
//! The leases of the other networks of a data directory, for networks whose addresses are unique among several
//! ([`Space`]).
//!
//! Invariant: a process that makes such a lease holds `<dataDir>/.lock` from its first look at the other networks
//! until the lease is made. So of two such processes, the second one sees the address of the first. The lock is
//! taken after that of the network, and never the other way round. The end of a lease needs only the lock of its
//! network.
//!
//! Invariant: a process that makes such a lease fails if a lease of another boot id is alive in another network
//! (`boots.rs`). It sees the addresses of its own boot id only.

use super::error::{failed, is_nowhere};
use super::lease::Lease;
use super::lock::Lock;
use super::{Disk, Locked};
use crate::config::Space;
use crate::range::{Family, Range};
use common::cni::Error;
use ipnetwork::IpNetwork;
use std::io::ErrorKind;
use std::net::IpAddr;
use std::path::{Path, PathBuf};

/// The other networks.
pub(super) struct Siblings {
    space: Space,
    subnets: Vec<(IpAddr, u8)>,
    /// The directory `addresses` of each network that has leases of this boot.
    directories: Vec<PathBuf>,
    _lock: Lock,
}

/// An address of another network.
pub(super) struct Holder {
    /// Its file.
    pub(super) path: PathBuf,
    /// Its lease; `None` if the file cannot be read.
    pub(super) lease: Option<Lease>,
}

impl Locked<'_> {
    /// Makes addresses of other networks count as taken, as `space` requires for the ranges of `sets`, and keeps
    /// these networks from new leases until this value is dropped.
    ///
    /// # Errors
    /// [`common::cni::Code::TRY_AGAIN`] if another process holds the lock of the data directory too long,
    /// [`common::cni::Code::STORE_CORRUPT`] if leases of another boot id are alive in another network, and
    /// [`common::cni::Code::IO`].
    pub fn among(self, space: Space, sets: &[Vec<Range>]) -> Result<Self, Error> {
        let Some(data_dir) = self.store.network.parent().filter(|_| space != Space::Network) else {
            return Ok(self);
        };
        let lock = self.store.lock(&data_dir.join(".lock"))?;
        let siblings = Siblings {
            space,
            subnets: sets.iter().flatten().map(|range| subnet(range.subnet)).collect(),
            directories: self.sibling_directories(data_dir)?,
            _lock: lock,
        };
        Ok(Self {
            siblings: Some(siblings),
            ..self
        })
    }

    /// The directory `addresses` of each other network that has leases of this boot.
    fn sibling_directories(&self, data_dir: &Path) -> Result<Vec<PathBuf>, Error> {
        let disk = self.store.node.disk;
        let names = disk
            .list(data_dir, usize::MAX)
            .map_err(|e| failed("list", data_dir, &e))?;
        let boot = format!("boot-{}", self.store.boot_id);
        let networks = names.into_iter().map(|name| data_dir.join(name));
        let mut directories = Vec::new();
        for network in networks.filter(|network| *network != self.store.network) {
            self.store.require_other_boots_of_ended(&network, None)?;
            let path = network.join(&boot).join("addresses");
            match disk.identity(&path) {
                Ok(identity) if identity.directory => directories.push(path),
                Ok(_) => {}
                Err(e) if is_nowhere(&e) => {}
                Err(e) => return Err(failed("look at", &path, &e)),
            }
        }
        Ok(directories)
    }

    /// The other network that has `ip`; `None` if this one may have it.
    pub(super) fn sibling(&self, ip: IpAddr) -> Option<Holder> {
        self.siblings.as_ref()?.holder(self.store.node.disk, ip)
    }

    /// All addresses of `family` that other networks have. Leaves out those for which `known` is true.
    pub(super) fn siblings_addresses(
        &self,
        family: Family,
        known: impl Fn(IpAddr) -> bool,
    ) -> Result<Vec<IpAddr>, Error> {
        let Some(siblings) = &self.siblings else {
            return Ok(Vec::new());
        };
        let mut found = Vec::new();
        for directory in &siblings.directories {
            let mut ips = self.named_addresses(directory)?;
            ips.retain(|ip| Family::of(*ip) == family && !known(*ip));
            ips.retain(|ip| {
                siblings
                    .in_directory(self.store.node.disk, directory, *ip)
                    .is_some()
            });
            found.extend(ips);
        }
        Ok(found)
    }
}

impl Siblings {
    fn holder(&self, disk: &dyn Disk, ip: IpAddr) -> Option<Holder> {
        let mut directories = self.directories.iter();
        directories.find_map(|directory| self.in_directory(disk, directory, ip))
    }

    fn in_directory(&self, disk: &dyn Disk, directory: &Path, ip: IpAddr) -> Option<Holder> {
        let path = directory.join(ip.to_string());
        let lease = match disk.read(&path) {
            Err(e) if matches!(e.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => return None,
            // A file that cannot be read may be a lease, so it keeps its address.
            content => content.ok().and_then(|content| Lease::from_file(&content).ok()),
        };
        let counts = lease.as_ref().is_none_or(|lease| self.counts(lease, ip));
        counts.then_some(Holder { path, lease })
    }

    /// Whether `ip` of `lease` must not be an address of this network too.
    fn counts(&self, lease: &Lease, ip: IpAddr) -> bool {
        match (self.space, lease.space) {
            (Space::Network, _) | (_, Space::Network) => false,
            (Space::Node, Space::Node) => true,
            (Space::Range, _) | (_, Space::Range) => {
                let mut held = lease.result.ips.iter().map(|ip| ip.address);
                held.any(|held| held.ip() == ip && self.subnets.contains(&subnet(held)))
            }
        }
    }
}

/// `network` without host bits.
fn subnet(network: IpNetwork) -> (IpAddr, u8) {
    (network.network(), network.prefix())
}
