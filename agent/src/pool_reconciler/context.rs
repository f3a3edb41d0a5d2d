// SPDX-License-Identifier: Apache-2.0
//! What every component of a [`PoolReconciler`](super::PoolReconciler) works with: the agent, the pool, and the current state of both.
//!
//! Invariant: a [`PoolContext`] has no state of its own. Two calls differ only if files, watches or the API server have changed.

use crate::agent::Agent;
use crate::node::LocalPool;
use api::accepted_pool::AcceptedPool;
use api::block_layout::{BlockCidr, BlockLayout};
use api::convert::{cidr_of, ip_in};
use api::listing::admits;
use api::requests::{ApiError, ReconcileError, Requests, WriteResult};
use api::{AddressSpace, AddressSpaceSpec, IpAddress, IpBlock, IpPool, IpPoolSpec};
use block::Usage;
use block::owner::NodeIdentity;
use common::cni::{Attachment, Code, ContainerId, Error, IfName};
use ipam::pool::{Counters, PoolFile, PoolName};
use kube::core::{Selector, SelectorExt};
use kube::runtime::reflector::ObjectRef;
use std::collections::BTreeMap;
use std::fmt::Display;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Instant;

/// The agent and the pool. Each component has a clone.
#[derive(Clone)]
pub(super) struct PoolContext {
    pub(super) agent: Arc<Agent>,
    pub(super) pool: PoolName,
}

/// The desired state of the pool on this node, and the requests that lead there.
pub(super) struct Target {
    /// Requests of the round or the plugin request that this target was read for.
    pub(super) api: Requests,
    pub(super) accepted: Option<AcceptedPool>,
    /// New addresses may be allocated.
    pub(super) open: bool,
    pub(super) counters: Counters,
    pub(super) blocks: i64,
    /// The blocks that the controller asks to be shared.
    pub(super) sharing: Vec<String>,
    /// Some node finds no free address, and other nodes are about to be asked to share.
    pub(super) has_shortage: bool,
}

/// The pending request. "Exhausted" may only be answered from data that was read after it arrived.
#[derive(Clone, Copy, Debug)]
pub(super) struct PendingRequest {
    pub(super) since: Instant,
    /// The version of the pool that was known when the request arrived.
    pub(super) pool_version: u64,
}

/// A plugin request that is being answered, with the state of the pool that was read for it.
#[derive(Clone, Copy)]
pub(super) struct RequestScope<'a> {
    pub(super) target: &'a Target,
    pub(super) accepted: &'a AcceptedPool,
    /// None for a STATUS request, which may be answered from older data.
    pub(super) pending: Option<PendingRequest>,
}

impl PoolContext {
    /// The pool as the watch last reported it.
    pub(super) fn pool_object(&self) -> Option<Arc<IpPool>> {
        self.agent.pools.get(&ObjectRef::new(self.pool.as_str()))
    }

    pub(super) fn target(&self, api: &Requests) -> Result<Target, ReconcileError> {
        let Some(pool) = self.pool_object() else {
            return Ok(Target {
                api: api.clone(),
                accepted: None,
                open: false,
                counters: Counters::default(),
                blocks: 0,
                sharing: Vec::new(),
                has_shortage: false,
            });
        };
        let status = pool.status.clone().unwrap_or_default();
        let (counters, has_shortage) = (status.counters.clone().unwrap_or_default(), status.has_shortage());
        let number = |n: i64| u64::try_from(n).unwrap_or_default();
        let accepted = AcceptedPool::of(&pool)?;
        let selected = accepted
            .as_ref()
            .is_some_and(|accepted| self.selects_node(&pool, accepted));
        let registered = matches!(self.agent.identity(), Some(NodeIdentity::Registered(_)));
        Ok(Target {
            api: api.clone(),
            open: selected && registered && pool.metadata.deletion_timestamp.is_none(),
            accepted,
            counters: Counters {
                size: number(counters.size),
                used: number(counters.used),
                free: number(counters.unclaimed),
            },
            blocks: counters.blocks,
            has_shortage,
            sharing: status.sharing,
        })
    }

    /// Whether the pool is for this node: by the accepted spec, and by a spec that the controller has not judged yet. So a person
    /// can deselect nodes before a controller runs, which a restore of etcd needs (docs/operate.md).
    pub(super) fn selects_node(&self, pool: &IpPool, accepted: &AcceptedPool) -> bool {
        let labels = self.agent.labels();
        let matches = |spec: &IpPoolSpec| {
            let selector = spec.node_selector.clone().map(Selector::try_from);
            selector.is_none_or(|selector| selector.is_ok_and(|selector| selector.matches(&labels)))
        };
        matches(&accepted.spec) && pool.unjudged().is_none_or(matches)
    }

    /// Reads the file. None if this node has no part of the pool.
    pub(super) async fn file(&self) -> Result<Option<PoolFile>, ReconcileError> {
        Ok(self.agent.stores.holdings(&self.pool, Vec::new()).await?.file)
    }

    pub(super) async fn holdings(
        &self,
        blocks: &BTreeMap<String, IpBlock>,
    ) -> Result<(LocalPool, BTreeMap<String, Usage>), ReconcileError> {
        let file = self.file().await?;
        let mut by_name: BTreeMap<String, BlockCidr> = blocks
            .iter()
            .filter_map(|(name, block)| Some((name.clone(), cidr_of(block)?)))
            .collect();
        for block in file.iter().flat_map(|file| &file.blocks) {
            if let Some(cidr) = BlockCidr::of(block.cidr) {
                by_name.insert(block.name.clone(), cidr);
            }
        }
        let cidrs = by_name.values().map(|cidr| cidr.network()).collect();
        let holdings = self.agent.stores.holdings(&self.pool, cidrs).await?;
        let usage = by_name.into_keys().zip(holdings.usage.iter().copied()).collect();
        Ok((holdings, usage))
    }

    /// The number of addresses of a block that leases of this node hold.
    pub(super) async fn usage_of(&self, cidr: BlockCidr) -> Result<u64, ReconcileError> {
        let holdings = self
            .agent
            .stores
            .holdings(&self.pool, vec![cidr.network()])
            .await?;
        Ok(holdings.usage.first().map_or(0, |used| used.leased))
    }

    /// The address objects of this node and pool.
    pub(super) async fn own_addresses(
        &self,
        api: &Requests,
    ) -> Result<BTreeMap<IpAddr, IpAddress>, ReconcileError> {
        let all = api.addresses_of(&self.agent.config.node).await?;
        Ok(self.by_ip(&all))
    }

    /// Those of `all` that belong to this pool.
    pub(super) fn by_ip(&self, all: &[IpAddress]) -> BTreeMap<IpAddr, IpAddress> {
        all.iter()
            .filter(|address| address.spec.pool == self.pool.as_str())
            .filter_map(|address| Some((address.spec.address.parse().ok()?, address.clone())))
            .collect()
    }

    /// The addresses of a block that have objects, whichever pool made them.
    pub(super) async fn objects_in(
        &self,
        api: &Requests,
        space: &str,
        cidr: BlockCidr,
    ) -> Result<Vec<IpAddr>, ReconcileError> {
        let fields = format!("spec.block={}", cidr.network());
        let there: Vec<IpAddress> = api.list(&fields).await?;
        Ok(there.iter().filter_map(|address| ip_in(address, space)).collect())
    }

    /// Writes this node's entry in the pool's requests. The controller answers it.
    pub(super) async fn request(
        &self,
        api: &Requests,
        what: serde_json::Value,
    ) -> Result<WriteResult<IpPool>, ApiError> {
        let node = self.agent.config.node.as_str();
        let requests = serde_json::json!({ "requests": { node: what } });
        api.patch_status(self.pool.as_str(), requests).await
    }

    /// How this node uses `ip`, whose object names `owner`.
    pub(super) async fn local_use(
        &self,
        ip: IpAddr,
        owner: Option<api::Attachment>,
    ) -> Result<LocalUse, ReconcileError> {
        let owner = owner.and_then(attachment);
        let found = self.agent.stores.with(&self.pool, move |store| {
            let Some(locked) = store.enter_existing()? else {
                return Ok(LocalUse::Unused);
            };
            if locked.holds(ip)? {
                return Ok(LocalUse::Leased);
            }
            let asks = owner.is_some_and(|owner| locked.is_asking(&owner));
            Ok(if asks {
                LocalUse::Requested
            } else {
                LocalUse::Unused
            })
        });
        Ok(found.await?)
    }

    /// Returns whether no lease of this node has `ip`. If so, an ADD of `owner` that still waits for its answer makes no lease
    /// from here on.
    pub(super) async fn end_pending(
        &self,
        ip: IpAddr,
        owner: Option<api::Attachment>,
    ) -> Result<bool, ReconcileError> {
        let owner = owner.and_then(attachment);
        let is_unleased = self.agent.stores.with(&self.pool, move |store| {
            let Some(locked) = store.enter_existing()? else {
                return Ok(true);
            };
            if locked.holds(ip)? {
                return Ok(false);
            }
            owner
                .map_or(Ok(()), |owner| locked.end_asking(&owner))
                .map(|()| true)
        });
        Ok(is_unleased.await?)
    }

    /// The error for the runtime if no block can be claimed.
    pub(super) fn failed(&self, failure: &ReconcileError) -> Error {
        let what = "no address is free in this node's blocks, and no block can be claimed";
        self.failed_to(what, failure)
    }

    /// The error for the runtime if the API server does not answer and nothing else knows `what`.
    pub(super) fn unanswered(&self, what: impl Display, failure: &ReconcileError) -> Error {
        self.failed_to(format_args!("only the API server knows {what}"), failure)
    }

    pub(super) fn address_unknown(&self, ip: IpAddr, failure: &ReconcileError) -> Error {
        self.unanswered(format_args!("which pod has {ip}"), failure)
    }

    fn failed_to(&self, what: impl Display, failure: &ReconcileError) -> Error {
        match failure {
            ReconcileError::Local(error) => error.clone(),
            ReconcileError::Api(error) => Error::new(
                Code::API_UNREACHABLE,
                format!("pool {}: {what}: {error}", self.pool),
            ),
        }
    }
}

/// How a node uses an address that is an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum LocalUse {
    /// A lease has it.
    Leased,
    /// An ADD of the object's attachment waits for its answer, and may lease it.
    Requested,
    /// Neither.
    Unused,
}

/// The attachment that an object names, as the store names it.
fn attachment(named: api::Attachment) -> Option<Attachment> {
    Some(Attachment {
        container_id: ContainerId::try_from(named.container_id).ok()?,
        ifname: IfName::try_from(named.ifname).ok()?,
    })
}

/// Whether the address space lists the pool with this block, read after the claim. A process that removes a pool from the
/// list looks for blocks afterwards, so at least one of the two sees the other.
pub(super) async fn is_listed(
    api: &Requests,
    accepted: &AcceptedPool,
    (layout, cidr): (&BlockLayout, BlockCidr),
) -> Result<bool, ReconcileError> {
    let space = address_space(api, accepted).await?;
    Ok(space.is_some_and(|space| admits(&space, accepted, layout, cidr)))
}

/// Reads the address space of the pool.
pub(super) async fn address_space(
    api: &Requests,
    accepted: &AcceptedPool,
) -> Result<Option<AddressSpaceSpec>, ReconcileError> {
    let space: Option<AddressSpace> = api.get(&accepted.spec.address_space).await?;
    Ok(space.map(|space| space.spec))
}
