// SPDX-License-Identifier: Apache-2.0
//! The leases of a store, block by block, for the node's agent.

use super::lease::Lease;
use super::{Locked, Store};
use crate::pool::{PoolFile, PoolRanges};
use crate::range::{Family, bits, whole};
use common::cni::{Attachment, Error};
use ipnetwork::IpNetwork;
use std::collections::HashSet;
use std::net::IpAddr;
use std::time::Duration;

/// A lease with its file. A repeated ADD keeps the file, though it may move the lease to another namespace. A
/// new lease of the same owner is another file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredLease {
    /// The lease.
    pub lease: Lease,
    /// The inode of its file.
    pub inode: u64,
}

/// All leases of a store.
#[derive(Clone, Debug, Default)]
pub struct Leases {
    /// The readable leases.
    pub intact: Vec<StoredLease>,
    /// The unreadable leases, each with its owner by the file's name. They keep their addresses.
    pub damaged: Vec<(Attachment, Error)>,
}

/// An address with a file in `addresses/` that no readable lease has: its lease is damaged or missing, or an administrator
/// blocked the address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Unattributed {
    /// The address.
    pub ip: IpAddr,
    /// An administrator blocked it: its file is empty, and no lease is a link to that file.
    pub is_blocked: bool,
}

/// How many addresses of a block are in use.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct BlockUse {
    /// Addresses with a file in `addresses/`: held by an attachment, or blocked by an administrator.
    pub taken: u64,
    /// Released addresses that still rest.
    pub resting: u64,
    /// The part of `taken` and `resting` that no node allocates by itself: an edit may have reserved or excluded an
    /// address, or shortened its range.
    pub unusable: u64,
    /// Addresses that another host may still use: their last lease ended without DEL, or its probe probably found a
    /// host, less than the pool's quarantine ago. This node probes such an address before the next use. A node that
    /// claims the block after a return does not.
    pub suspect: u64,
}

impl BlockUse {
    /// Whether the block can be given away.
    pub fn is_idle(&self) -> bool {
        *self == Self::default()
    }
}

impl Store<'_> {
    /// All leases, with or without the lock: each appears and disappears atomically. Empty if no call has
    /// used the store in this boot.
    ///
    /// # Errors
    /// [`common::cni::Code::IO`] if the directory cannot be listed.
    pub fn leases(&self) -> Result<Leases, Error> {
        let mut leases = Leases::default();
        for owner in self.owners()? {
            match self.stored(&owner) {
                Ok(stored) => leases.intact.extend(stored),
                Err(error) => leases.damaged.push((owner, error)),
            }
        }
        Ok(leases)
    }

    /// The lease of `owner` with its file.
    fn stored(&self, owner: &Attachment) -> Result<Option<StoredLease>, Error> {
        // The inode is read before the content. If another file takes its place in between, the inode is
        // the old one's, and the caller that acts on it finds it changed.
        let Some(identity) = self.identity(&self.lease_path(owner))? else {
            return Ok(None);
        };
        let inode = identity.inode;
        Ok(self.lease(owner)?.map(|lease| StoredLease { lease, inode }))
    }
}

impl Locked<'_> {
    /// All leases, and the taken addresses that none of the readable ones has.
    ///
    /// # Errors
    /// [`common::cni::Code::IO`] if a directory cannot be listed.
    pub fn held(&self) -> Result<(Leases, Vec<Unattributed>), Error> {
        let leases = self.store.leases()?;
        let readable = leases.intact.iter();
        let attributed: HashSet<IpAddr> = readable.flat_map(|stored| stored.lease.addresses()).collect();
        let others = self
            .addresses()?
            .into_iter()
            .filter(|ip| !attributed.contains(ip));
        let others = others.map(|ip| Unattributed {
            ip,
            is_blocked: self.is_blocked(ip),
        });
        Ok((leases, others.collect()))
    }

    /// Whether an administrator made the file of `ip`, as `touch` does. A damaged lease may be empty too, but it has another name.
    fn is_blocked(&self, ip: IpAddr) -> bool {
        let (disk, path) = (self.store.node.disk, self.store.address_path(ip));
        let has_one_name = disk.identity(&path).is_ok_and(|identity| identity.names == 1);
        has_one_name && disk.read(&path).is_ok_and(|content| content.is_empty())
    }

    /// The usage of each of `blocks`, in their order. `pool` is the content of `pool.json`.
    ///
    /// # Errors
    /// [`common::cni::Code::IO`] if the directories cannot be listed, [`common::cni::Code::STORE_CORRUPT`]
    /// for `pool.json`.
    pub fn usage(&self, pool: Option<&PoolFile>, blocks: &[IpNetwork]) -> Result<Vec<BlockUse>, Error> {
        let taken = self.addresses()?;
        let mut released = self.named_addresses(&self.store.boot.join("resting"))?;
        released.retain(|ip| blocks.iter().any(|block| block.contains(*ip)));
        let (mut resting, mut suspect) = (released.clone(), released);
        resting.retain(|ip| self.rest_of(*ip).is_some());
        let quarantine = pool.map_or(0, |pool| pool.quarantine_seconds);
        suspect.retain(|ip| self.is_suspect(*ip, Duration::from_secs(quarantine.into())));
        let unusable = self.unusable(pool, [taken.as_slice(), &resting].concat())?;
        let count = |ips: &[IpAddr], block: &IpNetwork| {
            let (family, numbers) = (Family::of(block.ip()), whole(*block));
            let inside = |ip: &&IpAddr| Family::of(**ip) == family && numbers.contains(bits(**ip));
            ips.iter().filter(inside).count() as u64
        };
        let usage = |block| BlockUse {
            taken: count(&taken, block),
            resting: count(&resting, block),
            unusable: count(&unusable, block),
            suspect: count(&suspect, block),
        };
        Ok(blocks.iter().map(usage).collect())
    }

    /// Those of `addresses` that no node allocates by itself.
    fn unusable(&self, pool: Option<&PoolFile>, addresses: Vec<IpAddr>) -> Result<Vec<IpAddr>, Error> {
        let Some(pool) = pool.filter(|_| !addresses.is_empty()) else {
            return Ok(Vec::new());
        };
        let ranges = PoolRanges::new(pool, &self.store.pool_path())?;
        let usable = [Family::V4, Family::V6].map(|family| (family, ranges.usable(family)));
        let is_usable = |ip: IpAddr| {
            let of_family = usable.iter().find(|(family, _)| *family == Family::of(ip));
            of_family.is_some_and(|(_, usable)| usable.contains(bits(ip)))
        };
        Ok(addresses.into_iter().filter(|ip| !is_usable(*ip)).collect())
    }

    /// Ends a lease without DEL, if neither its file nor its content has changed: a repeated ADD moves a lease to
    /// the container's new namespace within the same file. Returns whether it ended the lease. The next use of its
    /// addresses is probed: a process may hold open a namespace whose path is gone.
    ///
    /// # Errors
    /// As [`Locked::release`].
    pub fn release_unchanged(&self, stored: &StoredLease) -> Result<bool, Error> {
        let path = self.store.lease_path(&stored.lease.owner);
        match self.store.identity(&path)? {
            Some(identity) if identity.inode == stored.inode => {
                if self.lease(&stored.lease.owner)?.as_ref() != Some(&stored.lease) {
                    return Ok(false);
                }
                self.note_without_del(&path)?;
                Ok(self.release(&stored.lease.owner)?.is_some())
            }
            _ => Ok(false),
        }
    }
}
