// SPDX-License-Identifier: Apache-2.0
//! How many addresses of its blocks this node can allocate by itself.
//!
//! Invariant: the plugin allocates from the same addresses. They come from `pool.json`, which also reserves those that this node
//! withholds, and not from the pool's spec.

use api::accepted_pool::AcceptedPool;
use api::block_layout::BlockCidr;
use block::Usage;
use ipam::interval::IntervalSet;
use ipam::pool::{PoolFile, PoolRanges};
use ipam::range::Family;
use std::collections::BTreeMap;
use std::path::Path;

/// The addresses that the plugin allocates to any pod, as far as this node has their blocks.
#[derive(Default)]
pub(super) struct Allocatable {
    v4: IntervalSet,
    v6: IntervalSet,
}

impl Allocatable {
    /// Those of the pool whose file is `file`. No file and a file that the plugin refuses have none.
    pub(super) fn of(file: Option<&PoolFile>) -> Self {
        let ranges = file.and_then(|file| PoolRanges::new(file, Path::new("pool.json")).ok());
        ranges.map_or_else(Self::default, |ranges| Self {
            v4: ranges.usable(Family::V4),
            v6: ranges.usable(Family::V6),
        })
    }

    /// The number of free addresses of the block `cidr`, of which `used` are in use.
    pub(super) fn free(&self, cidr: BlockCidr, used: Usage) -> u64 {
        let usable = match cidr.family() {
            Family::V4 => &self.v4,
            Family::V6 => &self.v6,
        };
        let all = u64::try_from(usable.within(cidr.interval()).count()).unwrap_or(u64::MAX);
        all.saturating_sub(used.taken())
    }
}

/// The number of free addresses of `family` in the active blocks of `file`. `usage` has the blocks' use by name.
pub(super) fn free_local(
    accepted: &AcceptedPool,
    family: Family,
    file: Option<&PoolFile>,
    usage: &BTreeMap<String, Usage>,
) -> u64 {
    let allocatable = Allocatable::of(file);
    let in_pool = |cidr: &BlockCidr| accepted.layout(family).is_some_and(|layout| layout.has(*cidr));
    file.into_iter()
        .flat_map(PoolFile::active)
        .filter_map(|block| Some((BlockCidr::of(block.cidr).filter(in_pool)?, &block.name)))
        .map(|(cidr, name)| allocatable.free(cidr, usage.get(name).copied().unwrap_or_default()))
        .fold(0, u64::saturating_add)
}

#[cfg(test)]
mod tests;
