// SPDX-License-Identifier: Apache-2.0
//! A pool without a block to claim: addresses of blocks that are shared, and the wish that somebody shares one.

use super::address::Claimant;
use super::claim::Claimed;
use super::{Target, Worker};
use crate::agent::Failure;
use crate::api::pool::condition::EXHAUSTED;
use crate::api::{IpAddress, IpBlock};
use crate::cluster::{list, tell};
use crate::grid::{Cell, Grid};
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

/// What the shared blocks of a pool have.
#[derive(Default)]
struct SharedRoom {
    /// The addresses that nobody has.
    free: IntervalSet,
    /// All addresses of the pool that are objects.
    there: Vec<IpAddress>,
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
        let room = self.shared_room(ground, family).await;
        Ok(!room.map_err(|e| self.failed(&e))?.free.is_empty())
    }

    /// An address of a shared block.
    pub(super) async fn bind_shared(
        &mut self,
        target: &Target,
        ground: &Ground,
        family: Family,
        claimant: &Claimant<'_>,
    ) -> Result<IpAddress, Error> {
        let room = self
            .shared_room(ground, family)
            .await
            .map_err(|e| self.failed(&e))?;
        if let Some(ip) = given_before(&room.there, &self.agent.config.node, family, claimant) {
            return self.bind(ground, ip, claimant).await;
        }
        if let Some(address) = self.bind_any(ground, family, &room.free, claimant).await? {
            return Ok(address);
        }
        self.wish(target, family).await;
        Err(self.shortage(target, Claimed::Full).await)
    }

    /// The addresses of shared blocks that nobody has.
    async fn shared_room(&mut self, ground: &Ground, family: Family) -> Result<SharedRoom, Failure> {
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
        let Some(grid) = ground.grid(family).filter(|_| !cells.is_empty()) else {
            return Ok(SharedRoom::default());
        };
        // One list, however many blocks are shared. An address that another pool has is found out by the CREATE.
        let there: Vec<IpAddress> =
            list(&self.agent.cluster.addresses, &format!("spec.pool={}", self.pool)).await?;
        let addresses = there.iter().filter_map(address);
        let taken: IntervalSet = addresses
            .filter(|ip| Family::of(*ip) == family)
            .map(one)
            .collect();
        let shared = cells.into_iter().filter(|cell| grid.has(*cell));
        let free = shared
            .flat_map(|cell| grid.usable(cell).minus(&taken).intervals().to_vec())
            .collect();
        Ok(SharedRoom { free, there })
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

    /// Whether somebody may have addresses to share, where every block has an owner. The pool's numbers are no help: they may be
    /// from before it filled up.
    pub(super) fn others_may_share(&self, target: &Target) -> bool {
        let own = u128::try_from(self.blocks().len()).unwrap_or(u128::MAX);
        let grids = target.ground.iter().flat_map(|ground| &ground.grids);
        let all = grids.map(Grid::blocks).fold(0, u128::saturating_add);
        let status = self.pool_object().and_then(|pool| pool.status.clone());
        let conditions = status.unwrap_or_default().conditions;
        let exhausted = conditions
            .iter()
            .any(|condition| condition.type_ == EXHAUSTED && condition.status == "True");
        may_share(target) && all > own && !exhausted
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

/// The address that this attachment was given already, by an answer that came too late for its plugin. Another one would leave this
/// one to nobody until it is found unused, and there are few.
fn given_before(there: &[IpAddress], node: &str, family: Family, claimant: &Claimant<'_>) -> Option<IpAddr> {
    let attachment = Some(claimant.attachment());
    let mine = |one: &&IpAddress| {
        one.spec.attachment == attachment && one.spec.node.node == node && one.spec.holder.is_none()
    };
    let mut addresses = there.iter().filter(mine).filter_map(address);
    addresses.find(|ip| Family::of(*ip) == family)
}

fn address(object: &IpAddress) -> Option<IpAddr> {
    object.spec.address.parse().ok()
}

fn one(ip: IpAddr) -> Interval {
    Interval {
        first: bits(ip),
        last: bits(ip),
    }
}

#[cfg(test)]
mod tests;
