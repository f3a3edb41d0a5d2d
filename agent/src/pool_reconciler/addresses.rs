// SPDX-License-Identifier: Apache-2.0
//! Addresses that are objects of their own: each takes one CREATE, and the API server accepts the first one for a name.
//!
//! Invariant: either such an address lies in no node's active block, or the node has noted, before the address was allocated,
//! that it must not allocate the address itself (`observedGeneration`).

mod pick;
mod resting;
mod shared;
mod view;

use super::context::{PoolContext, RequestScope, address_space};
use api::accepted_pool::AcceptedPool;
use api::block_layout::address_name;
use api::convert::{node_ref, now, renewed};
use api::listing::admits_address;
use api::requests::{ReconcileError, Requests, WriteResult};
use api::{AddressState, Attachment, BlockState, Holder, IpAddress, IpAddressSpec, IpBlock, PodRef};
use block::owner::NodeIdentity;
use common::cni::{Code, Error};
use ipam::agent::{AskedBy, Pod};
use ipam::range::{Family, bits};
use std::collections::HashMap;
use std::net::IpAddr;
use std::time::Instant;

/// The attachment that an address is for.
pub(super) struct Claimant<'a> {
    /// The attachment.
    pub(super) asked: &'a AskedBy,
    /// Its pod, if that is known.
    pub(super) pod: Option<Pod>,
    /// The holder that keeps the address, if any.
    pub(super) holder: Option<Holder>,
}

impl Claimant<'_> {
    /// The attachment as the objects store it.
    pub(super) fn attachment(&self) -> Attachment {
        Attachment {
            container_id: self.asked.owner.container_id.to_string(),
            ifname: self.asked.owner.ifname.to_string(),
            network: self.asked.network.clone(),
        }
    }

    /// The pod as the objects store it.
    pub(super) fn pod_ref(&self) -> Option<PodRef> {
        self.pod.as_ref().map(|pod| PodRef {
            namespace: pod.namespace.clone(),
            name: pod.name.clone(),
            uid: pod.uid.clone(),
        })
    }

    /// Binds an existing object to the attachment.
    pub(super) fn take(&self, spec: &mut IpAddressSpec) {
        spec.attachment = Some(self.attachment());
        spec.pod = self.pod_ref();
        spec.holder.clone_from(&self.holder);
        spec.since = Some(now());
    }

    /// The object that binds `ip` to the attachment.
    pub(super) fn new_address(
        &self,
        context: &PoolContext,
        accepted: &AcceptedPool,
        ip: IpAddr,
    ) -> Result<IpAddress, Error> {
        let Some(NodeIdentity::Registered(me)) = context.agent.identity() else {
            return Err(Error::new(
                Code::POOL_NOT_HERE,
                format!("the cluster has no Node {}", context.agent.config.node),
            ));
        };
        let block = accepted.block_of(ip).map(|cidr| cidr.network().to_string());
        let spec = IpAddressSpec {
            pool: context.pool.to_string(),
            address: ip.to_string(),
            block: block.unwrap_or_default(),
            node: node_ref(&me),
            state: AddressState::Bound,
            attachment: Some(self.attachment()),
            pod: self.pod_ref(),
            holder: self.holder.clone(),
            since: Some(now()),
            quarantine_seconds: None,
        };
        Ok(IpAddress::new(
            &address_name(&accepted.spec.address_space, ip),
            spec,
        ))
    }
}

/// Allocates addresses that are objects of their own.
pub(super) struct Addresses {
    context: PoolContext,
    /// Searches that found every address taken.
    exhausted: pick::Exhausted,
    /// By family: the tries in a row that found a taken address. A search that finds all addresses taken ends the row.
    misses: HashMap<Family, u128>,
    /// The number of searches. Each begins at a place of its own.
    attempts: u64,
    /// The result of the last list of shared blocks.
    shared: Option<view::View>,
    last_write: Option<Instant>,
}

impl Addresses {
    pub(super) fn new(context: PoolContext) -> Self {
        Self {
            context,
            exhausted: pick::Exhausted::default(),
            misses: HashMap::new(),
            attempts: 0,
            shared: None,
            last_write: None,
        }
    }

    /// Notes that this agent is about to write an address object. The plugin that asked for the address may die.
    pub(super) fn note_write(&mut self) {
        self.last_write = Some(Instant::now());
    }

    /// When this process last wrote an address object here.
    pub(super) fn last_write(&self) -> Option<Instant> {
        self.last_write
    }

    /// Forgets searches that found every address taken, since this node has released addresses.
    pub(super) fn forget_exhausted(&mut self) {
        self.exhausted.clear();
    }

    /// Creates the object that binds `ip` to the attachment.
    pub(super) async fn bind(
        &mut self,
        scope: RequestScope<'_>,
        ip: IpAddr,
        claimant: &Claimant<'_>,
    ) -> Result<IpAddress, Error> {
        let wanted = claimant.new_address(&self.context, scope.accepted, ip)?;
        let name = wanted.metadata.name.clone().unwrap_or_default();
        let api = &scope.target.api;
        let made = api.create(&wanted).await;
        if made.is_err() {
            // The object may exist now or later, so the last list is no longer valid.
            self.shared = None;
        }
        let address = match made.map_err(|e| self.context.address_unknown(ip, &e.into()))? {
            WriteResult::Applied(address) => address,
            WriteResult::Conflict => {
                let there = api.get::<IpAddress>(&name).await;
                let there = there.map_err(|e| self.context.address_unknown(ip, &e.into()))?;
                match there {
                    // Our own object: the response to its CREATE was lost.
                    Some(there)
                        if there.spec.pool == wanted.spec.pool
                            && there.spec.attachment == wanted.spec.attachment
                            && there.spec.node == wanted.spec.node =>
                    {
                        self.renewed(api, ip, there).await?
                    }
                    Some(there) => {
                        if let Some(view) = &mut self.shared {
                            view.take(ip);
                        }
                        return Err(in_use(ip, &there));
                    }
                    None => {
                        return Err(Error::new(
                            Code::TRY_AGAIN,
                            format!("{ip} has just been released; try again"),
                        ));
                    }
                }
            }
        };
        if let Some(view) = &mut self.shared {
            view.made(&address);
        }
        // Also an object with a holder is deleted: no pod has had the address yet.
        if let Err(error) = self.require_noted(scope, ip).await {
            let _ = api.delete(&address).await;
            return Err(error);
        }
        Ok(address)
    }

    /// Writes a new version of a pre-existing object, so that a DELETE in flight misses its precondition.
    async fn renewed(&self, api: &Requests, ip: IpAddr, address: IpAddress) -> Result<IpAddress, Error> {
        let swapped = api.replace(&renewed(address)).await;
        match swapped.map_err(|e| self.context.address_unknown(ip, &e.into()))? {
            WriteResult::Applied(address) => Ok(address),
            WriteResult::Conflict => Err(Error::new(
                Code::TRY_AGAIN,
                format!("{ip} has just been changed; try again"),
            )),
        }
    }

    /// Returns `address`, which was just bound, if no node can allocate it by itself. Otherwise releases it.
    pub(super) async fn use_if_noted(
        &self,
        scope: RequestScope<'_>,
        ip: IpAddr,
        address: IpAddress,
    ) -> Result<IpAddress, Error> {
        let noted = self.require_noted(scope, ip).await;
        if noted.is_err() {
            let _ = scope.target.api.release_address(&address).await;
        }
        noted.map(|()| address)
    }

    /// Fails if `ip` may not be allocated yet.
    async fn require_noted(&self, scope: RequestScope<'_>, ip: IpAddr) -> Result<(), Error> {
        match self.noted(scope, ip).await {
            Ok(None) => Ok(()),
            Ok(Some(why)) => Err(Error::new(Code::TRY_AGAIN, why)),
            Err(e) => Err(self.context.address_unknown(ip, &e)),
        }
    }

    /// The reason why `ip` may not be allocated yet, or none. It may be allocated if its block is shared, if the block's node has
    /// noted that the address is not its own to allocate, or if the block has no owner and the address space lists the address: a
    /// node that claims the block later finds the object.
    async fn noted(&self, scope: RequestScope<'_>, ip: IpAddr) -> Result<Option<String>, ReconcileError> {
        let accepted = scope.accepted;
        let Some(cidr) = accepted.block_of(ip) else {
            return Ok(None);
        };
        let name = cidr.name(&accepted.spec.address_space);
        let block: Option<IpBlock> = scope.target.api.get(&name).await?;
        let by_name = !accepted.has_blocks() || accepted.ranges.reserved(Family::of(ip)).contains(bits(ip));
        let Some(block) = block else {
            if by_name {
                return self.unlisted(scope, ip).await;
            }
            return Ok(Some(format!(
                "block {name} of {ip} is not shared any more; try again"
            )));
        };
        let ours = block.spec.pool == self.context.pool.as_str();
        if ours && block.spec.state == BlockState::Shared {
            return Ok(None);
        }
        let (cidr, node) = (&block.spec.cidr, &block.spec.owner.node);
        if !by_name {
            return Ok(Some(format!(
                "{ip} lies in {cidr}, which node {node} gives to its own pods; try again"
            )));
        }
        if !ours {
            let other = &block.spec.pool;
            return Ok(Some(format!(
                "{ip} of pool {} lies in block {cidr} of pool {other}, whose pods alone get its addresses until the block is deleted (last owner: node {node}); request an address that pool {other} does not have, or remove the common addresses from the ranges of pool {other}",
                self.context.pool
            )));
        }
        let noted = block
            .status
            .as_ref()
            .and_then(|status| status.observed_generation)
            .unwrap_or_default();
        if noted == accepted.generation {
            return Ok(None);
        }
        if noted > accepted.generation {
            let why = "has changed, and this node has not received the change yet; try again";
            return Ok(Some(format!("pool {} {why}", self.context.pool)));
        }
        Ok(Some(format!(
            "{ip} lies in {cidr} of node {node}, whose agent has not noted yet that the address is reserved (generation {} of pool {}, it has {noted}); try again; if the error repeats, check that agent",
            accepted.generation, self.context.pool
        )))
    }

    /// The reason why `ip`, whose object was just written, may not be allocated: the address space does not list it for this pool
    /// any more. Another pool may cut it into other blocks, and a node that claims one does not find this object. The controller
    /// looks for objects before it lists that pool, and this node reads the list after the write, so one of the two sees the other.
    async fn unlisted(&self, scope: RequestScope<'_>, ip: IpAddr) -> Result<Option<String>, ReconcileError> {
        let space = address_space(&scope.target.api, scope.accepted).await?;
        let is_listed = space.is_some_and(|space| admits_address(&space, scope.accepted, ip));
        let why = format!(
            "pool {} has just been changed and no longer contains {ip}; try again",
            self.context.pool
        );
        Ok((!is_listed).then_some(why))
    }
}

/// Whether `address` is the object of `ip` in `pool`.
pub(super) fn is_for(pool: &str, address: &IpAddress, ip: IpAddr) -> bool {
    address.spec.pool == pool && address.spec.address.parse() == Ok(ip)
}

/// Whether an object's attachment is `owner`.
pub(super) fn is_attachment(asked: &Attachment, owner: &common::cni::Attachment) -> bool {
    asked.container_id == owner.container_id.as_str() && asked.ifname == owner.ifname.as_str()
}

fn in_use(ip: IpAddr, address: &IpAddress) -> Error {
    let name = address.metadata.name.as_deref().unwrap_or_default();
    if let (AddressState::Kept, Some(holder)) = (address.spec.state, &address.spec.holder) {
        return Error::new(
            Code::ADDRESS_IN_USE,
            format!(
                "{ip} is kept for pod {}/{} of StatefulSet {} (ipaddresses.rdmanet.io {name})",
                holder.namespace, holder.pod, holder.stateful_set
            ),
        );
    }
    let pod = address
        .spec
        .pod
        .as_ref()
        .map(|pod| format!("pod {}/{} on ", pod.namespace, pod.name))
        .unwrap_or_default();
    Error::new(
        Code::ADDRESS_IN_USE,
        format!(
            "{ip} is in use by {pod}node {} (ipaddresses.rdmanet.io {name})",
            address.spec.node.node
        ),
    )
}

#[cfg(test)]
mod tests;
