// SPDX-License-Identifier: Apache-2.0
//! Frees leases whose pods are gone, and address objects that no lease has.
//!
//! Invariant: nothing is freed because of a single observation, a wall clock, or a missing answer. Each release is logged with
//! its evidence.

mod observed;
mod sandboxes;

use super::addresses::{Addresses, is_attachment, is_for};
use super::context::{LocalUse, PoolContext, Target};
use super::publish::{Publisher, without_lease};
use crate::liveness::{Conclusion, Namespace, PodState, conclude};
use api::accepted_pool::AcceptedPool;
use api::block_layout::address_name;
use api::convert::owner;
use api::flags::DaemonFlags;
use api::pods::{final_phase, uids};
use api::requests::{ApiError, ReconcileError, Requests, WriteResult};
use api::{AddressState, IpAddress};
use block::owner::NodeIdentity;
use ipam::agent::LIMIT;
use ipam::clock::{Clock, KernelClock};
use ipam::pool::{BlockState, PoolFile};
use ipam::store::{Fate, Released, StoredLease};
use kube::ResourceExt;
use observed::{Observed, Suspect};
use sandboxes::{Newer, Sandboxes};
use std::net::IpAddr;
use std::time::{Duration, Instant};

/// What became of the network namespace of a lease; `None` if the lease names none.
async fn fate(stored: &StoredLease) -> Option<Fate> {
    let netns = stored.lease.sandbox.netns.clone()?;
    tokio::task::spawn_blocking(move || netns.fate()).await.ok()
}

/// Whether the pod of the ended lease may keep the address by its name. Such an address does not rest. No pod gets an address of a
/// pool that is gone.
fn may_be_kept(accepted: Option<&AcceptedPool>, released: &Released) -> bool {
    let pod = released.lease.as_ref().map(|lease| lease.sandbox.pod.as_deref());
    accepted.is_some_and(|accepted| accepted.is_sticky() && pod.is_none_or(|pod| accepted.asks_agent(pod)))
}

/// Whether `ip` lies in a block of this node that is about to be shared.
fn is_being_shared(file: Option<&PoolFile>, ip: IpAddr) -> bool {
    let mut blocks = file.iter().flat_map(|file| &file.blocks);
    blocks.any(|block| block.state == BlockState::Sharing && block.cidr.contains(ip))
}

/// Whether `address` is the object of the released lease.
fn is_of(pool: &str, address: &IpAddress, released: &Released) -> bool {
    let owner = released.lease.as_ref().map(|lease| &lease.owner);
    is_for(pool, address, released.ip)
        && owner.is_none_or(|owner| {
            let asked = address.spec.attachment.as_ref();
            asked.is_some_and(|asked| is_attachment(asked, owner))
        })
}

/// The result of a comparison of this node's objects with its leases.
#[derive(Default)]
struct Compared {
    /// Another process changed the object of a lease at the same time.
    changed: bool,
    /// The first refusal to renew the object of a lease.
    unrenewed: Option<ReconcileError>,
    /// The first refusal to release an object without a lease.
    unfreed: Option<ReconcileError>,
}

/// Keeps the first refusal of the API server, because the other objects still have to be looked at. Returns any other failure.
fn keep_refusal<T>(
    first: &mut Option<ReconcileError>,
    result: Result<T, ReconcileError>,
) -> Result<Option<T>, ReconcileError> {
    match result {
        Ok(done) => Ok(Some(done)),
        Err(error) if error.is_refusal() => {
            first.get_or_insert(error);
            Ok(None)
        }
        Err(error) => Err(error),
    }
}

/// Frees leases whose pods are gone, and address objects that no lease has.
pub(super) struct GarbageCollector {
    context: PoolContext,
    observed: Observed,
    /// Why the API server may not know an address of a pod of this node.
    problem: Option<String>,
}

impl GarbageCollector {
    pub(super) fn new(context: PoolContext) -> Self {
        Self {
            context,
            observed: Observed::default(),
            problem: Some("its leases have not been compared with the API server yet".to_owned()),
        }
    }

    /// Notes that addresses of leases may have no objects: the next look lists the objects.
    pub(super) fn expect_missing_objects(&mut self) {
        self.observed.kept_as = None;
    }

    /// Frees what is proven unused, remembers what is suspect, and creates the missing objects of leases. Until every block of the
    /// file is compared with the API server (`proven`), more leases may need objects: those in a block of another node.
    pub(super) async fn collect(
        &mut self,
        target: &Target,
        addresses: &mut Addresses,
        publisher: &mut Publisher,
        proven: bool,
    ) -> Result<(), ReconcileError> {
        if self
            .observed
            .looked
            .is_some_and(|at| at.elapsed() < self.context.agent.config.daemon.observation_interval / 3)
        {
            return Ok(());
        }
        self.observed.looked = Some(Instant::now());
        let mut refused = None;
        let released = self
            .release_ended(&target.api, target.accepted.as_ref(), addresses)
            .await;
        keep_refusal(&mut refused, released)?;
        self.collect_leases(&target.api).await?;
        let last_write = publisher.last_write().max(addresses.last_write());
        if let Some(me) = self.context.agent.identity() {
            let interval = self.context.agent.config.daemon.observation_interval;
            let must_list = match target.accepted {
                Some(_) => self.observed.must_list(&me, interval, last_write),
                None => self.observed.must_list_lost(&me, interval, last_write),
            };
            if must_list {
                self.observed.collected_as = None;
                let compared = self.compare_addresses(target, publisher, me, proven).await;
                keep_refusal(&mut refused, compared)?;
            }
        }
        if target.accepted.is_none() {
            self.problem = None;
        }
        refused.map_or(Ok(()), Err)
    }

    /// Deletes the objects of this node that no lease has, and creates those that leases lack if the pool exists.
    async fn compare_addresses(
        &mut self,
        target: &Target,
        publisher: &mut Publisher,
        me: NodeIdentity,
        proven: bool,
    ) -> Result<(), ReconcileError> {
        // The leases first: an object that a lease has exists before the lease does.
        let uncovered = publisher.uncovered().await?;
        let there = target.api.addresses_of(&self.context.agent.config.node).await?;
        let compared = self.collect_addresses(&target.api, &me, &there).await?;
        let is_unrenewed = compared.unrenewed.is_some();
        let kept = !compared.changed && !is_unrenewed;
        self.observed.collected_as = (kept && compared.unfreed.is_none()).then(|| me.clone());
        let refusal = compared.unrenewed.or(compared.unfreed);
        let Some(accepted) = &target.accepted else {
            return refusal.map_or(Ok(()), Err);
        };
        let there = self.context.by_ip(&there);
        let conflict = match me {
            NodeIdentity::Registered(_) => {
                publisher
                    .write_missing(target, accepted, uncovered.leased, &there)
                    .await?
            }
            NodeIdentity::Gone(_) => None,
        };
        let mut without_object = uncovered.unattributed.into_iter();
        let unknown = without_object.find(|ip| !there.contains_key(ip));
        match (conflict, unknown) {
            (Some(ip), _) => {
                self.problem = Some(self.describe_conflict(&target.api, accepted, ip).await?);
            }
            (None, Some(ip)) => self.problem = Some(without_lease(ip)),
            // Before the objects of all leases are renewed, the reason stays that they have not been compared.
            (None, None) if proven && !is_unrenewed => self.problem = None,
            (None, None) => {}
        }
        self.observed.listed = Some(Instant::now());
        let complete = conflict.is_none() && unknown.is_none();
        self.observed.kept_as = (kept && proven && complete).then_some(me);
        refusal.map_or(Ok(()), Err)
    }

    /// Why the object of a leased address could not be written.
    async fn describe_conflict(
        &self,
        api: &Requests,
        accepted: &AcceptedPool,
        ip: IpAddr,
    ) -> Result<String, ReconcileError> {
        let name = address_name(&accepted.spec.address_space, ip);
        let there: Option<IpAddress> = api.get(&name).await?;
        let me = self.context.agent.config.node.as_str();
        let Some(there) = there.filter(|there| there.spec.node.node != me) else {
            return Ok(format!("ipaddresses.rdmanet.io {name} has just been changed"));
        };
        let (pod, node) = (there.spec.pod, there.spec.node.node);
        let pod = pod.map_or_else(String::new, |pod| {
            format!("pod {}/{} on ", pod.namespace, pod.name)
        });
        let why = format!(
            "a pod of this node has {ip}, and ipaddresses.rdmanet.io {name} gives it to {pod}node {node}; delete one of the two pods"
        );
        tracing::error!(pool = %self.context.pool, %ip, object = name, node, "another node's object names an address that a pod of this node has");
        Ok(why)
    }

    /// Why the API server may not know an address of a pod of this node; none if it knows all.
    pub(super) fn problem(&self) -> Option<&str> {
        self.problem.as_deref()
    }

    async fn collect_leases(&mut self, api: &Requests) -> Result<(), ReconcileError> {
        let leases = self.context.agent.stores.leases(&self.context.pool).await?;
        let sandboxes = Sandboxes::of(&leases.intact);
        self.observed.leases.begin_round();
        self.observed.lost.begin_round();
        let mut lost = 0;
        for stored in leases.intact {
            let netns = stored.lease.sandbox.netns.clone();
            let key = (stored.lease.owner.clone(), stored.inode, netns);
            let Some(fate) = fate(&stored).await else {
                continue;
            };
            let newer = sandboxes.newer_than(&stored);
            if let (Fate::There, Some(newer)) = (&fate, newer) {
                lost += usize::from(self.is_lost(&key, &stored, newer));
            }
            let Some(evidence) = self.evidence(api, &stored, fate, newer).await else {
                continue;
            };
            let suspected = self.observed.leases.observe(&key, Instant::now());
            if suspected >= self.context.agent.config.daemon.observation_interval {
                self.free(stored, suspected, &evidence).await?;
            }
        }
        self.context
            .agent
            .metrics
            .lost_sandboxes(&self.context.pool, lost);
        Ok(())
    }

    /// Whether the container runtime has lost a sandbox: kubelet starts a sandbox only when the earlier one has ended, and the
    /// namespace of this one exists. The sandbox of an earlier pod is not lost: a pod that was deleted by force may still run, and
    /// its successor has started. Logs both once. Whether a process is in the namespace can be seen on the node only.
    fn is_lost(&mut self, key: &Suspect, stored: &StoredLease, newer: Newer) -> bool {
        let suspected = self.observed.lost.observe(key, Instant::now());
        let interval = self.context.agent.config.daemon.observation_interval;
        let is_lost = newer == Newer::Sandbox;
        let why = match newer {
            Newer::Sandbox => "its pod has a newer sandbox",
            Newer::Pod => "its pod's name has passed to another pod",
        };
        if suspected < interval || !self.observed.lost.is_news(key, why) {
            return is_lost && suspected >= interval;
        }
        let namespace = key.2.as_ref().map(|netns| netns.path.display().to_string());
        let addresses: Vec<IpAddr> = stored.lease.addresses().collect();
        let (pool, lease) = (&self.context.pool, stored.lease.describe());
        if is_lost {
            tracing::warn!(%pool, attachment = %stored.lease.owner, ?addresses, namespace, lease, why, "a sandbox keeps its address and its network namespace; if no process is in the namespace (rdmanet node, on the node), delete it: ip netns delete NAME");
        } else {
            tracing::info!(%pool, attachment = %stored.lease.owner, ?addresses, namespace, lease, why, "an earlier pod of this name still has its sandbox");
        }
        is_lost
    }

    async fn free(&self, stored: StoredLease, after: Duration, evidence: &str) -> Result<(), ReconcileError> {
        let (lease, gone) = (stored.lease.describe(), stored.lease.owner.clone());
        let addresses: Vec<IpAddr> = stored.lease.addresses().collect();
        let freed = self
            .context
            .agent
            .stores
            .with(&self.context.pool, move |store| match store.enter_existing()? {
                Some(locked) => locked.release_unchanged(&stored),
                None => Ok(false),
            })
            .await?;
        if freed {
            tracing::warn!(pool = %self.context.pool, attachment = %gone, ?addresses, seconds = after.as_secs(), lease, evidence, "released a lease without a pod");
            self.context.agent.metrics.freed(&self.context.pool);
        }
        Ok(())
    }

    /// The evidence that the pod of a lease cannot use its address any more; none without proof.
    async fn evidence(
        &self,
        api: &Requests,
        stored: &StoredLease,
        fate: Fate,
        newer: Option<Newer>,
    ) -> Option<String> {
        let namespace = match &fate {
            Fate::Gone => Namespace::Gone,
            Fate::Replaced => Namespace::Replaced,
            Fate::There => return None,
            Fate::Unseen(why) => {
                tracing::debug!(pool = %self.context.pool, attachment = %stored.lease.owner, why, "reading the network namespace of a lease failed");
                return None;
            }
        };
        let pod = if newer == Some(Newer::Sandbox) {
            PodState::HasNewerSandbox
        } else {
            self.pod_state(api, stored).await?
        };
        match conclude(namespace, &pod) {
            Conclusion::Unused(why) => Some(why),
            Conclusion::MaybeUsed(why) => {
                tracing::debug!(pool = %self.context.pool, attachment = %stored.lease.owner, why, "kept a lease whose namespace is gone");
                None
            }
        }
    }

    /// The state of the pod of a lease. None if the round was interrupted before it asked: that is no evidence about the API server.
    async fn pod_state(&self, api: &Requests, stored: &StoredLease) -> Option<PodState> {
        let Some((namespace, name)) = stored
            .lease
            .sandbox
            .pod
            .as_ref()
            .and_then(|pod| pod.split_once('/'))
        else {
            return Some(PodState::Unnamed);
        };
        Some(match api.pod(namespace, name).await {
            Err(ApiError::NotSent { .. }) => return None,
            Err(error) => PodState::Unknown(error.to_string()),
            Ok(None) => PodState::Gone,
            Ok(Some(pod)) => match (&stored.lease.sandbox.uid, pod.uid()) {
                (Some(ours), Some(now)) if !uids(&pod).any(|uid| uid == ours) => PodState::Replaced(now),
                (Some(_), Some(_)) => {
                    final_phase(&pod).map_or(PodState::Exists, |phase| PodState::Ended(phase.to_owned()))
                }
                _ => PodState::Exists,
            },
        })
    }

    /// Deletes the objects of released addresses after their cooldown. A kept address stays reserved for its holder. An address
    /// may be leased again, under the object of the ended lease too. Then only the record of the release ends.
    pub(super) async fn release_ended(
        &mut self,
        api: &Requests,
        accepted: Option<&AcceptedPool>,
        addresses: &mut Addresses,
    ) -> Result<(), ReconcileError> {
        let (released, file) = self
            .context
            .agent
            .stores
            .with(&self.context.pool, |store| Ok((store.releases()?, store.pool()?)))
            .await?;
        if released.is_empty() {
            return Ok(());
        }
        addresses.forget_exhausted();
        let now = KernelClock.since_boot()?;
        // The file may be missing until this round writes it again. A pool that is gone has no cooldown.
        let of_pool = accepted.map(|accepted| accepted.spec.cooldown());
        let cooldown = file
            .as_ref()
            .map(PoolFile::cooldown)
            .or(of_pool)
            .unwrap_or_default();
        // A cooldown may last a day. Until the first one is over, no object can be released.
        let may_end =
            |released: &Released| released.has_rested(now, cooldown) || may_be_kept(accepted, released);
        if !released.iter().any(may_end) {
            return Ok(());
        }
        let there = api.addresses_of(&self.context.agent.config.node).await?;
        let mut refused = None;
        for released in released {
            let object = there
                .iter()
                .find(|address| is_of(self.context.pool.as_str(), address, &released));
            // The address may have passed to another attachment, whose ADD may fail (`addresses::resting`).
            let pool = self.context.pool.as_str();
            let has_passed =
                object.is_none() && there.iter().any(|address| is_for(pool, address, released.ip));
            // The address gets its object before its block is shared (`publish`).
            let gets_object = object.is_none() && is_being_shared(file.as_ref(), released.ip);
            // A kept address goes back to the same pod, so it needs no cooldown.
            let must_rest =
                has_passed || gets_object || object.is_some_and(|address| address.spec.holder.is_none());
            if must_rest && !released.has_rested(now, cooldown) {
                continue;
            }
            if let Some(object) = object {
                let overdue = released.has_rested(now, cooldown + LIMIT * 2);
                let done = self.release_object(api, object, overdue).await;
                if keep_refusal(&mut refused, done)? != Some(true) {
                    continue;
                }
            }
            self.end_record(released).await?;
            // `collect_addresses` left the address out. It may have an object of another attachment.
            self.observed.collected_as = None;
        }
        refused.map_or(Ok(()), Err)
    }

    async fn end_record(&self, released: Released) -> Result<(), ReconcileError> {
        self.context
            .agent
            .stores
            .with(&self.context.pool, move |store| match store.enter_existing()? {
                Some(locked) => locked.end_release(&released),
                None => Ok(()),
            })
            .await?;
        Ok(())
    }

    /// Releases the object of an ended lease, unless its address is leased again. Returns whether the release is complete.
    ///
    /// While an ADD of the attachment waits for its answer, the release waits too: the ADD may lease this address or another one.
    /// `overdue`: the lease ended longer ago than an ADD waits. [`Self::collect_addresses`] then ends the request, after an
    /// observation interval.
    async fn release_object(
        &self,
        api: &Requests,
        object: &IpAddress,
        overdue: bool,
    ) -> Result<bool, ReconcileError> {
        let Ok(ip) = object.spec.address.parse() else {
            return Ok(true);
        };
        let owner = object.spec.attachment.clone();
        match self.context.local_use(ip, owner).await? {
            LocalUse::Requested => Ok(overdue),
            LocalUse::Leased => {
                tracing::debug!(pool = %self.context.pool, %ip, "kept the object of an address that is leased again");
                Ok(true)
            }
            LocalUse::Unused => {
                let done = api.release_address(object).await? != WriteResult::Conflict;
                if done {
                    tracing::debug!(pool = %self.context.pool, %ip, "deleted the object of a released address");
                }
                Ok(done)
            }
        }
    }

    /// Deletes the objects of this node that no lease has: of a failed ADD, or of an earlier boot. Renews the others.
    async fn collect_addresses(
        &mut self,
        api: &Requests,
        me: &NodeIdentity,
        there: &[IpAddress],
    ) -> Result<Compared, ReconcileError> {
        let mut compared = Compared::default();
        self.observed.addresses.begin_round();
        for address in there
            .iter()
            .filter(|address| address.spec.pool == self.context.pool.as_str())
            .filter(|address| address.spec.state != AddressState::Kept)
        {
            let key = format!(
                "{}/{}",
                address.name_any(),
                address.resource_version().unwrap_or_default()
            );
            let Some(ip) = address.spec.address.parse::<IpAddr>().ok() else {
                continue;
            };
            let released = self.context.agent.stores.releases(&self.context.pool).await?;
            let holds = self.context.agent.stores.with(&self.context.pool, move |store| {
                match store.enter_existing()? {
                    Some(locked) => locked.holds(ip),
                    None => Ok(false),
                }
            });
            let is_leased = holds.await?;
            if is_leased {
                let renewed = self.context.rebind(api, me, address).await;
                compared.changed |= keep_refusal(&mut compared.unrenewed, renewed)? == Some(false);
            }
            if is_leased || released.iter().any(|released| released.ip == ip) {
                continue;
            }
            let suspected = self.observed.addresses.observe(&key, Instant::now());
            if suspected >= observation_of(&self.context.agent.config.daemon, me, address) {
                let freed = self.free_address(api, address, ip).await;
                keep_refusal(&mut compared.unfreed, freed)?;
            }
        }
        Ok(compared)
    }

    async fn free_address(
        &self,
        api: &Requests,
        address: &IpAddress,
        ip: IpAddr,
    ) -> Result<(), ReconcileError> {
        let is_unleased = self
            .context
            .end_pending(ip, address.spec.attachment.clone())
            .await?;
        if is_unleased && api.release_address(address).await? != WriteResult::Conflict {
            let evidence = "two observations found no lease of the address on this node";
            tracing::warn!(pool = %self.context.pool, %ip, evidence, attachment = ?address.spec.attachment, "released an address object without a lease");
            self.context.agent.metrics.freed(&self.context.pool);
        }
        Ok(())
    }
}

/// How long no lease must have `address` before it is freed. An object of an earlier registration of this node may be that of
/// another machine, which goes on: it waits for the quarantine, as a block does.
fn observation_of(daemon: &DaemonFlags, me: &NodeIdentity, address: &IpAddress) -> Duration {
    if matches!(me, NodeIdentity::Registered(me) if *me == owner(&address.spec.node)) {
        daemon.observation_interval
    } else {
        let quarantine = daemon.quarantines.of(address.spec.quarantine_seconds);
        quarantine.unused.max(daemon.observation_interval)
    }
}

#[cfg(test)]
mod tests;
