// SPDX-License-Identifier: Apache-2.0
//! A pool without a block to claim: addresses of blocks that are shared, and the wish that somebody shares one.

use super::address::Claimant;
use super::claim::Claimed;
use super::{Target, Worker};
use crate::agent::Failure;
use crate::api::pool::condition::EXHAUSTED;
use crate::api::{IpAddress, IpBlock};
use crate::cluster::{list, tell};
use crate::grid::Cell;
use crate::ground::Ground;
use crate::object::{cell, now};
use common::cni::{Code, Error};
use ipam::interval::{Interval, IntervalSet};
use ipam::range::{Family, bits};
use kube::ResourceExt;
use std::net::IpAddr;
use std::time::{Duration, Instant};

/// How old a list of shared blocks may be: each block is read again after an address of it was made.
const LISTED: Duration = Duration::from_secs(2);

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
        let full = self.full_until.is_some_and(|until| Instant::now() < until);
        if full && self.has_shared(ground, family).await? {
            return Ok(Room::Shared);
        }
        let claimed = self
            .claim(target, ground, family)
            .await
            .map_err(|e| self.failed(&e))?;
        match claimed {
            Claimed::Yes => return Ok(Room::Here),
            Claimed::Full if self.has_shared(ground, family).await? => return Ok(Room::Shared),
            Claimed::Full => self.wish(target, family).await,
            Claimed::Limit | Claimed::Unlisted => {}
        }
        Err(self.shortage(target, claimed).await)
    }

    async fn has_shared(&mut self, ground: &Ground, family: Family) -> Result<bool, Error> {
        let free = self.shared_room(ground, family).await;
        Ok(!free.map_err(|e| self.failed(&e))?.is_empty())
    }

    /// An address of a shared block.
    pub(super) async fn bind_shared(
        &mut self,
        target: &Target,
        ground: &Ground,
        family: Family,
        claimant: &Claimant<'_>,
    ) -> Result<IpAddress, Error> {
        let free = self
            .shared_room(ground, family)
            .await
            .map_err(|e| self.failed(&e))?;
        if let Some(address) = self.bind_any(ground, family, &free, claimant).await? {
            return Ok(address);
        }
        self.wish(target, family).await;
        Err(self.shortage(target, Claimed::Full).await)
    }

    /// The addresses of shared blocks that nobody has.
    async fn shared_room(&mut self, ground: &Ground, family: Family) -> Result<IntervalSet, Failure> {
        let recent = |(at, _): &&(Instant, Vec<Cell>)| at.elapsed() < LISTED;
        let cells = if let Some((_, cells)) = self.shared.as_ref().filter(recent) {
            cells.clone()
        } else {
            let fields = format!("spec.pool={},spec.state=Shared", self.pool);
            let blocks: Vec<IpBlock> = list(&self.agent.cluster.blocks, &fields).await?;
            let cells: Vec<Cell> = blocks.iter().filter_map(cell).collect();
            self.shared = Some((Instant::now(), cells.clone()));
            cells
        };
        let mut free = Vec::new();
        let grid = ground.grid(family);
        for cell in cells {
            let Some(grid) = grid.filter(|grid| grid.has(cell)) else {
                continue;
            };
            let taken = self.objects_in(&ground.spec.address_space, cell).await?;
            let taken: IntervalSet = taken.iter().copied().map(one).collect();
            free.extend_from_slice(grid.usable(cell).minus(&taken).intervals());
        }
        Ok(free.into_iter().collect())
    }

    /// The addresses of a block that are objects, whichever pool made them.
    pub(super) async fn objects_in(&self, space: &str, cell: Cell) -> Result<Vec<IpAddr>, Failure> {
        let fields = format!("spec.block={}", cell.cidr());
        let there: Vec<IpAddress> = list(&self.agent.cluster.addresses, &fields).await?;
        let prefix = format!("{space}-");
        let of_space = there
            .iter()
            .filter(|address| address.name_any().starts_with(&prefix));
        Ok(of_space
            .filter_map(|address| address.spec.address.parse().ok())
            .collect())
    }

    /// Tells that this node has found no address, unless somebody has a moment ago, or pods have another pool to go to.
    async fn wish(&self, target: &Target, family: Family) {
        let Some(pool) = self.pool_object() else { return };
        let status = pool.status.clone().unwrap_or_default();
        let wanted = status.wanted.unwrap_or_default();
        let (key, told) = match family {
            Family::V4 => ("v4", wanted.v4),
            Family::V6 => ("v6", wanted.v6),
        };
        let stands = told.is_some_and(|told| now().0.duration_since(told.0).unsigned_abs() < WISH);
        if stands || !may_share(target) {
            return;
        }
        let wish = serde_json::json!({ "wanted": { key: now() } });
        match tell(&self.agent.cluster.pools, self.pool.as_str(), wish).await {
            Ok(_) => {
                tracing::info!(pool = %self.pool, "no address is left for this node: others are asked to share");
            }
            Err(e) => {
                tracing::warn!(pool = %self.pool, error = %e, "the wish for a shared block is not told");
            }
        }
    }

    /// Whether somebody may have addresses to share, as far as this node knows.
    pub(super) fn others_may_share(&self, target: &Target) -> bool {
        let blocks = i64::try_from(self.blocks().len()).unwrap_or(i64::MAX);
        let status = self.pool_object().and_then(|pool| pool.status.clone());
        let conditions = status.unwrap_or_default().conditions;
        let exhausted = conditions
            .iter()
            .any(|condition| condition.type_ == EXHAUSTED && condition.status == "True");
        may_share(target) && target.blocks > blocks && !exhausted
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

fn one(ip: IpAddr) -> Interval {
    Interval {
        first: bits(ip),
        last: bits(ip),
    }
}
