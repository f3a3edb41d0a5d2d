// SPDX-License-Identifier: Apache-2.0
//! Queries of the store: the holder of an address, the free addresses, the leases.

use super::error::{failed, is_full};
use super::lease::{Lease, ended, is_without_del};
use super::{Locked, Store};
use crate::allocator::{Occupancy, Occupied, Resting, State};
use crate::interval::IntervalSet;
use crate::range::{Family, Range, bits, single};
use common::cni::{Attachment, Code, ContainerId, Error, IfName};
use std::collections::HashSet;
use std::io::ErrorKind;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

impl Occupancy for Locked<'_> {
    fn state(&self, ip: IpAddr) -> Result<State, Error> {
        for path in [self.store.address_path(ip), self.host_local_path(ip)] {
            if self.store.identity(&path)?.is_some() {
                return Ok(State::Taken);
            }
        }
        if self.sibling(ip).is_some() {
            return Ok(State::Taken);
        }
        Ok(self.rest_of(ip).map_or(State::Free, State::Resting))
    }

    fn owner(&self, ip: IpAddr) -> String {
        let foreign = |path: &Path, what: &str| {
            format!("{}, {what}; remove it if the address is unused", path.display())
        };
        let lease_or_foreign = |path: &Path, lease: Option<Lease>| {
            lease.map_or_else(|| foreign(path, "which is no lease"), |lease| lease.describe())
        };
        let path = self.store.address_path(ip);
        match self.store.node.disk.read(&path) {
            Ok(content) => lease_or_foreign(&path, Lease::from_file(&content).ok()),
            Err(e) if e.kind() == ErrorKind::NotFound => match self.sibling(ip) {
                Some(holder) => lease_or_foreign(&holder.path, holder.lease),
                None => foreign(&self.host_local_path(ip), "a lease of host-local"),
            },
            Err(e) => foreign(&path, &format!("which cannot be read ({e})")),
        }
    }

    fn occupied(&self, family: Family) -> Result<Occupied, Error> {
        let of_family = |ip: &IpAddr| Family::of(*ip) == family;
        let own = self
            .addresses()?
            .into_iter()
            .chain(self.named_addresses(&self.store.network)?);
        let mut taken: IntervalSet = own.filter(of_family).map(single).collect();
        let others = self.siblings_addresses(family, |ip| taken.contains(bits(ip)))?;
        taken = taken
            .intervals()
            .iter()
            .copied()
            .chain(others.into_iter().map(single))
            .collect();
        let resting = self.named_addresses(&self.store.boot.join("resting"))?;
        let resting: Vec<(IpAddr, Duration)> = resting
            .into_iter()
            .filter(of_family)
            .filter_map(|ip| Some((ip, self.rest_of(ip)?)))
            .collect();
        Ok(Occupied {
            taken,
            resting: resting.iter().map(|(ip, _)| single(*ip)).collect(),
            rests: resting.iter().map(|(ip, rest)| (bits(*ip), *rest)).collect(),
        })
    }

    fn resting(&self, family: Family) -> Result<Vec<Resting>, Error> {
        let Store { node, boot, .. } = self.store;
        let of = |ip: IpAddr| {
            let content = node.disk.read(&self.store.resting_path(ip)).ok()?;
            let (lease, ended) = (Lease::from_file(&content).ok()?, ended(&content)?);
            let lasted = ended.saturating_sub(lease.since_boot);
            Some(Resting {
                ip,
                pod: lease.sandbox.pod,
                ended,
                is_doubtful: lasted < BRIEF || is_without_del(&content),
            })
        };
        let mut found = Vec::new();
        for ip in self.named_addresses(&boot.join("resting"))? {
            if Family::of(ip) == family && self.state(ip)? != State::Taken {
                found.extend(of(ip));
            }
        }
        Ok(found)
    }

    /// Until a later lease of `ip`, its last one decides.
    fn must_probe(&self, ip: IpAddr) -> bool {
        let content = self.store.node.disk.read(&self.store.resting_path(ip));
        is_doubtful(&content.unwrap_or_default(), ip)
    }

    fn cursor(&self, range: &Range) -> Option<IpAddr> {
        let path = self.store.network.join("cursors").join(range.to_string());
        let content = self.store.node.disk.read(&path).ok()?;
        str::from_utf8(&content).ok()?.trim().parse().ok()
    }
}

/// A lease shorter than this probably ended because the probe found another host with its address. A main plugin that
/// is killed during the probe does not declare it ([`common::cni::UNFINISHED`]).
pub(super) const BRIEF: Duration = Duration::from_secs(10);

/// How long the record of a brief lease with a probe is kept at least.
const KEPT: Duration = Duration::from_secs(3600);

/// Whether another host may still use `ip`, by the file of its last lease: no DEL ended that lease, or only that of a
/// failed ADD, or its probe probably found another host, because it was brief.
fn is_doubtful(content: &[u8], ip: IpAddr) -> bool {
    let Ok(lease) = Lease::from_file(content) else {
        return false;
    };
    let mut ips = lease.result.ips.iter();
    let was_probed = ips.any(|it| it.probe && it.address.ip() == ip);
    let is_brief = || ended(content).is_some_and(|ended| ended.saturating_sub(lease.since_boot) < BRIEF);
    is_without_del(content) || (was_probed && is_brief())
}

impl Locked<'_> {
    /// How long `ip` must still rest; `None` if it does not rest.
    pub(super) fn rest_of(&self, ip: IpAddr) -> Option<Duration> {
        let Store { node, .. } = self.store;
        let content = node.disk.read(&self.store.resting_path(ip)).ok()?;
        // A time in the future was not written by this kernel's clock.
        let rested = node.clock.since_boot().ok()?.checked_sub(ended(&content)?)?;
        self.cooldown.checked_sub(rested).filter(|rest| !rest.is_zero())
    }

    /// Whether the last lease of `ip` ended less than `within` ago, and another host may still use the address.
    pub(super) fn is_suspect(&self, ip: IpAddr, within: Duration) -> bool {
        let Store { node, .. } = self.store;
        let since = || {
            let content = node.disk.read(&self.store.resting_path(ip)).ok()?;
            let ended = ended(&content).filter(|_| is_doubtful(&content, ip))?;
            node.clock.since_boot().ok()?.checked_sub(ended)
        };
        since().is_some_and(|since| since < within)
    }

    /// Whether a sweep keeps the record of the last lease of an address that has rested. A lease that ended
    /// without DEL is kept for ever. One whose probe probably found another host is kept until a block with
    /// the address may be returned, and for at least an hour. Such leases may be many.
    pub(super) fn kept_records(&self) -> impl Fn(IpAddr) -> bool {
        let quarantine = self.readable_pool().map_or(0, |pool| pool.quarantine_seconds);
        let kept = KEPT.max(Duration::from_secs(quarantine.into()));
        move |ip| {
            let content = self.store.node.disk.read(&self.store.resting_path(ip));
            is_without_del(&content.unwrap_or_default()) || self.is_suspect(ip, kept)
        }
    }

    /// Every address that has a file in `addresses/`.
    pub(super) fn addresses(&self) -> Result<Vec<IpAddr>, Error> {
        self.named_addresses(&self.store.boot.join("addresses"))
    }

    /// The path of host-local's lease of `ip`, if host-local served this network before with the same
    /// `dataDir` (containernetworking/plugins `plugins/ipam/host-local/backend/disk`). Its pods keep running,
    /// so their addresses are taken until host-local's DEL removes the file.
    fn host_local_path(&self, ip: IpAddr) -> PathBuf {
        self.store.network.join(ip.to_string())
    }

    pub(super) fn named_addresses(&self, path: &Path) -> Result<Vec<IpAddr>, Error> {
        let names = self
            .store
            .node
            .disk
            .list(path, usize::MAX)
            .map_err(|e| failed("list", path, &e))?;
        Ok(names
            .iter()
            .filter_map(|name| name.to_str()?.parse().ok())
            .collect())
    }

    /// The owner of every lease.
    ///
    /// # Errors
    /// `IO` when the directory cannot be listed.
    pub fn owners(&self) -> Result<Vec<Attachment>, Error> {
        self.store.owners()
    }

    /// Removes the addresses of leases that have no file in `leases/`, unless `valid` has their owners.
    /// Returns the errors. An administrator causes that state, or a DEL that died on a full disk.
    ///
    /// # Errors
    /// `IO` if the directory cannot be listed.
    pub fn release_ownerless(&self, valid: &HashSet<&Attachment>) -> Result<Vec<Error>, Error> {
        let mut errors = Vec::new();
        for ip in self.addresses()? {
            let path = self.store.address_path(ip);
            let Some(lease) = self.store.lease_in(&path) else {
                tracing::warn!(file = %path.display(), "the file is not a lease and blocks its address; remove it if the address is unused");
                continue;
            };
            if !self.store.has_lease(&lease.owner) && self.is_own(&lease) && !valid.contains(&lease.owner) {
                errors.extend(self.remove(&path).err());
            }
        }
        Ok(errors)
    }

    /// Fails unless files can be written.
    ///
    /// # Errors
    /// `IO`, naming the file and the remedy.
    pub fn require_writable(&self) -> Result<(), Error> {
        let path = self.store.boot.join("probe");
        let write = || {
            let content = b"STATUS writes this file to see whether ADD could\n";
            self.store.node.disk.create(&path, content)
        };
        let written = match write() {
            // ADD frees space in the same way.
            Err(e) if is_full(&e) && self.sweep(usize::MAX) > 0 => write(),
            written => written,
        };
        let removed = self.remove(&path);
        written.map_err(|e| failed("write", &path, &e))?;
        removed
    }
}

impl Store<'_> {
    /// The owner of every lease; empty if no call has used the store in this boot.
    ///
    /// # Errors
    /// `IO` if the directory cannot be listed, `STORE_CORRUPT` if leases of another boot id are alive.
    pub fn owners(&self) -> Result<Vec<Attachment>, Error> {
        let path = self.boot.join("leases");
        let names = match self.node.disk.list(&path, usize::MAX) {
            Ok(names) => names,
            Err(e) if e.kind() == ErrorKind::NotFound => {
                self.require_other_boots_ended(None)?;
                return Ok(Vec::new());
            }
            Err(e) => return Err(failed("list", &path, &e)),
        };
        let owner = |name: &std::ffi::OsString| {
            let (id, ifname) = name.to_str()?.split_once('@')?;
            let container_id = ContainerId::try_from(id.to_owned()).ok()?;
            Some(Attachment {
                container_id,
                ifname: IfName::try_from(ifname.to_owned()).ok()?,
            })
        };
        for foreign in names.iter().filter(|name| owner(name).is_none()) {
            tracing::warn!(file = %path.join(foreign).display(), "the file is not a lease; remove it");
        }
        Ok(names.iter().filter_map(owner).collect())
    }

    /// Fails unless the file of `ip` in `addresses/` is that of `lease`.
    ///
    /// # Errors
    /// `CHECK_FAILED` with the present holder of the address.
    pub fn require_claim(&self, lease: &Lease, ip: IpAddr) -> Result<(), Error> {
        let path = self.address_path(ip);
        let content = self.node.disk.read(&path);
        let holder = content.as_deref().map(Lease::from_file);
        let what = match holder {
            Ok(Ok(holder)) if holder.owner == lease.owner => return Ok(()),
            Ok(Ok(holder)) => format!("it is held by {}", holder.describe()),
            Ok(Err(what)) => format!("{} is damaged: {what}", path.display()),
            Err(e) => format!("{} cannot be read: {e}", path.display()),
        };
        Err(Error::new(
            Code::CHECK_FAILED,
            format!("{} should hold {ip}, but {what}", lease.owner),
        ))
    }
}
