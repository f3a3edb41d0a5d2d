// SPDX-License-Identifier: Apache-2.0
//! A pool without a block to claim: addresses of blocks that are shared, and the wish that somebody shares one.

mod view;

pub(super) use view::View;

use super::address::Claimant;
use super::claim::{Claimed, FULL_PAUSE};
use super::{Target, Worker};
use crate::agent::Failure;
use crate::api::pool::condition::EXHAUSTED;
use crate::api::{IpAddress, IpBlock, IpPool};
use crate::cluster::{Trouble, Written, list, tell};
use crate::grid::{Cell, Grid};
use crate::ground::Ground;
use crate::object::{cell, ip_in, now, version};
use common::cni::{Code, Error};
use ipam::interval::IntervalSet;
use ipam::range::Family;
use std::net::IpAddr;
use std::time::{Duration, Instant};

/// For how long a pool that was found full is not looked through again, even if plugins ask that can wait for others.
const LOOKED: Duration = Duration::from_secs(2);

/// Addresses that are tried by a list that is not quite new, before they are listed anew.
const TRIES: u128 = 2;

/// How long a wish stands before it is told again.
const WISH: Duration = Duration::from_secs(20);

/// Where an address is to be had.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Room {
    /// In a block of this node.
    Here,
    /// In a block that all nodes share.
    Shared,
}

impl Worker {
    /// Sees to it that there is an address of `family` to be had: in this node's blocks, in one more, or in shared ones.
    pub(super) async fn make_room(
        &mut self,
        target: &Target,
        ground: &Ground,
        family: Family,
    ) -> Result<Room, Error> {
        let (holdings, usage) = self.holdings(&self.blocks()).await.map_err(|e| self.failed(&e))?;
        // Another plugin's question may have brought a block a moment ago.
        if Self::free_here(ground, family, &holdings, &usage) > 0 {
            return Ok(Room::Here);
        }
        if self.is_full(FULL_PAUSE) && self.has_shared(ground, family).await? {
            return Ok(Room::Shared);
        }
        if self.is_full(LOOKED) {
            match self.room_of(target, ground, family, Claimed::Full).await {
                Err(error) if error.code == Code::EXHAUSTED && !self.has_looked() => {}
                known => return known,
            }
        }
        // What was listed has nothing, or is not needed.
        self.shared = None;
        let claimed = self.claim(target, ground, family).await;
        let claimed = claimed.map_err(|e| self.failed(&e))?;
        self.room_of(target, ground, family, claimed).await
    }

    /// Where an address is to be had after an attempt to claim a block.
    async fn room_of(
        &mut self,
        target: &Target,
        ground: &Ground,
        family: Family,
        claimed: Claimed,
    ) -> Result<Room, Error> {
        match claimed {
            Claimed::Yes => return Ok(Room::Here),
            Claimed::Full if self.has_shared(ground, family).await? => return Ok(Room::Shared),
            Claimed::Full => self.wish(target, family).await,
            Claimed::Limit | Claimed::Unlisted => {}
        }
        Err(self.shortage(target, claimed).await)
    }

    /// Whether the pool was looked through since the plugin asked that waits.
    fn has_looked(&self) -> bool {
        let Some(asking) = self.asking else { return true };
        let view = self.shared.as_ref().map(View::at);
        self.full_since >= Some(asking.since) && view >= Some(asking.since)
    }

    /// Whether the keeper has found that no node has an address to share. While a plugin waits only what was told since it asked
    /// counts: by then somebody may have claimed a block or given addresses back.
    fn is_exhausted(&self) -> bool {
        let Some(pool) = self.pool_object() else {
            return false;
        };
        let is_news = self.asking.is_none_or(|asking| version(&*pool) > asking.told);
        let status = pool.status.clone().unwrap_or_default();
        let mut conditions = status.conditions.iter();
        let holds = conditions.any(|condition| condition.type_ == EXHAUSTED && condition.status == "True");
        is_news && holds && !status.is_wanted()
    }

    async fn has_shared(&mut self, ground: &Ground, family: Family) -> Result<bool, Error> {
        Ok(!self.free_shared(ground, family).await?.is_empty())
    }

    /// An address of a shared block; none if this node has room itself.
    pub(super) async fn allocate_shared(
        &mut self,
        target: &Target,
        ground: &Ground,
        family: Family,
        claimant: &Claimant<'_>,
    ) -> Result<Option<IpAddress>, Error> {
        // Others may be faster, and leave room elsewhere.
        for _ in 0..2 {
            if self.make_room(target, ground, family).await? == Room::Here {
                return Ok(None);
            }
            if let Some(address) = self.bind_shared(ground, family, claimant).await? {
                return Ok(Some(address));
            }
        }
        self.wish(target, family).await;
        Err(self.shortage(target, Claimed::Full).await)
    }

    /// An address of a shared block, if nobody else takes them all.
    async fn bind_shared(
        &mut self,
        ground: &Ground,
        family: Family,
        claimant: &Claimant<'_>,
    ) -> Result<Option<IpAddress>, Error> {
        let free = self.free_shared(ground, family).await?;
        if let Some(address) = self.bind_again(ground, family, claimant).await? {
            return Ok(Some(address));
        }
        let some = self.some_of(&free, TRIES, claimant);
        if let Some(address) = self.bind_one(ground, family, some, claimant).await? {
            return Ok(Some(address));
        }
        // Others were faster.
        self.shared = None;
        let free = self.free_shared(ground, family).await?;
        self.bind_any(ground, family, &free, claimant).await
    }

    /// The address that the attachment has already.
    async fn bind_again(
        &mut self,
        ground: &Ground,
        family: Family,
        claimant: &Claimant<'_>,
    ) -> Result<Option<IpAddress>, Error> {
        let view = self.shared.as_ref();
        let Some(ip) = view.and_then(|view| view.given_before(family, claimant)) else {
            return Ok(None);
        };
        self.bind(ground, ip, claimant).await.map(Some)
    }

    /// The addresses of shared blocks that nobody has, by a list that is good for a guess.
    async fn free_shared(&mut self, ground: &Ground, family: Family) -> Result<IntervalSet, Error> {
        let Some(grid) = ground.grid(family) else {
            return Ok(IntervalSet::default());
        };
        let told = self.pool_object().map_or(0, |pool| version(&*pool));
        let view = self.shared.as_ref();
        if let Some(free) = view.and_then(|view| view.guess(grid, told, Instant::now())) {
            return Ok(free);
        }
        let view = self.list_shared(told).await.map_err(|e| self.failed(&e))?;
        Ok(self.shared.insert(view).free(grid))
    }

    async fn list_shared(&self, told: u64) -> Result<View, Failure> {
        let at = Instant::now();
        let fields = format!("spec.pool={},spec.state=Shared", self.pool);
        let blocks: Vec<IpBlock> = list(&self.agent.cluster.blocks, &fields).await?;
        let cells: Vec<Cell> = blocks.iter().filter_map(cell).collect();
        let mut there: Vec<IpAddress> = Vec::new();
        if !cells.is_empty() {
            // One list, however many blocks are shared. An address that another pool has is found out by the CREATE.
            there = list(&self.agent.cluster.addresses, &format!("spec.pool={}", self.pool)).await?;
        }
        Ok(View::new(at, told, cells, there, &self.agent.config.node))
    }

    /// The addresses of a block that are objects, whichever pool made them.
    pub(super) async fn objects_in(&self, space: &str, cell: Cell) -> Result<Vec<IpAddr>, Failure> {
        let fields = format!("spec.block={}", cell.cidr());
        let there: Vec<IpAddress> = list(&self.agent.cluster.addresses, &fields).await?;
        Ok(there.iter().filter_map(|address| ip_in(address, space)).collect())
    }

    /// Tells that this node has found no address, unless somebody has a moment ago, or pods have another pool to go to.
    async fn wish(&mut self, target: &Target, family: Family) {
        if self.wish_stands(family) || !may_share(target) || self.is_exhausted() {
            return;
        }
        let key = match family {
            Family::V4 => "v4",
            Family::V6 => "v6",
        };
        let request = serde_json::json!({ key: now() });
        match self.request(request).await {
            Ok(told) => {
                if let Written::Done(pool) = told {
                    self.wished = Some((version(&pool), Instant::now()));
                }
                tracing::info!(pool = %self.pool, "no address is left for this node: others are asked to share");
            }
            Err(e) => {
                tracing::warn!(pool = %self.pool, error = %e, "the wish for a shared block is not told");
            }
        }
    }

    /// Writes this node's entry of the pool's requests: the controller answers it.
    pub(super) async fn request(&self, what: serde_json::Value) -> Result<Written<IpPool>, Trouble> {
        let node = self.agent.config.node.as_str();
        let requests = serde_json::json!({ "requests": { node: what } });
        tell(&self.agent.cluster.pools, self.pool.as_str(), requests).await
    }

    /// Whether somebody has told a moment ago that there is no address of `family`, and nothing has come of it yet.
    pub(super) fn wish_stands(&self, family: Family) -> bool {
        let Some(pool) = self.pool_object() else {
            return false;
        };
        // What this node has told itself may be news to the watch.
        let news = |(told, at): (u64, Instant)| told > version(&*pool) && at.elapsed() < WISH;
        let told = pool
            .status
            .as_ref()
            .and_then(|status| status.wanted_since(family));
        let recent = told.is_some_and(|told| now().0.duration_since(told.0).unsigned_abs() < WISH);
        recent || self.wished.is_some_and(news)
    }

    /// Whether somebody may have addresses to share, where every block has an owner. The pool's numbers are no help: they may be
    /// from before it filled up.
    pub(super) fn others_may_share(&self, target: &Target) -> bool {
        let own = u128::try_from(self.blocks().len()).unwrap_or(u128::MAX);
        let grids = target.ground.iter().flat_map(|ground| &ground.grids);
        let all = grids.map(Grid::blocks).fold(0, u128::saturating_add);
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

/// Pods that can have addresses of a fallback pool need none of this one's last.
fn may_share(target: &Target) -> bool {
    target
        .ground
        .as_ref()
        .is_some_and(|ground| ground.spec.fallback.is_empty())
}
