// SPDX-License-Identifier: Apache-2.0
//! Shared blocks: which is to be shared when nodes find no address, how far the shared ones are used, and when they end.
//!
//! Holds always: nothing here decides about an address. A block becomes shared by its owner alone, and whoever claims one that
//! was ended looks for objects of its addresses.

use super::Keeper;
use crate::agent::Failure;
use crate::api::{BlockState, IpAddress, IpBlock, IpBlockStatus, IpPoolStatus};
use crate::cluster::{Written, delete, list, tell};
use crate::grid::Cell;
use crate::ground::Ground;
use crate::object::{cell, now};
use ipam::interval::{Interval, IntervalSet};
use ipam::range::{Family, bits};
use kube::ResourceExt;
use std::collections::HashSet;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// For how many observations an owner that was asked has time to begin.
const PATIENCE: u32 = 2;

/// For how many it is not asked again.
const PAUSE: u32 = 20;

/// A family of a pool in numbers.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Left {
    /// Addresses in no block.
    pub(super) unclaimed: u128,
    /// Addresses of shared blocks that nobody has.
    pub(super) shared: u128,
}

impl Keeper {
    /// The addresses of `cell` that are objects, as last listed.
    fn objects_in(&self, space: &str, cell: Cell) -> IntervalSet {
        let (block, prefix) = (cell.cidr().to_string(), format!("{space}-"));
        let inside = self
            .addresses
            .iter()
            .filter(|address| address.spec.block == block && address.name_any().starts_with(&prefix));
        inside
            .filter_map(|address| address.spec.address.parse::<IpAddr>().ok())
            .map(|ip| Interval {
                first: bits(ip),
                last: bits(ip),
            })
            .collect()
    }

    /// The addresses of a shared block that nobody has.
    pub(super) fn free_of_shared(&self, ground: &Ground, block: &IpBlock) -> u128 {
        let Some(cell) = cell(block) else { return 0 };
        let Some(grid) = ground.grid(Family::of(cell.cidr().ip())) else {
            return 0;
        };
        let taken = self.objects_in(&ground.spec.address_space, cell);
        grid.usable(cell).minus(&taken).count()
    }

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
                left.shared += self.free_of_shared(ground, block);
            }
        }
        left
    }

    /// Answers the wishes of nodes: names the block with most addresses to spare, one at a time, until there are some to share.
    pub(super) fn share(&mut self, ground: &Ground, blocks: &[Arc<IpBlock>], status: &mut IpPoolStatus) {
        let observe = self.agent.config.observe;
        self.asked.retain(|_, since| since.elapsed() < observe * PAUSE);
        let mut wanted = status.wanted.take().unwrap_or_default();
        let mut sharing = Vec::new();
        for family in [Family::V4, Family::V6] {
            let wish = match family {
                Family::V4 => &mut wanted.v4,
                Family::V6 => &mut wanted.v6,
            };
            if wish.is_none() {
                continue;
            }
            let left = self.left(ground, blocks, family);
            if !ground.has_blocks() || left.unclaimed > 0 || left.shared > 0 {
                *wish = None;
                continue;
            }
            match self.block_to_share(ground, blocks, family, &status.sharing) {
                Some(name) => sharing.push(name),
                None => *wish = None,
            }
        }
        status.sharing = sharing;
        status.wanted = (wanted.v4.is_some() || wanted.v6.is_some()).then_some(wanted);
    }

    /// The block that is asked for already, or the next one.
    fn block_to_share(
        &mut self,
        ground: &Ground,
        blocks: &[Arc<IpBlock>],
        family: Family,
        before: &[String],
    ) -> Option<String> {
        let patience = self.agent.config.observe * PATIENCE;
        let candidates: Vec<&Arc<IpBlock>> = blocks
            .iter()
            .filter(|block| matches!(block.spec.state, BlockState::Active | BlockState::Draining))
            .filter(|block| {
                cell(block).is_some_and(|cell| Family::of(cell.cidr().ip()) == family && ground.has(cell))
            })
            .filter(|block| !self.seems_gone(&block.spec.owner))
            .collect();
        let waiting = candidates.iter().map(|block| block.name_any()).find(|name| {
            before.contains(name)
                && self
                    .asked
                    .get(name)
                    .is_none_or(|since| since.elapsed() < patience)
        });
        if let Some(name) = waiting {
            self.asked.entry(name.clone()).or_insert_with(Instant::now);
            return Some(name);
        }
        let free = |block: &IpBlock| block.status.as_ref().map_or(0, |status| status.free);
        let next = candidates
            .into_iter()
            .filter(|block| free(block) > 0 && !self.asked.contains_key(&block.name_any()))
            .max_by_key(|block| (free(block), std::cmp::Reverse(block.name_any())))?;
        tracing::info!(
            pool = %ground.name, block = next.name_any(), node = next.spec.owner.node, free = free(next),
            "nodes find no address: this block is to be shared"
        );
        self.asked.insert(next.name_any(), Instant::now());
        Some(next.name_any())
    }

    /// Tells how far shared blocks are used, and ends those that nobody has had an address of for a while.
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
            let used = self.objects_in(&ground.spec.address_space, cell).count();
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
        let clip = |number: u128| i64::try_from(number).unwrap_or(i64::MAX);
        let (used, free) = (clip(used), clip(self.free_of_shared(ground, block)));
        let told = block.status.as_ref().map(|status| (status.used, status.free));
        let recent = self
            .told
            .get(&name)
            .is_some_and(|at| at.elapsed() < self.agent.config.mirror);
        if told == Some((used, free)) || recent {
            return Ok(());
        }
        let status = IpBlockStatus {
            used,
            free,
            mirrored_at: Some(now()),
            ..IpBlockStatus::default()
        };
        tell::<IpBlock>(&self.agent.cluster.blocks, &name, &status).await?;
        self.told.insert(name, Instant::now());
        Ok(())
    }

    /// Ends a shared block without addresses, once it has been so for as long as one rests.
    async fn end_shared(&mut self, ground: &Ground, block: &IpBlock, cell: Cell) -> Result<(), Failure> {
        let name = block.name_any();
        let since = *self.empty.entry(name.clone()).or_insert_with(Instant::now);
        let cooldown = Duration::from_secs(u64::try_from(ground.spec.cooldown_seconds).unwrap_or_default());
        if since.elapsed() < self.agent.config.observe.max(cooldown) {
            return Ok(());
        }
        let there: Vec<IpAddress> = list(
            &self.agent.cluster.addresses,
            &format!("spec.block={}", cell.cidr()),
        )
        .await?;
        let prefix = format!("{}-", ground.spec.address_space);
        if there
            .iter()
            .any(|address| address.name_any().starts_with(&prefix))
        {
            self.empty.remove(&name);
            return Ok(());
        }
        if delete(&self.agent.cluster.blocks, block).await? == Written::Done(()) {
            let evidence = "no address of it is in use, twice";
            tracing::info!(pool = %ground.name, block = name, seconds = since.elapsed().as_secs(), evidence, "a shared block is free again");
        }
        self.empty.remove(&name);
        Ok(())
    }
}
