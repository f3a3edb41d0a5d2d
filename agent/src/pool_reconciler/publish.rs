// SPDX-License-Identifier: Apache-2.0
//! Creates objects for addresses that this node allocated from its own blocks: before a block is shared, and before an address
//! counts as reserved.

use super::addresses::{Claimant, is_attachment};
use super::context::{PoolContext, RequestScope, Target};
use super::sticky::StickyAddresses;
use api::accepted_pool::AcceptedPool;
use api::block_layout::BlockCidr;
use api::convert::{node_ref, renewed};
use api::requests::{ApiError, ReconcileError, Requests, WriteResult};
use api::{AddressState, Holder, IpAddress};
use block::owner::NodeIdentity;
use common::cni::{Attachment, Error};
use ipam::agent::{AskedBy, Pod};
use ipam::clock::{Clock, KernelClock};
use ipam::interval::IntervalSet;
use ipam::pool::BlockState;
use ipam::range::bits;
use ipam::store::{Lease, Released, StoredLease, Unattributed};
use ipnetwork::IpNetwork;
use kube::ResourceExt;
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::net::IpAddr;
use std::time::{Duration, Instant};

/// The number of objects that are written at the same time. Pods of other nodes wait until all objects of a block exist.
const AT_ONCE: usize = 8;

/// A leased address with its lease.
pub(super) type LeasedAddress = (IpAddr, StoredLease);

/// What the store of this node holds.
struct Held {
    /// The addresses of the readable leases.
    leased: Vec<LeasedAddress>,
    /// The resting addresses whose objects the agent deletes, each with its last lease.
    released: Vec<LeasedAddress>,
    /// The taken addresses that no readable lease has.
    unattributed: Vec<Unattributed>,
}

/// Addresses that need an object.
pub(super) struct Uncovered {
    /// Those of readable leases.
    pub(super) leased: Vec<LeasedAddress>,
    /// Those that no readable lease has.
    pub(super) unattributed: Vec<IpAddr>,
}

/// The addresses of a block that no object protects from other nodes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Unpublished {
    /// Those of leases without a reliable object, and those that no readable lease has.
    pub(super) taken: u64,
    /// Those that rest.
    pub(super) resting: u64,
}

/// The leases whose objects this process has created or renewed. A pre-existing object may have a DELETE in flight, from a time
/// when no lease had the address. It must be renewed before this node relies on it.
#[derive(Default)]
pub(super) struct Published(HashMap<IpAddr, (Attachment, u64)>);

impl Published {
    /// Whether the object of `ip` belongs to the lease `stored` and can be relied on.
    fn has(&self, ip: IpAddr, stored: &StoredLease) -> bool {
        let made = self.0.get(&ip);
        stored.lease.api.contains(&ip)
            || made.is_some_and(|(owner, inode)| *owner == stored.lease.owner && *inode == stored.inode)
    }

    /// Keeps those of `leased` that have no object to rely on. `there`: the objects of this node. After a restore of etcd, an object
    /// can be `Kept` since an earlier pod has ended. Any agent may bind such an object, so it counts as none.
    fn retain_missing(&self, leased: &mut Vec<LeasedAddress>, there: &BTreeMap<IpAddr, IpAddress>) {
        let is_kept = |object: &IpAddress| object.spec.state == AddressState::Kept;
        leased.retain(|(ip, stored)| there.get(ip).is_none_or(is_kept) || !self.has(*ip, stored));
    }

    fn note(&mut self, ip: IpAddr, stored: &StoredLease) {
        self.0.insert(ip, (stored.lease.owner.clone(), stored.inode));
    }

    /// Keeps those of `released` that have no object to rely on. An object of another attachment was written when the address
    /// passed to that one, and an object that is `Kept` when the lease ended.
    fn retain_unprotected(&self, released: &mut Vec<LeasedAddress>, there: &BTreeMap<IpAddr, IpAddress>) {
        let is_same = |object: &IpAddress, stored: &StoredLease| {
            let asked = object.spec.attachment.as_ref();
            object.spec.state == AddressState::Bound
                && asked.is_some_and(|asked| is_attachment(asked, &stored.lease.owner))
        };
        released.retain(|(ip, stored)| {
            let object = there.get(ip);
            object.is_none_or(|object| is_same(object, stored) && !self.has(*ip, stored))
        });
    }

    /// Forgets the leases that are not in `held`.
    fn keep(&mut self, held: &Held) {
        let held: HashSet<IpAddr> = held
            .leased
            .iter()
            .chain(&held.released)
            .map(|(ip, _)| *ip)
            .collect();
        self.0.retain(|ip, _| held.contains(ip));
    }
}

/// Creates the objects of leases.
pub(super) struct Publisher {
    context: PoolContext,
    published: Published,
    last_write: Option<Instant>,
    /// The addresses that [`Publisher::log`] has logged, as long as no readable lease has them.
    logged: BTreeSet<IpAddr>,
}

impl Publisher {
    pub(super) fn new(context: PoolContext) -> Self {
        Self {
            context,
            published: Published::default(),
            last_write: None,
            logged: BTreeSet::new(),
        }
    }

    /// When this process last wrote an address object here.
    pub(super) fn last_write(&self) -> Option<Instant> {
        self.last_write
    }

    /// Creates or renews an object for each lease in `within` that has no reliable one. Returns an address whose object could not
    /// be written, because another node has just created one or because the object changed since it was listed.
    pub(super) async fn publish_leases(
        &mut self,
        target: &Target,
        accepted: &AcceptedPool,
        within: &IntervalSet,
    ) -> Result<Option<IpAddr>, ReconcileError> {
        let mut leased = self.held().await?.leased;
        leased.retain(|(ip, _)| within.contains(bits(*ip)));
        let there = self.context.own_addresses(&target.api).await?;
        self.write_missing(target, accepted, leased, &there).await
    }

    /// Whether the reservation of `within` can be noted: each taken address there can get an object. An address that an administrator
    /// blocked needs none.
    pub(super) async fn can_reserve(&mut self, within: &IntervalSet) -> Result<bool, ReconcileError> {
        let mut unattributed = self.held().await?.unattributed;
        unattributed.retain(|one| !one.is_blocked && within.contains(bits(one.ip)));
        self.log(&unattributed);
        Ok(unattributed.is_empty())
    }

    /// The leased addresses that need an object: those that were allocated as objects, and those that no block in the file covers.
    /// The API server loses such an object if etcd is restored, or if a person deletes it where no policy prevents that.
    ///
    /// Only the lease records whether its address was allocated as an object. If no lease can be read, an address that the pool
    /// reserves counts.
    pub(super) async fn uncovered(&mut self) -> Result<Uncovered, ReconcileError> {
        let file = self.context.file().await?;
        let mut held = self.held().await?;
        let blocks: Vec<IpNetwork> = file
            .iter()
            .flat_map(|file| &file.blocks)
            .filter(|block| block.state != BlockState::Shared)
            .map(|block| block.cidr)
            .collect();
        let is_covered = |ip: IpAddr| blocks.iter().any(|cidr| cidr.contains(ip));
        let is_reserved = |ip: IpAddr| file.as_ref().is_some_and(|file| file.reserves(ip));
        held.leased
            .retain(|(ip, stored)| stored.lease.api.contains(ip) || !is_covered(*ip));
        held.unattributed
            .retain(|one| !one.is_blocked && (is_reserved(one.ip) || !is_covered(one.ip)));
        Ok(Uncovered {
            leased: held.leased,
            unattributed: held.unattributed.iter().map(|one| one.ip).collect(),
        })
    }

    async fn held(&mut self) -> Result<Held, ReconcileError> {
        let held = self.look().await?;
        self.published.keep(&held);
        Ok(held)
    }

    /// Reads the leases, and not the released addresses, which only a block that is about to be shared needs.
    async fn look(&mut self) -> Result<Held, ReconcileError> {
        let stores = &self.context.agent.stores;
        let (leases, unattributed) = stores.held(&self.context.pool).await?;
        self.logged
            .retain(|ip| unattributed.iter().any(|one| one.ip == *ip));
        let ips = |stored: StoredLease| {
            let ips: Vec<IpAddr> = stored.lease.addresses().collect();
            ips.into_iter().map(move |ip| (ip, stored.clone()))
        };
        Ok(Held {
            leased: leases.intact.into_iter().flat_map(ips).collect(),
            released: Vec::new(),
            unattributed,
        })
    }

    /// The addresses in `releases/` that have not rested yet, each with its last lease.
    async fn released(&self) -> Result<Vec<LeasedAddress>, ReconcileError> {
        let file = self.context.file().await?;
        let cooldown = file.map_or(Duration::ZERO, |file| file.cooldown());
        let now = KernelClock.since_boot()?;
        let mut released = self.context.agent.stores.releases(&self.context.pool).await?;
        released.retain(|released| !released.has_rested(now, cooldown));
        Ok(released.into_iter().filter_map(last_lease).collect())
    }

    /// Creates or renews the object of each of the addresses that has no reliable one. `there`: the objects of this node, listed
    /// after the leases were read.
    pub(super) async fn write_missing(
        &mut self,
        target: &Target,
        accepted: &AcceptedPool,
        mut leased: Vec<LeasedAddress>,
        there: &BTreeMap<IpAddr, IpAddress>,
    ) -> Result<Option<IpAddr>, ReconcileError> {
        self.published.retain_missing(&mut leased, there);
        self.write(target, accepted, &leased, there).await
    }

    async fn write(
        &mut self,
        target: &Target,
        accepted: &AcceptedPool,
        leased: &[LeasedAddress],
        there: &BTreeMap<IpAddr, IpAddress>,
    ) -> Result<Option<IpAddr>, ReconcileError> {
        if !leased.is_empty() {
            self.last_write = Some(Instant::now());
        }
        let (mut in_the_way, mut refused) = (None, None);
        for some in leased.chunks(AT_ONCE) {
            let writes = some.iter().map(async |(ip, stored)| {
                let object = match there.get(ip) {
                    Some(object) => self.claimed(object, &stored.lease),
                    None => self.new_object(target, accepted, *ip, &stored.lease).await?,
                };
                write(&target.api, &object).await
            });
            let written = futures::future::join_all(writes).await;
            let mut failure = None;
            for ((ip, stored), written) in some.iter().zip(written) {
                match written {
                    Ok(true) => self.published.note(*ip, stored),
                    Ok(false) => in_the_way = Some(*ip),
                    Err(e) if e.is_unanswered() => failure = Some(e),
                    Err(e) => refused = refused.or(Some(e)),
                }
            }
            failure.map_or(Ok(()), Err)?;
        }
        refused.map_or(Ok(in_the_way), Err)
    }

    /// A new version of the object that names the pod of the lease. A holder that is this pod stays. Another one may have been
    /// promised the address before this node noted that it is reserved: the pod that has the address keeps it.
    fn claimed(&self, object: &IpAddress, lease: &Lease) -> IpAddress {
        let asked = of_lease(lease);
        let claimant = of_pod(&asked, lease);
        let mut object = renewed(object.clone());
        object.spec.attachment = Some(claimant.attachment());
        object.spec.pod = claimant.pod_ref();
        object.spec.holder = object.spec.holder.filter(|holder| may_hold(holder, &claimant));
        if object.spec.state == AddressState::Kept {
            object.spec.state = AddressState::Bound;
            if let Some(NodeIdentity::Registered(me)) = self.context.agent.identity() {
                object.spec.node = node_ref(&me);
            }
        }
        object
    }

    /// A new object of a lease.
    async fn new_object(
        &self,
        target: &Target,
        accepted: &AcceptedPool,
        ip: IpAddr,
        lease: &Lease,
    ) -> Result<IpAddress, Error> {
        let asked = of_lease(lease);
        let mut claimant = of_pod(&asked, lease);
        if lease.api.contains(&ip) {
            let pending = None;
            let scope = RequestScope {
                target,
                accepted,
                pending,
            };
            // If the API server does not know the pod, the address is not kept for it.
            let _ = StickyAddresses::new(&self.context, scope)
                .identify(&mut claimant)
                .await;
        }
        claimant.new_address(&self.context, accepted, ip)
    }

    /// The addresses of the block that no object protects from other nodes.
    pub(super) async fn unpublished(
        &mut self,
        api: &Requests,
        cidr: Option<BlockCidr>,
    ) -> Result<Unpublished, ReconcileError> {
        let Some(cidr) = cidr else {
            return Ok(Unpublished::default());
        };
        let (held, _) = self.unprotected(api, cidr).await?;
        Ok(Unpublished {
            taken: (held.leased.len() + held.unattributed.len()) as u64,
            resting: held.released.len() as u64,
        })
    }

    /// Whether the block can be shared: each taken address of it can get an object.
    pub(super) async fn can_share(&mut self, cidr: Option<BlockCidr>) -> Result<bool, ReconcileError> {
        let Some(cidr) = cidr else { return Ok(true) };
        Ok(self.held_in(cidr).await?.unattributed.is_empty())
    }

    async fn held_in(&mut self, cidr: BlockCidr) -> Result<Held, ReconcileError> {
        let mut held = self.look().await?;
        // A DEL in between moves an address from the leases to `releases/`. If the record of a release stays, the lease of the
        // address shows that it does not rest.
        held.released = self.released().await?;
        let leased: HashSet<IpAddr> = held.leased.iter().map(|(ip, _)| *ip).collect();
        held.released.retain(|(ip, _)| !leased.contains(ip));
        self.published.keep(&held);
        held.leased.retain(|(ip, _)| cidr.network().contains(*ip));
        held.released.retain(|(ip, _)| cidr.network().contains(*ip));
        held.unattributed.retain(|one| cidr.network().contains(one.ip));
        self.log(&held.unattributed);
        Ok(held)
    }

    /// As [`Self::held_in`], without the addresses that have an object to rely on. The second value: the objects of this node.
    async fn unprotected(
        &mut self,
        api: &Requests,
        cidr: BlockCidr,
    ) -> Result<(Held, BTreeMap<IpAddr, IpAddress>), ReconcileError> {
        let mut held = self.held_in(cidr).await?;
        let there = self.context.own_addresses(api).await?;
        self.published.retain_missing(&mut held.leased, &there);
        self.published.retain_unprotected(&mut held.released, &there);
        Ok((held, there))
    }

    /// Logs each of the addresses once, because no object can be created for it.
    fn log(&mut self, unattributed: &[Unattributed]) {
        let pool = &self.context.pool;
        for one in unattributed.iter().filter(|one| self.logged.insert(one.ip)) {
            let ip = one.ip;
            if one.is_blocked {
                tracing::warn!(%pool, %ip, "the block of the address is not shared: its file in addresses/ is an administrator's; exclude the address in the pool and remove the file");
            } else {
                let why = without_lease(ip);
                tracing::warn!(%pool, %ip, why, "the block of the address is not shared, and a reservation of the address is not noted");
            }
        }
    }

    /// Creates or renews an object for each address of the block that a lease has or that rests.
    pub(super) async fn publish(&mut self, target: &Target, cidr: BlockCidr) -> Result<(), ReconcileError> {
        let Some(accepted) = &target.accepted else {
            return Ok(());
        };
        let (mut held, there) = self.unprotected(&target.api, cidr).await?;
        held.leased.append(&mut held.released);
        // The block is shared only when `unpublished` finds no address without an object.
        self.write(target, accepted, &held.leased, &there)
            .await
            .map(|_| ())
    }
}

/// Writes a new object, or a new version of one. Returns whether the object can be relied on.
async fn write(api: &Requests, object: &IpAddress) -> Result<bool, ReconcileError> {
    let written = match object.metadata.resource_version {
        Some(_) => api.replace(object).await?,
        None => match api.create(object).await? {
            WriteResult::Conflict => bind_kept(api, object).await?,
            created @ WriteResult::Applied(_) => created,
        },
    };
    Ok(matches!(written, WriteResult::Applied(_)))
}

/// Changes the existing object of this name to `object`, if it is `Kept`: then no pod has the address but the one of this node. After
/// a restore of etcd, the object can name the node of an earlier pod of its holder. It names another holder if that one was promised
/// the address before this node noted that it is reserved. An agent may bind a kept address for its holder only (`conf/policies`), and
/// change the holder in its own object.
async fn bind_kept(api: &Requests, object: &IpAddress) -> Result<WriteResult<IpAddress>, ApiError> {
    let (there, wanted) = (api.get::<IpAddress>(&object.name_any()).await?, &object.spec);
    let is_kept =
        |there: &IpAddress| there.spec.pool == wanted.pool && there.spec.state == AddressState::Kept;
    let Some(mut kept) = there.filter(is_kept) else {
        return Ok(WriteResult::Conflict);
    };
    let holder = kept.spec.holder.take();
    kept.spec.clone_from(wanted);
    if holder == wanted.holder {
        return api.replace(&kept).await;
    }
    kept.spec.holder = holder;
    let WriteResult::Applied(mut bound) = api.replace(&kept).await? else {
        return Ok(WriteResult::Conflict);
    };
    let holder = std::mem::replace(&mut bound.spec.holder, wanted.holder.clone());
    tracing::warn!(
        pool = wanted.pool,
        address = wanted.address,
        ?holder,
        "a pod of this node has an address that was kept for another pod, which gets another one"
    );
    api.replace(&bound).await
}

/// Whether the holder of an address is the pod of the claimant, as far as the lease names its pod.
fn may_hold(holder: &Holder, claimant: &Claimant<'_>) -> bool {
    let is_holder = |pod: &Pod| pod.namespace == holder.namespace && pod.name == holder.pod;
    claimant.pod.as_ref().is_none_or(is_holder)
}

/// Why no object can be created for a taken address.
pub(super) fn without_lease(ip: IpAddr) -> String {
    format!(
        "{ip} is taken on this node, and no readable lease has it; delete the pod that has it (rdmanet addresses {ip}); if no pod has it, remove its files in leases/ and addresses/ (docs/store.md)"
    )
}

/// A released address with the lease that had it.
fn last_lease(released: Released) -> Option<LeasedAddress> {
    let Released { ip, lease, inode, .. } = released;
    Some((ip, StoredLease { lease: lease?, inode }))
}

fn of_lease(lease: &Lease) -> AskedBy {
    AskedBy {
        owner: lease.owner.clone(),
        network: lease.network.clone(),
    }
}

/// The pod of a lease, as the claimant of an address that no holder keeps.
fn of_pod<'a>(asked: &'a AskedBy, lease: &Lease) -> Claimant<'a> {
    Claimant {
        asked,
        pod: Pod::of(&lease.sandbox),
        holder: None,
    }
}

#[cfg(test)]
mod tests;
