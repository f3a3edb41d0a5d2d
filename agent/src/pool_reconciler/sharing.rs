// SPDX-License-Identifier: Apache-2.0
//! A pool without a free block: allocates addresses of shared blocks, and asks for another node to share one.

mod view;

pub(super) use view::View;

use super::bind_address::Claimant;
use super::claim::{Claimed, FULL_PAUSE};
use super::{PoolReconciler, Target};
use crate::agent::ReconcileError;
use api::accepted_pool::AcceptedPool;
use api::block_layout::{BlockCidr, BlockLayout};
use api::convert::{cidr_of, ip_in, now, version_number};
use api::pool::condition::EXHAUSTED;
use api::requests::{ApiError, WriteResult, list, patch_status};
use api::{IpAddress, IpBlock, IpPool};
use common::cni::{Code, Error};
use ipam::interval::IntervalSet;
use ipam::range::Family;
use std::net::IpAddr;
use std::time::{Duration, Instant};

/// How long a pool that was found full is not listed again, even for plugins that can wait for other nodes.
const LOOKED: Duration = Duration::from_secs(2);

/// The number of addresses of an older list that are tried before the addresses are listed again.
const TRIES: u128 = 2;

/// How long a wish stands before it is written again.
const REQUEST_STANDS: Duration = Duration::from_secs(20);

/// Where an address can be allocated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Room {
    /// In a block of this node.
    Here,
    /// In a block that all nodes share.
    Shared,
}

impl PoolReconciler {
    /// Makes room for an address of `family`: in this node's blocks, in a new block, or in shared blocks.
    pub(super) async fn make_room(
        &mut self,
        target: &Target,
        accepted: &AcceptedPool,
        family: Family,
    ) -> Result<Room, Error> {
        let (holdings, usage) = self.holdings(&self.blocks()).await.map_err(|e| self.failed(&e))?;
        // Another plugin's request may have claimed a block a moment ago.
        if Self::free_local(accepted, family, &holdings, &usage) > 0 {
            return Ok(Room::Here);
        }
        if self.is_full(FULL_PAUSE) && self.has_shared(accepted, family).await? {
            return Ok(Room::Shared);
        }
        if self.is_full(LOOKED) {
            match self.room_of(target, accepted, family, Claimed::Full).await {
                Err(error) if error.code == Code::EXHAUSTED && !self.has_looked() => {}
                known => return known,
            }
        }
        // The last list has no free address, or is no longer needed.
        self.shared = None;
        let claimed = self.claim(target, accepted, family).await;
        let claimed = claimed.map_err(|e| self.failed(&e))?;
        self.room_of(target, accepted, family, claimed).await
    }

    /// Where an address can be allocated after an attempt to claim a block.
    async fn room_of(
        &mut self,
        target: &Target,
        accepted: &AcceptedPool,
        family: Family,
        claimed: Claimed,
    ) -> Result<Room, Error> {
        match claimed {
            Claimed::Yes => return Ok(Room::Here),
            Claimed::Full if self.has_shared(accepted, family).await? => return Ok(Room::Shared),
            Claimed::Full => self.request_sharing(target, family).await,
            Claimed::Limit | Claimed::Unlisted => {}
        }
        Err(self.shortage(target, claimed).await)
    }

    /// Whether the pool was listed after the waiting plugin's request arrived.
    fn has_looked(&self) -> bool {
        let Some(pending) = self.pending else { return true };
        let view = self.shared.as_ref().map(View::at);
        self.full_since >= Some(pending.since) && view >= Some(pending.since)
    }

    /// Whether the controller has found that no node has an address to share. While a plugin waits, only a pool version that is
    /// newer than its request counts: a node may have claimed a block or released addresses meanwhile.
    fn is_exhausted(&self) -> bool {
        let Some(pool) = self.pool_object() else {
            return false;
        };
        let is_news = self
            .pending
            .is_none_or(|pending| version_number(&*pool) > pending.told);
        let status = pool.status.clone().unwrap_or_default();
        let mut conditions = status.conditions.iter();
        let holds = conditions.any(|condition| condition.type_ == EXHAUSTED && condition.status == "True");
        is_news && holds && !status.has_shortage()
    }

    async fn has_shared(&mut self, accepted: &AcceptedPool, family: Family) -> Result<bool, Error> {
        Ok(!self.free_shared(accepted, family).await?.is_empty())
    }

    /// Allocates an address of a shared block; none if this node has room in its own blocks.
    pub(super) async fn allocate_shared(
        &mut self,
        target: &Target,
        accepted: &AcceptedPool,
        family: Family,
        claimant: &Claimant<'_>,
    ) -> Result<Option<IpAddress>, Error> {
        // Other nodes may take the free addresses first, while room appears elsewhere.
        for _ in 0..2 {
            if self.make_room(target, accepted, family).await? == Room::Here {
                return Ok(None);
            }
            if let Some(address) = self.bind_shared(accepted, family, claimant).await? {
                return Ok(Some(address));
            }
        }
        self.request_sharing(target, family).await;
        Err(self.shortage(target, Claimed::Full).await)
    }

    /// Binds an address of a shared block, unless other nodes take them all.
    async fn bind_shared(
        &mut self,
        accepted: &AcceptedPool,
        family: Family,
        claimant: &Claimant<'_>,
    ) -> Result<Option<IpAddress>, Error> {
        let free = self.free_shared(accepted, family).await?;
        if let Some(address) = self.bind_again(accepted, family, claimant).await? {
            return Ok(Some(address));
        }
        let some = self.some_of(&free, TRIES, claimant);
        if let Some(address) = self.bind_one(accepted, family, some, claimant).await? {
            return Ok(Some(address));
        }
        // Other nodes have taken the tried addresses.
        self.shared = None;
        let free = self.free_shared(accepted, family).await?;
        self.bind_any(accepted, family, &free, claimant).await
    }

    /// Binds the address that the attachment already has.
    async fn bind_again(
        &mut self,
        accepted: &AcceptedPool,
        family: Family,
        claimant: &Claimant<'_>,
    ) -> Result<Option<IpAddress>, Error> {
        let view = self.shared.as_ref();
        let Some(ip) = view.and_then(|view| view.given_before(family, claimant)) else {
            return Ok(None);
        };
        self.bind(accepted, ip, claimant).await.map(Some)
    }

    /// The free addresses of shared blocks, from a list that is recent enough for a guess.
    async fn free_shared(&mut self, accepted: &AcceptedPool, family: Family) -> Result<IntervalSet, Error> {
        let Some(layout) = accepted.layout(family) else {
            return Ok(IntervalSet::default());
        };
        let told = self.pool_object().map_or(0, |pool| version_number(&*pool));
        let view = self.shared.as_ref();
        if let Some(free) = view.and_then(|view| view.guess(layout, told, Instant::now())) {
            return Ok(free);
        }
        let view = self.list_shared(told).await.map_err(|e| self.failed(&e))?;
        Ok(self.shared.insert(view).free(layout))
    }

    async fn list_shared(&self, told: u64) -> Result<View, ReconcileError> {
        let at = Instant::now();
        let fields = format!("spec.pool={},spec.state=Shared", self.pool);
        let blocks: Vec<IpBlock> = list(&self.agent.cluster.blocks, &fields).await?;
        let cells: Vec<BlockCidr> = blocks.iter().filter_map(cidr_of).collect();
        let mut there: Vec<IpAddress> = Vec::new();
        if !cells.is_empty() {
            // One list serves any number of shared blocks. If another pool has an address, the CREATE fails.
            there = list(&self.agent.cluster.addresses, &format!("spec.pool={}", self.pool)).await?;
        }
        Ok(View::new(at, told, cells, there, &self.agent.config.node))
    }

    /// The addresses of a block that have objects, whichever pool made them.
    pub(super) async fn objects_in(
        &self,
        space: &str,
        cidr: BlockCidr,
    ) -> Result<Vec<IpAddr>, ReconcileError> {
        let fields = format!("spec.block={}", cidr.network());
        let there: Vec<IpAddress> = list(&self.agent.cluster.addresses, &fields).await?;
        Ok(there.iter().filter_map(|address| ip_in(address, space)).collect())
    }

    /// Writes the wish that another node shares a block. Does nothing if a recent wish stands, if the pool has a fallback pool,
    /// or if the controller has found the pool exhausted.
    async fn request_sharing(&mut self, target: &Target, family: Family) {
        if self.sharing_is_requested(family) || !may_share(target) || self.is_exhausted() {
            return;
        }
        let key = match family {
            Family::V4 => "v4",
            Family::V6 => "v6",
        };
        let request = serde_json::json!({ key: now() });
        match self.request(request).await {
            Ok(told) => {
                if let WriteResult::Applied(pool) = told {
                    self.requested = Some((version_number(&pool), Instant::now()));
                }
                tracing::info!(pool = %self.pool, "requested a shared block: no address is free on this node");
            }
            Err(e) => {
                tracing::warn!(pool = %self.pool, error = %e, "requesting a shared block failed");
            }
        }
    }

    /// Writes this node's entry in the pool's requests. The controller answers it.
    pub(super) async fn request(&self, what: serde_json::Value) -> Result<WriteResult<IpPool>, ApiError> {
        let node = self.agent.config.node.as_str();
        let requests = serde_json::json!({ "requests": { node: what } });
        patch_status(&self.agent.cluster.pools, self.pool.as_str(), requests).await
    }

    /// Whether a recent wish for an address of `family` stands, of any node, and has not been answered.
    pub(super) fn sharing_is_requested(&self, family: Family) -> bool {
        let Some(pool) = self.pool_object() else {
            return false;
        };
        // The watch may not have reported this node's own wish yet.
        let news =
            |(told, at): (u64, Instant)| told > version_number(&*pool) && at.elapsed() < REQUEST_STANDS;
        let told = pool.status.as_ref().and_then(|status| status.short_since(family));
        let recent = told.is_some_and(|told| now().0.duration_since(told.0).unsigned_abs() < REQUEST_STANDS);
        recent || self.requested.is_some_and(news)
    }

    /// Whether other nodes may have addresses to share when every block has an owner. The pool's counters do not help: they may
    /// be older than the moment when the pool became full.
    pub(super) fn others_may_share(&self, target: &Target) -> bool {
        let own = u128::try_from(self.blocks().len()).unwrap_or(u128::MAX);
        let layouts = target.accepted.iter().flat_map(|accepted| &accepted.layouts);
        let all = layouts.map(BlockLayout::blocks).fold(0, u128::saturating_add);
        may_share(target) && all > own && !self.is_exhausted()
    }

    pub(super) fn asked_to_share(&self) -> Error {
        Error::new(
            Code::TRY_AGAIN,
            format!(
                "pool {}: every block has an owner and no address is free in this node's; another node is asked to share one; try again in some seconds",
                self.pool
            ),
        )
    }
}

/// If the pool has a fallback pool, pods do not need the last addresses of this one.
fn may_share(target: &Target) -> bool {
    target
        .accepted
        .as_ref()
        .is_some_and(|accepted| accepted.spec.fallback.is_empty())
}
