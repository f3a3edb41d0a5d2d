// SPDX-License-Identifier: Apache-2.0
//! Makes and ends leases, and repairs what a killed process left of either.

use super::error::{failed, is_full, is_nowhere};
use super::lease::{Lease, after, date, end_line, ended, is_without_del, move_line, without_del_line};
use super::{Locked, Sandbox, Store};
use crate::config::Space;
use crate::pool::{BlockState, PoolFile};
use crate::range::Range;
use common::cni::{Attachment, Code, Error};
use std::collections::BTreeSet;
use std::io::{self, ErrorKind};
use std::net::IpAddr;
use std::path::Path;

/// One DEL in this many removes addresses that have finished resting. To find them it lists all resting
/// addresses, whose number has no bound; spread over this many calls, the cost of each stays small.
const SWEEP_EVERY: u64 = 32;

/// How many resting addresses such a DEL checks: eight for each DEL, while a DEL adds one for each range set.
const SWEEP: usize = 256;

impl Locked<'_> {
    /// Makes `lease` with all of its addresses or, on any error, with none.
    ///
    /// # Errors
    /// [`Code::IO`], naming the file and the remedy.
    pub fn commit(&self, lease: &Lease) -> Result<(), Error> {
        let line = lease
            .to_line()
            .map_err(|e| Error::caused(Code::INTERNAL, "cannot write the lease as JSON", &e))?;
        let made = self.make(lease, &line);
        let made = match made {
            // The disk is full: remove addresses that have finished resting, each of which has an inode and a
            // block.
            Err(Unmade { full: true, .. }) if self.sweep(usize::MAX) > 0 => self.make(lease, &line),
            made => made,
        };
        made.map_err(|unmade| unmade.error)?;
        for ip in lease.addresses() {
            // If the file stays, the lease in `addresses/` shows that the address does not rest.
            let _ = self.store.node.disk.unlink(&self.store.resting_path(ip));
            // A record of an earlier release that stays ends with the agent's next look, since a lease has the address.
            let _ = self.store.node.disk.unlink(&self.store.release_path(ip));
        }
        Ok(())
    }

    /// Creates the files of `lease`, or none of them.
    fn make(&self, lease: &Lease, line: &[u8]) -> Result<(), Unmade> {
        let disk = self.store.node.disk;
        let (adding, target) = (self.store.adding_path(), self.store.lease_path(&lease.owner));
        let steps = || {
            disk.create(&adding, line)
                .map_err(|e| Unmade::of("write", &adding, &e))?;
            for ip in lease.addresses() {
                let path = self.store.address_path(ip);
                disk.link(&adding, &path)
                    .map_err(|e| Unmade::of("make", &path, &e))?;
            }
            disk.rename(&adding, &target)
                .map_err(|e| Unmade::of("make", &target, &e))
        };
        let made = steps();
        if made.is_err()
            && let Err(again) = self.undo_adding()
        {
            tracing::warn!(error = %again.msg, "cannot undo an unfinished lease; the next call will");
        }
        made
    }

    /// Moves `lease` to its container's current namespace, so that the end of the old one does not end the
    /// lease.
    ///
    /// # Errors
    /// [`Code::IO`]; the lease is then unchanged.
    pub fn move_to(&self, lease: &Lease, sandbox: &Sandbox) -> Result<(), Error> {
        let Store { node, .. } = self.store;
        let path = self.store.lease_path(&lease.owner);
        let content = node.disk.read(&path).map_err(|e| failed("read", &path, &e))?;
        let line = move_line(sandbox, node.clock.now(), node.clock.since_boot()?)
            .map_err(|e| Error::caused(Code::INTERNAL, "cannot write the new namespace as JSON", &e))?;
        node.disk
            .append(&path, &after(&content, line))
            .map_err(|e| failed("write to", &path, &e))
    }

    /// Makes `range` continue after `ip`. Losing this changes only the order of addresses.
    pub fn remember(&self, range: &Range, ip: IpAddr) {
        let Store { node, network, .. } = self.store;
        let directory = network.join("cursors");
        let path = directory.join(range.to_string());
        // As wide as the longest address, so that it overwrites any earlier one completely.
        let content = format!("{:<45}\n", ip.to_string());
        let written = match node.disk.overwrite(&path, content.as_bytes()) {
            Err(e) if e.kind() == ErrorKind::NotFound => node
                .disk
                .make_directory(&directory)
                .and_then(|()| node.disk.overwrite(&path, content.as_bytes())),
            other => other,
        };
        if let Err(e) = written {
            tracing::debug!(file = %path.display(), error = %e, "cannot write the cursor; the next search begins at the start of the range");
        }
    }

    /// Ends the lease of `owner`. Its addresses rest from now on, except those that are objects of the
    /// cluster, which are left to the agent. Returns the latter; `None` if there was no lease.
    ///
    /// # Errors
    /// [`Code::IO`], and [`Code::STORE_CORRUPT`] if the lease's name is not a regular file.
    pub fn release(&self, owner: &Attachment) -> Result<Option<Vec<IpAddr>>, Error> {
        let released = self.end(owner)?;
        if released.is_some() && self.is_turn_to_sweep(owner) {
            self.sweep(SWEEP);
        }
        Ok(released)
    }

    /// As [`Locked::release`], without the sweep. The caller calls [`Locked::sweep`].
    ///
    /// # Errors
    /// As [`Locked::release`].
    pub(crate) fn end(&self, owner: &Attachment) -> Result<Option<Vec<IpAddr>>, Error> {
        let Store { node, .. } = self.store;
        let (path, removing) = (self.store.lease_path(owner), self.store.removing_path());
        match node.disk.identity(&path) {
            Ok(identity) if !identity.regular => {
                return Err(super::corrupt(&path, "it is not a regular file", "move it away"));
            }
            Ok(_) => {}
            Err(e) if is_nowhere(&e) => return Ok(None),
            Err(e) => return Err(failed("look at", &path, &e)),
        }
        // GC goes on after a failure. The record of that lease must not be overwritten.
        self.finish_removing()?;
        if full_is_false(node.disk.rename(&path, &removing), "remove the lease", &path)? {
            return self.finish_removing().map(Some);
        }
        self.unlink_lease(&path).map(Some)
    }

    /// Ends the lease in `path` without a rename, which ZFS (`zfs_rename`) and Btrfs (`btrfs_rename`) refuse on a
    /// full disk. They have room for unlink(2) (`dmu_tx_mark_netfree`,
    /// `btrfs_start_transaction_fallback_global_rsv`). The addresses do not rest. Returns those that are left to
    /// the agent, which finds their objects without a lease.
    ///
    /// The lease ends first. If the process dies after that, its addresses stay taken until
    /// [`Locked::release_unleased`] or [`Locked::release_ownerless`].
    fn unlink_lease(&self, path: &Path) -> Result<Vec<IpAddr>, Error> {
        let lease = self.store.lease_in(path);
        let mut ips = self.links_of(path)?.unwrap_or_default();
        self.remove(path)?;
        if let Some(lease) = &lease {
            let copies = lease.addresses();
            ips.extend(copies.filter(|ip| self.is_copy(&self.store.address_path(*ip), lease)));
        }
        for ip in ips {
            self.remove(&self.store.address_path(ip))?;
        }
        Ok(lease.map(|lease| self.objects_of(&lease)).unwrap_or_default())
    }

    /// Releases those of `ips` that a lease of `owner` held whose DEL died on a full disk. `owner` has no lease
    /// any more.
    ///
    /// # Errors
    /// [`Code::IO`].
    pub(crate) fn release_unleased(&self, owner: &Attachment, ips: &[IpAddr]) -> Result<(), Error> {
        for ip in ips {
            let path = self.store.address_path(*ip);
            let lease = self.store.lease_in(&path).filter(|lease| lease.owner == *owner);
            if lease.is_some_and(|lease| self.is_copy(&path, &lease)) {
                self.remove(&path)?;
            }
        }
        Ok(())
    }

    /// Undoes an ADD and finishes a DEL whose process died.
    pub(super) fn recover(&self) -> Result<(), Error> {
        self.undo_adding()?;
        self.finish_removing().map(drop)
    }

    fn undo_adding(&self) -> Result<(), Error> {
        let adding = self.store.adding_path();
        // Removes nothing if there is nothing to remove: a read-only disk would refuse even that.
        let Some(ips) = self.links_of(&adding)? else {
            return Ok(());
        };
        for ip in ips {
            self.remove(&self.store.address_path(ip))?;
        }
        self.remove(&adding)
    }

    /// Finishes a DEL. Returns the addresses that are left to the agent.
    fn finish_removing(&self) -> Result<Vec<IpAddr>, Error> {
        let removing = self.store.removing_path();
        let Some(ips) = self.links_of(&removing)? else {
            return Ok(Vec::new());
        };
        let rested = !ips.is_empty() && self.stamp(&removing)?;
        let content = self.store.node.disk.read(&removing).unwrap_or_default();
        let lease = Lease::from_file(&content).ok();
        if let (Some(lease), Some(ended), false) = (&lease, ended(&content), is_without_del(&content)) {
            self.note_used(lease, ended);
        }
        let objects = lease.map(|lease| self.objects_of(&lease)).unwrap_or_default();
        for ip in ips {
            let path = self.store.address_path(ip);
            let kept = match (objects.contains(&ip), rested) {
                (true, _) => self.hand_over(&path, ip)?,
                (false, true) => self.rest(&path, ip)?,
                (false, false) => false,
            };
            if !kept {
                self.remove(&path)?;
            }
        }
        self.remove(&removing)?;
        Ok(objects)
    }

    /// The addresses of `lease` that are objects of the cluster:
    ///
    /// - those that the lease lists,
    /// - those outside of the node's own blocks: the block was shared since, or another node has it after a restore of etcd,
    /// - those that the pool reserves. If the agent has not created the object of such an address yet, it only removes the record.
    fn objects_of(&self, lease: &Lease) -> Vec<IpAddr> {
        let pool = self.readable_pool();
        let is_own = |pool: &PoolFile, ip: IpAddr| {
            let mut blocks = pool.blocks.iter();
            blocks.any(|block| block.state != BlockState::Shared && block.cidr.contains(ip))
        };
        let is_object = |ip: &IpAddr| {
            let left = |pool: &PoolFile| !is_own(pool, *ip) || pool.reserves(*ip);
            lease.api.contains(ip) || pool.as_ref().is_some_and(left)
        };
        lease.addresses().filter(is_object).collect()
    }

    /// Leaves an address to the agent, which deletes its object from the cluster. On a full disk the agent
    /// finds the object without a lease later.
    pub(super) fn hand_over(&self, path: &Path, ip: IpAddr) -> Result<bool, Error> {
        let disk = self.store.node.disk;
        let target = self.store.release_path(ip);
        let moved = match disk.rename(path, &target) {
            Err(e) if e.kind() == ErrorKind::NotFound => disk
                .make_directory(&self.store.network.join("releases"))
                .and_then(|()| disk.rename(path, &target)),
            other => other,
        };
        full_is_false(moved, "hand over", path)
    }

    /// Writes into the lease in `path` that no DEL ends it, or only that of a failed ADD. The lease still exists then, because a process may die
    /// between this line and the end. On a full disk the mark is lost, as the rest is.
    pub(super) fn note_without_del(&self, path: &Path) -> Result<(), Error> {
        let Store { node, .. } = self.store;
        let content = node.disk.read(path).map_err(|e| failed("read", path, &e))?;
        if is_without_del(&content) {
            return Ok(());
        }
        let line = without_del_line(node.clock.now())
            .map_err(|e| Error::caused(Code::INTERNAL, "cannot write the end of the lease as JSON", &e))?;
        let appended = node.disk.append(path, &after(&content, line));
        full_is_false(appended, "write to", path).map(drop)
    }

    /// Notes that no probe has shown the addresses of `owner` to be free: its ADD did not succeed, at whatever time it ended.
    ///
    /// # Errors
    /// [`Code::IO`].
    pub(crate) fn note_unproven(&self, owner: &Attachment) -> Result<(), Error> {
        let path = self.store.lease_path(owner);
        let lease = self.store.lease_in(&path);
        if lease.is_some_and(|lease| lease.result.ips.iter().any(|ip| ip.probe)) {
            self.note_without_del(&path)?;
        }
        Ok(())
    }

    /// Writes the end into a lease. On a full disk the addresses skip their rest: DEL must not fail for that.
    fn stamp(&self, removing: &Path) -> Result<bool, Error> {
        let Store { node, .. } = self.store;
        let content = node.disk.read(removing).unwrap_or_default();
        if ended(&content).is_some() {
            return Ok(true);
        }
        let line = end_line(node.clock.now(), node.clock.since_boot()?)
            .map_err(|e| Error::caused(Code::INTERNAL, "cannot write the end of the lease as JSON", &e))?;
        let appended = node.disk.append(removing, &after(&content, line));
        full_is_false(appended, "write to", removing)
    }

    fn rest(&self, path: &Path, ip: IpAddr) -> Result<bool, Error> {
        full_is_false(
            self.store.node.disk.rename(path, &self.store.resting_path(ip)),
            "release",
            path,
        )
    }

    /// The addresses that the lease in `file` holds; `None` if the file does not exist.
    ///
    /// If the lease cannot be read, all addresses are searched: they are hard links to it.
    fn links_of(&self, file: &Path) -> Result<Option<Vec<IpAddr>>, Error> {
        let Store { node, .. } = self.store;
        let identity = match node.disk.identity(file) {
            Ok(identity) => identity,
            Err(e) if is_nowhere(&e) => return Ok(None),
            Err(e) => return Err(failed("look at", file, &e)),
        };
        let lease = self.store.lease_in(file);
        let mut candidates = match &lease {
            Some(lease) => lease.addresses().collect(),
            None if identity.names > 1 => self.addresses()?,
            None => Vec::new(),
        };
        // A damaged lease may name an address twice, and the second removal would fail.
        let mut seen = BTreeSet::new();
        candidates.retain(|ip| seen.insert(*ip));
        let is_leased = |ip: &IpAddr| {
            let path = self.store.address_path(*ip);
            node.disk.identity(&path).is_ok_and(|i| i.inode == identity.inode)
                || lease.as_ref().is_some_and(|lease| self.is_copy(&path, lease))
        };
        Ok(Some(candidates.into_iter().filter(is_leased).collect()))
    }

    /// Whether `path` is a copy of `lease`, as after a move of the store without its hard links, or after a DEL
    /// that died on a full disk. If the owner has a lease, the file belongs to that lease.
    fn is_copy(&self, path: &Path, lease: &Lease) -> bool {
        let copy = self.store.lease_in(path);
        let own = || self.store.identity(&self.store.lease_path(&lease.owner));
        copy.is_some_and(|copy| copy.owner == lease.owner) && matches!(own(), Ok(None))
    }

    /// Whether the DEL of `owner` is one of those that sweep. Container ids are random; the time is mixed in
    /// for callers whose ids are not (FNV-1a, 64 bits).
    fn is_turn_to_sweep(&self, owner: &Attachment) -> bool {
        let moment = self
            .store
            .node
            .clock
            .since_boot()
            .map_or(0, |time| time.as_micros());
        let bytes = owner.container_id.as_str().bytes().chain(moment.to_le_bytes());
        let hash = bytes.fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
            (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
        });
        (hash >> 32) % SWEEP_EVERY == 0
    }

    /// Checks up to `most` resting addresses, removes those that have finished resting and need no record, and
    /// returns their number. It starts at a varying place: from a fixed start it would check the same ones while
    /// those behind them pile up.
    pub(crate) fn sweep(&self, most: usize) -> usize {
        let Store { node, boot, .. } = self.store;
        let names = node
            .disk
            .list(&boot.join("resting"), usize::MAX)
            .unwrap_or_default();
        let moment = node.clock.since_boot().map_or(0, |time| time.as_micros());
        let start = moment
            .checked_rem(names.len() as u128)
            .and_then(|start| usize::try_from(start).ok())
            .unwrap_or_default();
        let looked_at = names.iter().cycle().skip(start).take(most.min(names.len()));
        let ips = looked_at.filter_map(|name| name.to_str()?.parse().ok());
        let keeps_record = self.kept_records();
        ips.filter(|ip| self.rest_of(*ip).is_none() && !keeps_record(*ip))
            // A file that cannot be removed is left for the next sweep.
            .filter(|ip| node.disk.unlink(&self.store.resting_path(*ip)).is_ok())
            .count()
    }

    pub(super) fn remove(&self, path: &Path) -> Result<(), Error> {
        match self.store.node.disk.unlink(path) {
            Err(e) if e.kind() != ErrorKind::NotFound => Err(failed("remove", path, &e)),
            _ => Ok(()),
        }
    }

    /// A new lease for `owner`, starting now.
    ///
    /// # Errors
    /// [`Code::IO`] when the clock cannot be read.
    pub fn draft(
        &self,
        owner: &Attachment,
        sandbox: Sandbox,
        result: common::cni::CniResult,
    ) -> Result<Lease, Error> {
        let clock = self.store.node.clock;
        Ok(Lease {
            owner: owner.clone(),
            network: self.store.name.clone(),
            sandbox,
            api: Vec::new(),
            space: Space::default(),
            since: date(clock.now()),
            since_boot: clock.since_boot()?,
            result,
        })
    }
}

/// Why a lease was not made.
struct Unmade {
    /// Whether the disk is full.
    full: bool,
    error: Error,
}

impl Unmade {
    fn of(action: &str, path: &Path, error: &io::Error) -> Self {
        Self {
            full: is_full(error),
            error: failed(action, path, error),
        }
    }
}

fn full_is_false(done: io::Result<()>, action: &str, path: &Path) -> Result<bool, Error> {
    match done {
        Ok(()) => Ok(true),
        Err(e) if is_full(&e) => {
            tracing::warn!(operation = action, file = %path.display(), error = %e, "cannot write the end of a lease; its addresses may be allocated again at once");
            Ok(false)
        }
        Err(e) => Err(failed(action, path, &e)),
    }
}
