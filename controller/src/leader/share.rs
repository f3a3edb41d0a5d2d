// SPDX-License-Identifier: Apache-2.0
//! Shared blocks: which blocks to share when nodes find no free address, how full the shared ones are, and when they are
//! freed.
//!
//! Invariant: this module decides about no address. Only its owner makes a block shared. A node that claims a block which
//! was freed here first looks for objects of its addresses.

mod batch;

use super::Keeper;
use super::numbers::{clip, free_of_shared, objects_in};
use crate::context::Failure;
use api::cluster::{Written, list, remove, tell};
use api::grid::Cell;
use api::ground::Ground;
use api::object::{cell, ip_in, now};
use api::{BlockState, IpAddress, IpBlock, IpBlockStatus, IpPoolStatus};
use batch::{Candidate, Last};
use ipam::range::Family;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::ResourceExt;
use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// An owner that was asked has this many observation periods to begin.
const PATIENCE: u32 = 2;

/// An owner that was asked is not asked again for this many observation periods.
const PAUSE: u32 = 20;

/// While owners that were asked have this many rounds of the controller, no other owners are asked.
const HASTE: u32 = 3;

/// The blocks whose owners were asked to share them.
#[derive(Default)]
pub(super) struct Asked {
    /// Blocks whose owners were asked to share them, and when.
    blocks: HashMap<String, Instant>,
    /// The last batch of blocks that were asked for, by pool and family.
    last: HashMap<(String, Family), Batch>,
}

/// Blocks whose owners were asked at the same time.
struct Batch {
    /// Each block with the free addresses that its owner had reported.
    blocks: Vec<(String, u64)>,
    at: Instant,
}

impl Asked {
    fn forget_older(&mut self, than: Duration) {
        self.blocks.retain(|_, since| since.elapsed() < than);
        self.last.retain(|_, batch| batch.at.elapsed() < than);
    }

    /// Allows these blocks to be asked for again at any time.
    fn withdraw(&mut self, candidates: &[Candidate]) {
        for one in candidates {
            self.blocks.remove(&one.name);
        }
    }
}

/// The free addresses of one family of a pool.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Left {
    /// Addresses that are in no block.
    pub(super) unclaimed: u128,
    /// Free addresses of shared blocks.
    pub(super) shared: u128,
}

impl Keeper {
    fn left(&self, ground: &Ground, blocks: &[Arc<IpBlock>], family: Family) -> Left {
        let Some(grid) = ground.grid(family) else {
            return Left::default();
        };
        let mut left = Left {
            unclaimed: grid.addresses(),
            shared: 0,
        };
        for block in blocks {
            let Some(cell) = cell(block).filter(|cell| grid.has(*cell)) else {
                continue;
            };
            left.unclaimed = left.unclaimed.saturating_sub(grid.usable(cell).count());
            if block.spec.state == BlockState::Shared {
                left.shared += free_of_shared(ground, block, &self.addresses);
            }
        }
        left
    }

    /// Handles the requests of nodes. It asks the owners of blocks with free addresses to share them, a few at first,
    /// until shared addresses are free. An owner may take its time.
    pub(super) fn share(&mut self, ground: &Ground, blocks: &[Arc<IpBlock>], status: &mut IpPoolStatus) {
        self.asked.forget_older(self.context.config.observe * PAUSE);
        let before = std::mem::take(&mut status.sharing);
        if !status.is_wanted() && before.is_empty() {
            return;
        }
        for family in [Family::V4, Family::V6] {
            let left = self.left(ground, blocks, family);
            let candidates = self.candidates(ground, blocks, family, &before);
            let mut wish = status.wanted_since(family);
            let asked = self.ask(ground, (family, left), &candidates, &mut wish);
            if wish.is_none() {
                status.answer(family);
            }
            status.sharing.extend(asked);
        }
    }

    /// The `candidates` that are asked for now. Ends the `wish` once it is fulfilled or cannot be.
    fn ask(
        &mut self,
        ground: &Ground,
        (family, left): (Family, Left),
        candidates: &[Candidate],
        wish: &mut Option<Time>,
    ) -> Vec<String> {
        if !ground.has_blocks() || left.unclaimed > 0 {
            self.asked.withdraw(candidates);
            *wish = None;
            return Vec::new();
        }
        let patience = self.context.config.observe * PATIENCE;
        let awaited = candidates.iter().filter(|one| one.is_awaited(patience));
        let mut asked: Vec<String> = awaited.map(|one| one.name.clone()).collect();
        if left.shared > 0 {
            *wish = None;
        }
        if wish.is_some() {
            asked.extend(self.ask_for_more(ground, family, candidates));
        }
        if asked.is_empty() {
            *wish = None;
        }
        asked
    }

    /// The blocks that could be shared.
    fn candidates(
        &mut self,
        ground: &Ground,
        blocks: &[Arc<IpBlock>],
        family: Family,
        before: &[String],
    ) -> Vec<Candidate> {
        let theirs = blocks
            .iter()
            .filter(|block| matches!(block.spec.state, BlockState::Active | BlockState::Draining))
            .filter(|block| {
                cell(block).is_some_and(|cell| Family::of(cell.cidr().ip()) == family && ground.has(cell))
            })
            .filter(|block| !self.seems_gone(&block.spec.owner));
        let theirs: Vec<&Arc<IpBlock>> = theirs.collect();
        let candidate = |block: &Arc<IpBlock>| {
            let name = block.name_any();
            if before.contains(&name) {
                // An earlier leader may have asked.
                self.asked.blocks.entry(name.clone()).or_insert_with(Instant::now);
            }
            let free = block.status.as_ref().map_or(0, |status| status.free);
            Candidate {
                asked: self.asked.blocks.get(&name).map(Instant::elapsed),
                node: block.spec.owner.node.clone(),
                free: u64::try_from(free).unwrap_or_default(),
                name,
            }
        };
        theirs.into_iter().map(candidate).collect()
    }

    fn ask_for_more(&mut self, ground: &Ground, family: Family, candidates: &[Candidate]) -> Vec<String> {
        let key = (ground.name.to_string(), family);
        let last = self.asked.last.get(&key).map(|batch| Last {
            blocks: &batch.blocks,
            age: batch.at.elapsed(),
        });
        let chosen = batch::next(candidates, last.as_ref(), self.context.config.tick * HASTE);
        if chosen.is_empty() {
            return Vec::new();
        }
        for one in &chosen {
            tracing::info!(
                pool = %ground.name, block = one.name, node = one.node, free = one.free,
                "nodes find no address: this block is to be shared"
            );
            self.asked.blocks.insert(one.name.clone(), Instant::now());
        }
        let blocks = chosen.iter().map(|one| (one.name.clone(), one.free)).collect();
        let at = Instant::now();
        self.asked.last.insert(key, Batch { blocks, at });
        chosen.into_iter().map(|one| one.name.clone()).collect()
    }

    /// Reports how full shared blocks are, and frees those that have been empty for a while.
    pub(super) async fn tend_shared(
        &mut self,
        ground: &Ground,
        blocks: &[Arc<IpBlock>],
    ) -> Result<(), Failure> {
        let shared: Vec<&Arc<IpBlock>> = blocks
            .iter()
            .filter(|block| block.spec.state == BlockState::Shared)
            .collect();
        for block in &shared {
            let Some(cell) = cell(block) else { continue };
            let used = objects_in(&self.addresses, &ground.spec.address_space, cell).count();
            if used == 0 {
                self.end_shared(ground, block, cell).await?;
            } else {
                self.empty.remove(&block.name_any());
                self.count_shared(ground, block, used).await?;
            }
        }
        let name = ground.name.as_str();
        let there: HashSet<String> = self
            .blocks()
            .iter()
            .filter(|block| block.spec.pool != name || block.spec.state == BlockState::Shared)
            .map(|block| block.name_any())
            .collect();
        self.empty.retain(|name, _| there.contains(name));
        Ok(())
    }

    async fn count_shared(&mut self, ground: &Ground, block: &IpBlock, used: u128) -> Result<(), Failure> {
        let name = block.name_any();
        let free = free_of_shared(ground, block, &self.addresses);
        let (used, free) = (clip(used), clip(free));
        let told = block.status.as_ref().map(|status| (status.used, status.free));
        let recent = self
            .told
            .get(&name)
            .is_some_and(|at| at.elapsed() < self.context.config.mirror);
        if told == Some((used, free)) || recent {
            return Ok(());
        }
        let status = IpBlockStatus {
            used,
            free,
            mirrored_at: Some(now()),
            ..IpBlockStatus::default()
        };
        tell::<IpBlock>(&self.context.cluster.blocks, &name, &status).await?;
        self.told.insert(name, Instant::now());
        Ok(())
    }

    /// Frees a shared block that has been empty for the cooldown of the pool, or for one observation period if that is
    /// longer.
    async fn end_shared(&mut self, ground: &Ground, block: &IpBlock, cell: Cell) -> Result<(), Failure> {
        let name = block.name_any();
        let since = *self.empty.entry(name.clone()).or_insert_with(Instant::now);
        let cooldown = Duration::from_secs(u64::try_from(ground.spec.cooldown_seconds).unwrap_or_default());
        if since.elapsed() < self.context.config.observe.max(cooldown) {
            return Ok(());
        }
        let there: Vec<IpAddress> = list(
            &self.context.cluster.addresses,
            &format!("spec.block={}", cell.cidr()),
        )
        .await?;
        let space = &ground.spec.address_space;
        if there.iter().any(|address| ip_in(address, space).is_some()) {
            self.empty.remove(&name);
            return Ok(());
        }
        if remove(&self.context.cluster.blocks, block).await? == Written::Done(()) {
            let evidence = "no address of it is in use, twice";
            tracing::info!(pool = %ground.name, block = name, seconds = since.elapsed().as_secs(), evidence, "a shared block is free again");
        }
        self.empty.remove(&name);
        Ok(())
    }
}
