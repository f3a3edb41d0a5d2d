// SPDX-License-Identifier: Apache-2.0
//! Which blocks this node does not need and can return.

use super::allocatable::Allocatable;
use super::context::Target;
use api::block_layout::BlockCidr;
use ipam::pool::PoolFile;
use std::collections::{BTreeSet, HashMap};
use std::time::{Duration, Instant};

/// An active block that the node may not need.
struct Spare<'a> {
    name: &'a str,
    /// The number of its free addresses.
    free: u64,
    /// None of its addresses has been in use for a while.
    rested: bool,
}

/// The rested blocks that the node can return and still have `wanted` free addresses.
fn without<'a>(blocks: &[Spare<'a>], wanted: u64) -> Vec<&'a str> {
    let mut free = blocks
        .iter()
        .fold(0_u64, |sum, block| sum.saturating_add(block.free));
    let mut spare = Vec::new();
    for block in blocks {
        if block.rested && free.saturating_sub(block.free) >= wanted {
            free = free.saturating_sub(block.free);
            spare.push(block.name);
        }
    }
    spare
}

/// Since when each block is idle.
#[derive(Default)]
pub(super) struct IdleBlocks(HashMap<String, Instant>);

impl IdleBlocks {
    /// The blocks that this node does not need: they have been idle for `rest`, and enough addresses are free without them.
    pub(super) fn surplus(
        &mut self,
        rest: Duration,
        target: &Target,
        file: Option<&PoolFile>,
        allocatable: &Allocatable<'_>,
    ) -> BTreeSet<String> {
        let idle_now: BTreeSet<String> = allocatable
            .usage
            .iter()
            .filter(|(_, used)| used.is_idle())
            .map(|(name, _)| name.clone())
            .collect();
        self.0.retain(|name, _| idle_now.contains(name));
        for name in idle_now {
            self.0.entry(name).or_insert_with(Instant::now);
        }
        let (Some(accepted), Some(file)) = (&target.accepted, file) else {
            return BTreeSet::new();
        };
        let rested = |name: &str| {
            let since = self.0.get(name);
            since.is_some_and(|since| since.elapsed() >= rest)
        };
        let mut surplus = BTreeSet::new();
        for layout in &accepted.layouts {
            let blocks = file
                .active()
                .filter_map(|block| Some((block.name.as_str(), BlockCidr::of(block.cidr)?)))
                .filter(|(_, cidr)| layout.has(*cidr))
                .map(|(name, cidr)| Spare {
                    name,
                    free: allocatable.free(name, cidr),
                    rested: rested(name),
                })
                .collect::<Vec<_>>();
            let names = without(&blocks, accepted.free_target(layout.family()));
            surplus.extend(names.into_iter().map(str::to_owned));
        }
        surplus
    }
}

#[cfg(test)]
mod tests;
