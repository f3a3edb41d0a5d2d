// SPDX-License-Identifier: Apache-2.0
//! Addresses that are objects of their own: each takes one CREATE, and the API server accepts the first one for a name.
//!
//! Invariant: either such an address lies in no node's active block, or the node has noted, before the address was allocated,
//! that it must not allocate the address itself (`observedGeneration`).

use super::claim::{ClaimTarget, Claimed};
use super::{PoolReconciler, Target};
use crate::agent::ReconcileError;
use api::accepted_pool::AcceptedPool;
use api::block_layout::{BlockCidr, address_name};
use api::convert::{node_ref, now, renewed};
use api::requests::{WriteResult, create, get, release_address, replace};
use api::{AddressState, Attachment, BlockState, Holder, IpAddress, IpAddressSpec, IpBlock, PodRef};
use block::owner::NodeIdentity;
use common::cni::{Code, Error};
use ipam::agent::{AskedBy, Pod, Reply, Request};
use ipam::range::{Family, bits};
use std::net::IpAddr;

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
}

impl PoolReconciler {
    pub(super) async fn serve_allocate(
        &mut self,
        target: &Target,
        accepted: &AcceptedPool,
        request: &Request,
    ) -> Result<Reply, Error> {
        self.suspects.note_write();
        let mut given = Vec::new();
        let done = self.allocate_all(target, accepted, request, &mut given).await;
        if !matches!(done, Ok(Reply::Addresses { .. })) {
            // All or nothing. An object that cannot be deleted now is found later, since no lease has it.
            for address in &given {
                let _ = release_address(&self.agent.cluster.addresses, address).await;
            }
        }
        done
    }

    async fn allocate_all(
        &mut self,
        target: &Target,
        accepted: &AcceptedPool,
        request: &Request,
        given: &mut Vec<IpAddress>,
    ) -> Result<Reply, Error> {
        let Some(asked) = &request.attachment else {
            return Err(Error::new(
                Code::INTERNAL,
                "a question for an address names no attachment",
            ));
        };
        let mut claimant = Claimant {
            asked,
            pod: request.pod.clone(),
            holder: None,
        };
        for ip in &request.ips {
            if let Some(reply) = self.by_block(target, accepted, *ip).await? {
                return Ok(reply);
            }
            given.push(self.bind(accepted, *ip, &claimant).await?);
        }
        if !request.families.is_empty() {
            self.identify(accepted, &mut claimant).await?;
        }
        for family in &request.families {
            if claimant.holder.is_some() {
                given.push(self.bind_reserved(accepted, *family, &claimant).await?);
            } else if accepted.has_blocks() {
                let address = self.allocate_shared(target, accepted, *family, &claimant).await?;
                let Some(address) = address else {
                    return Ok(Reply::Local);
                };
                given.push(address);
            } else {
                let all = accepted.ranges.usable(*family);
                let address = self.bind_any(accepted, *family, &all, &claimant).await?;
                given.push(address.ok_or_else(|| self.all_taken(&all))?);
            }
        }
        let addresses = given
            .iter()
            .filter_map(|address| address.spec.address.parse().ok())
            .collect();
        tracing::info!(pool = %self.pool, attachment = %asked.owner, ?addresses, "allocated addresses through the API server");
        Ok(Reply::Addresses { addresses })
    }

    /// Whether `ip`, which is requested by name, comes from a block. Claims that block if it has no owner.
    async fn by_block(
        &mut self,
        target: &Target,
        accepted: &AcceptedPool,
        ip: IpAddr,
    ) -> Result<Option<Reply>, Error> {
        let family = Family::of(ip);
        self.require_inside(accepted, ip)?;
        let free = |block: &IpBlock| block.spec.state == BlockState::Shared;
        if !accepted.has_blocks() || accepted.ranges.reserved(family).contains(bits(ip)) {
            return Ok(None);
        }
        let Some((layout, cidr)) = accepted
            .layout(family)
            .and_then(|layout| Some((layout, BlockCidr::containing(ip, layout.shift())?)))
        else {
            return Ok(None);
        };
        let Some(NodeIdentity::Registered(me)) = self.agent.identity() else {
            return Ok(None);
        };
        let name = cidr.name(&accepted.spec.address_space);
        for _ in 0..2 {
            let block: Option<IpBlock> = get(&self.agent.cluster.blocks, &name)
                .await
                .map_err(|e| self.unanswered(format_args!("who has the block of {ip}"), &e.into()))?;
            match block {
                Some(block) if block.spec.pool != self.pool.as_str() => return Err(self.foreign(ip, &block)),
                Some(block) if free(&block) => return Ok(None),
                Some(block) if block.spec.owner.node == *me.node => return Ok(Some(Reply::Local)),
                Some(block) => return Err(self.foreign(ip, &block)),
                None => {
                    let claimed = self
                        .claim_cell(
                            ClaimTarget {
                                target,
                                accepted,
                                layout,
                                me: &me,
                            },
                            cidr,
                        )
                        .await;
                    match claimed
                        .map_err(|e| self.unanswered(format_args!("who has the block of {ip}"), &e))?
                    {
                        Claimed::Yes => return Ok(Some(Reply::Local)),
                        Claimed::Unlisted => {
                            return Err(Error::new(
                                Code::TRY_AGAIN,
                                format!("pool {} has just been changed; try again", self.pool),
                            ));
                        }
                        Claimed::Limit => return Err(self.at_limit(accepted, ip)),
                        Claimed::Full => {}
                    }
                }
            }
        }
        Err(Error::new(
            Code::TRY_AGAIN,
            format!("block {name} of {ip} changes hands; try again"),
        ))
    }

    /// The error if the block of `ip` is free and this node may not claim another one.
    fn at_limit(&self, accepted: &AcceptedPool, ip: IpAddr) -> Error {
        Error::new(
            Code::EXHAUSTED,
            format!(
                "pool {}: {ip} lies in a block that this node would have to claim, and it has as many as spec.maxBlocksPerNode allows ({}); list {ip} in spec.reserved, or raise maxBlocksPerNode",
                self.pool, accepted.spec.max_blocks_per_node
            ),
        )
    }

    fn require_inside(&self, accepted: &AcceptedPool, ip: IpAddr) -> Result<(), Error> {
        if accepted.ranges.range_of(ip).is_none() {
            return Err(Error::new(
                Code::ADDRESS_OUTSIDE,
                format!(
                    "{ip} lies outside every range of pool {}: {}",
                    self.pool,
                    accepted.ranges.describe()
                ),
            ));
        }
        Ok(())
    }

    fn foreign(&self, ip: IpAddr, block: &IpBlock) -> Error {
        Error::new(
            Code::ADDRESS_IN_USE,
            format!(
                "{ip} lies in {}, which node {} gives to its own pods (pool {}); list it in spec.reserved of pool {}, so that nodes leave it to who asks for it",
                block.spec.cidr, block.spec.owner.node, block.spec.pool, self.pool
            ),
        )
    }

    /// Creates the object that binds `ip` to the attachment.
    pub(super) async fn bind(
        &mut self,
        accepted: &AcceptedPool,
        ip: IpAddr,
        claimant: &Claimant<'_>,
    ) -> Result<IpAddress, Error> {
        let wanted = self.object(accepted, ip, claimant)?;
        let name = wanted.metadata.name.clone().unwrap_or_default();
        let addresses = self.agent.cluster.addresses.clone();
        let made = create(&addresses, &wanted).await;
        if made.is_err() {
            // The object may exist now or later, so the last list is no longer valid.
            self.shared = None;
        }
        let address = match made.map_err(|e| self.address_unknown(ip, &e.into()))? {
            WriteResult::Applied(address) => address,
            WriteResult::Conflict => {
                let there = get(&addresses, &name).await;
                let there = there.map_err(|e| self.address_unknown(ip, &e.into()))?;
                match there {
                    // Our own object: the response to its CREATE was lost.
                    Some(there)
                        if there.spec.attachment == wanted.spec.attachment
                            && there.spec.node == wanted.spec.node =>
                    {
                        self.renewed(ip, there).await?
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
        self.use_if_noted(accepted, ip, address).await
    }

    pub(super) fn address_unknown(&self, ip: IpAddr, failure: &ReconcileError) -> Error {
        self.unanswered(format_args!("who has {ip}"), failure)
    }

    /// Writes a new version of a pre-existing object, so that a DELETE in flight misses its precondition.
    async fn renewed(&self, ip: IpAddr, address: IpAddress) -> Result<IpAddress, Error> {
        let swapped = replace(&self.agent.cluster.addresses, &renewed(address)).await;
        match swapped.map_err(|e| self.address_unknown(ip, &e.into()))? {
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
        accepted: &AcceptedPool,
        ip: IpAddr,
        address: IpAddress,
    ) -> Result<IpAddress, Error> {
        let refusal = match self.noted(accepted, ip).await {
            Ok(None) => return Ok(address),
            Ok(Some(why)) => Error::new(Code::TRY_AGAIN, why),
            Err(e) => self.address_unknown(ip, &e),
        };
        let _ = release_address(&self.agent.cluster.addresses, &address).await;
        Err(refusal)
    }

    /// The reason why `ip` may not be allocated yet, or none. It may be allocated if its block is shared, if the block's node has
    /// noted that the address is not its own to allocate, or if the block has no owner: a node that claims the block later finds
    /// the object.
    async fn noted(&self, accepted: &AcceptedPool, ip: IpAddr) -> Result<Option<String>, ReconcileError> {
        let Some(cidr) = accepted.block_of(ip) else {
            return Ok(None);
        };
        let name = cidr.name(&accepted.spec.address_space);
        let block: Option<IpBlock> = get(&self.agent.cluster.blocks, &name).await?;
        let by_name = !accepted.has_blocks() || accepted.ranges.reserved(Family::of(ip)).contains(bits(ip));
        let Some(block) = block else {
            let why = format!("block {name} of {ip} is not shared any more; try again");
            return Ok((!by_name).then_some(why));
        };
        let ours = block.spec.pool == self.pool.as_str();
        if ours && block.spec.state == BlockState::Shared {
            return Ok(None);
        }
        let (cidr, node) = (&block.spec.cidr, &block.spec.owner.node);
        if !by_name {
            return Ok(Some(format!(
                "{ip} lies in {cidr}, which node {node} gives to its own pods; try again"
            )));
        }
        let noted = block
            .status
            .as_ref()
            .and_then(|status| status.observed_generation)
            .unwrap_or_default();
        if ours && noted == accepted.generation {
            return Ok(None);
        }
        if ours && noted > accepted.generation {
            let why = "has just been changed, and this node has not heard of it; try again";
            return Ok(Some(format!("pool {} {why}", self.pool)));
        }
        Ok(Some(format!(
            "{ip} lies in {cidr} of node {node}, whose agent has not noted yet that the address is reserved (generation {} of pool {}, it has {noted}); try again, and look after that agent if this stays",
            accepted.generation, self.pool
        )))
    }

    /// The object that binds `ip` to the claimant.
    pub(super) fn object(
        &self,
        accepted: &AcceptedPool,
        ip: IpAddr,
        claimant: &Claimant<'_>,
    ) -> Result<IpAddress, Error> {
        let Some(NodeIdentity::Registered(me)) = self.agent.identity() else {
            return Err(Error::new(
                Code::POOL_NOT_HERE,
                format!("the cluster has no Node {}", self.agent.config.node),
            ));
        };
        let block = accepted.block_of(ip).map(|cidr| cidr.network().to_string());
        let spec = IpAddressSpec {
            pool: self.pool.to_string(),
            address: ip.to_string(),
            block: block.unwrap_or_default(),
            node: node_ref(&me),
            state: AddressState::Bound,
            attachment: Some(claimant.attachment()),
            pod: claimant.pod_ref(),
            holder: claimant.holder.clone(),
            since: Some(now()),
        };
        Ok(IpAddress::new(
            &address_name(&accepted.spec.address_space, ip),
            spec,
        ))
    }
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
