// SPDX-License-Identifier: Apache-2.0
//! Addresses that this node holds back though the pool does not reserve them: they are objects, and so perhaps somebody's.
//!
//! Two things lead there: an address was reserved and is not any more, and a block was claimed that has objects. Holds
//! always: before an address counts as this node's to give, the node has told the generation that it goes by (or has claimed
//! the block), and has looked for objects after that. Whoever makes an object reads the block after that, and
//! refuses if it sees the newer generation; so one of the two sees the other.

use super::{Target, Worker};
use crate::agent::Failure;
use crate::api::{BlockState, IpBlock};
use crate::grid::Cell;
use crate::object::seen;
use block::Owner;
use block::owner::Me;
use ipam::pool::{PoolFile, PoolRanges};
use ipam::range::{Family, bits};
use std::net::IpAddr;
use std::path::Path;
use std::time::Instant;

impl Worker {
    /// What of the file's `reserved` is to stay though the spec does not have it.
    pub(super) async fn held_back(&mut self, target: &Target) -> Result<Vec<String>, Failure> {
        let file = self.file().await?;
        let (Some(file), Some(ground)) = (file, &target.ground) else {
            return Ok(Vec::new());
        };
        let mut more = file.reserved.clone();
        more.retain(|entry| !ground.spec.reserved.contains(entry));
        let recent = self
            .looked_back
            .is_some_and(|at| at.elapsed() < self.agent.config.observe);
        if more.is_empty() || recent || !self.has_noted(ground.generation) {
            return Ok(more);
        }
        let kept = PoolFile {
            reserved: more,
            ..file
        };
        let ranges = PoolRanges::new(&kept, Path::new("pool.json"))?;
        let mut back = Vec::new();
        for cell in kept.blocks.iter().filter_map(|block| Cell::of(block.cidr)) {
            let family = Family::of(cell.cidr().ip());
            let kept = ranges.reserved(family);
            if kept.both(&[cell.interval()].into_iter().collect()).is_empty() {
                continue;
            }
            let there = self.objects_in(&ground.spec.address_space, cell).await?;
            let inside = there.into_iter().filter(|ip| kept.contains(bits(*ip)));
            back.extend(inside.map(|ip: IpAddr| ip.to_string()));
        }
        self.looked_back = Some(Instant::now());
        Ok(back)
    }

    /// Whether each block of this node tells that the node goes by `generation`.
    fn has_noted(&self, generation: i64) -> bool {
        let Some(Me::Registered(me)) = self.agent.me() else {
            return false;
        };
        noted_by_all(self.blocks().values(), &me, generation)
    }
}

/// Whether each of `blocks` that `me` gives from tells this generation.
fn noted_by_all<'a>(blocks: impl IntoIterator<Item = &'a IpBlock>, me: &Owner, generation: i64) -> bool {
    let mine = blocks
        .into_iter()
        .filter(|block| seen(block).owner == *me && block.spec.state != BlockState::Shared);
    let noted = |block: &IpBlock| block.status.as_ref()?.observed_generation;
    mine.map(noted).all(|noted| noted == Some(generation))
}

#[cfg(test)]
mod tests;
