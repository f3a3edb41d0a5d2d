// SPDX-License-Identifier: Apache-2.0
//! Answers requests for addresses: from this node's blocks, from a new block, or as objects of their own.

use super::PoolReconciler;
use super::addresses::Claimant;
use super::allocatable::free_local;
use super::claim::{ClaimTarget, Claimed, FULL_PAUSE};
use super::context::{PendingRequest, RequestScope};
use super::sticky::StickyAddresses;
use api::accepted_pool::AcceptedPool;
use api::block_layout::BlockCidr;
use api::convert::owner;
use api::{BlockState, IpAddress, IpBlock};
use block::owner::NodeIdentity;
use common::cni::{Code, Error};
use ipam::agent::{Reply, Request};
use ipam::pool::PoolRanges;
use ipam::range::{Family, bits};
use std::net::IpAddr;
use std::path::Path;
use std::time::Duration;

/// How long a pool that was found full is not listed again, even for plugins that can wait for other nodes.
const FULL_LIST_PAUSE: Duration = Duration::from_secs(2);

/// Where an address can be allocated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Room {
    /// In a block of this node.
    Here,
    /// In a block that all nodes share.
    Shared,
}

impl PoolReconciler {
    pub(super) async fn serve_allocate(
        &mut self,
        scope: RequestScope<'_>,
        request: &Request,
    ) -> Result<Reply, Error> {
        self.addresses.note_write();
        let mut given = Vec::new();
        let done = self.allocate_all(scope, request, &mut given).await;
        if !matches!(done, Ok(Reply::Addresses { .. })) && !given.is_empty() {
            // All or nothing.
            self.addresses.give_up(scope, &given).await;
        }
        done
    }

    async fn allocate_all(
        &mut self,
        scope: RequestScope<'_>,
        request: &Request,
        given: &mut Vec<IpAddress>,
    ) -> Result<Reply, Error> {
        let RequestScope { accepted, .. } = scope;
        let Some(asked) = &request.attachment else {
            return Err(Error::new(
                Code::INTERNAL,
                "a request for an address names no attachment",
            ));
        };
        let mut claimant = Claimant {
            asked,
            pod: request.pod.clone(),
            holder: None,
        };
        for ip in &request.ips {
            match self.by_block(scope, *ip).await? {
                // The plugin asks for the other family again: a pod may keep its address of that one.
                Some(Reply::Local) if !request.families.is_empty() => {
                    let families = request.families.clone();
                    return Ok(Reply::Allocate { families });
                }
                Some(reply) => return Ok(reply),
                None => {}
            }
            given.push(self.bind_requested(scope, *ip, &claimant, request.early).await?);
        }
        let sticky = StickyAddresses::new(&self.context, scope);
        if !request.families.is_empty() {
            sticky.identify(&mut claimant).await?;
        }
        if claimant.holder.is_some() {
            self.bind_all_reserved(scope, &request.families, &claimant, given)
                .await?;
        } else {
            for family in &request.families {
                if !accepted.has_blocks() {
                    given.push(self.bind_one_of(scope, *family, &claimant, request.early).await?);
                    continue;
                }
                let Some(address) = self.allocate_shared(scope, *family, &claimant).await? else {
                    return Ok(Reply::Local);
                };
                given.push(address);
            }
        }
        let addresses = given
            .iter()
            .filter_map(|address| address.spec.address.parse().ok())
            .collect();
        tracing::info!(pool = %self.context.pool, attachment = %asked.owner, ?addresses, "allocated addresses through the API server");
        Ok(Reply::Addresses { addresses })
    }

    /// Binds the addresses that the claimant's pod keeps. The waits for all of them begin at once, since each may take a quarantine.
    async fn bind_all_reserved(
        &mut self,
        scope: RequestScope<'_>,
        families: &[Family],
        claimant: &Claimant<'_>,
        given: &mut Vec<IpAddress>,
    ) -> Result<(), Error> {
        let mut waits = Ok(());
        for family in families {
            let sticky = StickyAddresses::new(&self.context, scope);
            let bound = sticky.bind_reserved(&mut self.addresses, *family, claimant);
            match bound.await {
                Ok(address) => given.push(address),
                Err(error) => waits = waits.and(Err(error)),
            }
        }
        waits
    }

    /// Binds a requested address. `early`: even if it rests on this node.
    async fn bind_requested(
        &mut self,
        scope: RequestScope<'_>,
        ip: IpAddr,
        claimant: &Claimant<'_>,
        early: bool,
    ) -> Result<IpAddress, Error> {
        match self.addresses.bind(scope, ip, claimant).await {
            Err(error) if early && error.code == Code::ADDRESS_IN_USE => {
                let resting = self.addresses.take_resting(scope, |one| one == ip, claimant);
                resting.await?.ok_or(error)
            }
            bound => bound,
        }
    }

    /// Binds any address of `family` of a pool without blocks. `early`: one that rests on this node if all are taken.
    async fn bind_one_of(
        &mut self,
        scope: RequestScope<'_>,
        family: Family,
        claimant: &Claimant<'_>,
        early: bool,
    ) -> Result<IpAddress, Error> {
        let all = scope.accepted.ranges.usable(family);
        let mut address = self.addresses.bind_any(scope, family, &all, claimant).await?;
        if address.is_none() && early {
            let is_wanted = |ip| Family::of(ip) == family && all.contains(bits(ip));
            address = self.addresses.take_resting(scope, is_wanted, claimant).await?;
        }
        address.ok_or_else(|| self.addresses.all_taken(&all))
    }

    /// Makes room for an address of `family`: in this node's blocks, in a new block, or in shared blocks.
    pub(super) async fn make_room(&mut self, scope: RequestScope<'_>, family: Family) -> Result<Room, Error> {
        self.require_unreserved(scope.accepted, family)?;
        let (holdings, usage) = self
            .context
            .holdings(&self.blocks.known().all())
            .await
            .map_err(|e| self.context.failed(&e))?;
        // Another plugin's request may have claimed a block a moment ago.
        if free_local(scope.accepted, family, holdings.file.as_ref(), &usage) > 0 {
            return Ok(Room::Here);
        }
        if self.claims.is_full(family, FULL_PAUSE) && self.addresses.has_shared(scope, family).await? {
            return Ok(Room::Shared);
        }
        if self.claims.is_full(family, FULL_LIST_PAUSE) {
            match self.room_of(scope, family, Claimed::Full).await {
                Err(error) if error.code == Code::EXHAUSTED && !self.has_looked(family, scope.pending) => {}
                known => return known,
            }
        }
        // The last list has no free address, or is no longer needed.
        self.addresses.forget_shared();
        let claimed = self
            .claims
            .claim(&mut self.blocks, scope.target, scope.accepted, family)
            .await;
        let claimed = claimed.map_err(|e| self.context.failed(&e))?;
        self.room_of(scope, family, claimed).await
    }

    /// Fails if no pod gets an address of `family` unless it requests one: no block has one, whatever other nodes share.
    fn require_unreserved(&self, accepted: &AcceptedPool, family: Family) -> Result<(), Error> {
        if accepted.layout(family).is_none_or(|layout| layout.blocks() > 0) {
            return Ok(());
        }
        Err(Error::new(
            Code::EXHAUSTED,
            format!(
                "pool {}: each {family} address that is not excluded is in spec.reserved, and a pod gets a reserved address only if it requests it; request one, shorten spec.reserved, or add a range",
                self.context.pool
            ),
        ))
    }

    /// Where an address can be allocated after an attempt to claim a block.
    async fn room_of(
        &mut self,
        scope: RequestScope<'_>,
        family: Family,
        claimed: Claimed,
    ) -> Result<Room, Error> {
        match claimed {
            Claimed::Yes => return Ok(Room::Here),
            Claimed::Full if self.addresses.has_shared(scope, family).await? => {
                return Ok(Room::Shared);
            }
            Claimed::Full => self.sharing.request(scope, family).await,
            Claimed::Limit | Claimed::Unlisted => {}
        }
        Err(self.shortage(scope, &[family], claimed).await)
    }

    /// Allocates an address of a shared block; none if this node has room in its own blocks.
    pub(super) async fn allocate_shared(
        &mut self,
        scope: RequestScope<'_>,
        family: Family,
        claimant: &Claimant<'_>,
    ) -> Result<Option<IpAddress>, Error> {
        // Other nodes may take the free addresses first, while room appears elsewhere.
        for _ in 0..2 {
            if self.make_room(scope, family).await? == Room::Here {
                return Ok(None);
            }
            if let Some(address) = self.addresses.bind_shared(scope, family, claimant).await? {
                return Ok(Some(address));
            }
        }
        self.sharing.request(scope, family).await;
        Err(self.shortage(scope, &[family], Claimed::Full).await)
    }

    /// Whether the pool was listed after the waiting plugin's request arrived.
    fn has_looked(&self, family: Family, pending: Option<PendingRequest>) -> bool {
        let Some(pending) = pending else { return true };
        let view = self.addresses.listed_shared_at();
        self.claims.full_since(family) >= Some(pending.since) && view >= Some(pending.since)
    }

    /// Whether `ip`, which is requested by name, comes from a block. Claims that block if it has no owner.
    async fn by_block(&mut self, scope: RequestScope<'_>, ip: IpAddr) -> Result<Option<Reply>, Error> {
        let RequestScope { target, accepted, .. } = scope;
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
        let Some(NodeIdentity::Registered(me)) = self.context.agent.identity() else {
            return Ok(None);
        };
        let name = cidr.name(&accepted.spec.address_space);
        for _ in 0..2 {
            let block: Option<IpBlock> = target.api.get(&name).await.map_err(|e| {
                self.context
                    .unanswered(format_args!("which node has the block of {ip}"), &e.into())
            })?;
            match block {
                Some(block) if block.spec.pool != self.context.pool.as_str() => {
                    return Err(self.foreign(ip, &block));
                }
                Some(block) if free(&block) => return Ok(None),
                Some(block) if owner(&block.spec.owner) == me => {
                    // The plugin does not allocate a withheld address from the block. Its object names the pod that has it.
                    return Ok((!self.withholds(ip).await?).then_some(Reply::Local));
                }
                Some(block) if block.spec.owner.node == *me.node => return Err(of_earlier(ip, &block)),
                Some(block) => return Err(self.foreign(ip, &block)),
                None => {
                    let target = ClaimTarget {
                        target,
                        accepted,
                        layout,
                        me: &me,
                    };
                    if self.claim_block_of(ip, target, cidr).await? {
                        return Ok(Some(Reply::Local));
                    }
                }
            }
        }
        Err(Error::new(
            Code::TRY_AGAIN,
            format!("block {name} of {ip} changes hands; try again"),
        ))
    }

    /// Whether the file of this node reserves `ip`. If the spec does not, `ip` has an object, or had one a while ago.
    async fn withholds(&self, ip: IpAddr) -> Result<bool, Error> {
        let file = self.context.file().await.map_err(|e| {
            self.context
                .unanswered(format_args!("whether this node withholds {ip}"), &e)
        })?;
        let Some(file) = file else { return Ok(false) };
        let ranges = PoolRanges::new(&file, Path::new("pool.json"))?;
        Ok(ranges.listed_as_reserved(Family::of(ip)).contains(bits(ip)))
    }

    /// Claims the block of `ip`, which has no owner. Returns false if another node has claimed it meanwhile.
    async fn claim_block_of(
        &mut self,
        ip: IpAddr,
        target: ClaimTarget<'_>,
        cidr: BlockCidr,
    ) -> Result<bool, Error> {
        let claimed = self.claims.claim_block(&mut self.blocks, target, cidr).await;
        let claimed = claimed.map_err(|e| {
            self.context
                .unanswered(format_args!("which node has the block of {ip}"), &e)
        })?;
        match claimed {
            Claimed::Yes => Ok(true),
            Claimed::Full => Ok(false),
            Claimed::Limit => Err(self.at_limit(target.accepted, ip)),
            Claimed::Unlisted => Err(Error::new(
                Code::TRY_AGAIN,
                format!("pool {} has just been changed; try again", self.context.pool),
            )),
        }
    }

    /// The error if the block of `ip` is free and this node may not claim another one.
    fn at_limit(&self, accepted: &AcceptedPool, ip: IpAddr) -> Error {
        Error::new(
            Code::EXHAUSTED,
            format!(
                "pool {}: {ip} lies in a block that this node would have to claim, and it has as many of this family as spec.maxBlocksPerNode allows ({}); list {ip} in spec.reserved, or raise maxBlocksPerNode",
                self.context.pool, accepted.spec.max_blocks_per_node
            ),
        )
    }

    fn require_inside(&self, accepted: &AcceptedPool, ip: IpAddr) -> Result<(), Error> {
        if accepted.ranges.range_of(ip).is_none() {
            return Err(Error::new(
                Code::ADDRESS_OUTSIDE,
                format!(
                    "{ip} lies outside every range of pool {}: {}",
                    self.context.pool,
                    accepted.ranges.describe()
                ),
            ));
        }
        Ok(())
    }

    fn foreign(&self, ip: IpAddr, block: &IpBlock) -> Error {
        let (cidr, node, pool, other) = (
            &block.spec.cidr,
            &block.spec.owner.node,
            &self.context.pool,
            &block.spec.pool,
        );
        let remedy = if other == pool.as_str() {
            format!("list it in spec.reserved of pool {pool}, then no node allocates it to other pods")
        } else {
            format!(
                "request an address that pool {other} does not have, or remove the common addresses from the ranges of pool {other}"
            )
        };
        Error::new(
            Code::ADDRESS_IN_USE,
            format!("{ip} lies in {cidr}, which node {node} gives to its own pods (pool {other}); {remedy}"),
        )
    }
}

/// The error for an address in a block of an earlier registration of this node, which the file of the node lacks.
fn of_earlier(ip: IpAddr, block: &IpBlock) -> Error {
    let cidr = &block.spec.cidr;
    Error::new(
        Code::TRY_AGAIN,
        format!(
            "{ip} lies in {cidr}, which an earlier registration of this node has (UID {}); the block becomes free after its quarantine, or with rdmanet release --node if pods had its addresses; try again then",
            block.spec.owner.node_uid
        ),
    )
}

#[cfg(test)]
mod tests;
