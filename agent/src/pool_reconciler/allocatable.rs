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

/// The addresses that the plugin allocates to any pod, and the use of the blocks that this node knows, by name.
pub(super) struct Allocatable<'u> {
    v4: IntervalSet,
    v6: IntervalSet,
    pub(super) usage: &'u BTreeMap<String, Usage>,
}

impl<'u> Allocatable<'u> {
    /// Those of the pool whose file is `file`. No file and a file that the plugin refuses have none.
    pub(super) fn of(file: Option<&PoolFile>, usage: &'u BTreeMap<String, Usage>) -> Self {
        let ranges = file.and_then(|file| PoolRanges::new(file, Path::new("pool.json")).ok());
        let usable = |family| {
            ranges
                .as_ref()
                .map_or_else(IntervalSet::default, |ranges| ranges.usable(family))
        };
        Self {
            v4: usable(Family::V4),
            v6: usable(Family::V6),
            usage,
        }
    }

    /// The use of the block `name`.
    pub(super) fn used(&self, name: &str) -> Usage {
        self.usage.get(name).copied().unwrap_or_default()
    }

    /// The number of free addresses of the block `name` with these addresses.
    pub(super) fn free(&self, name: &str, cidr: BlockCidr) -> u64 {
        let usable = match cidr.family() {
            Family::V4 => &self.v4,
            Family::V6 => &self.v6,
        };
        let all = u64::try_from(usable.within(cidr.interval()).count()).unwrap_or(u64::MAX);
        all.saturating_sub(self.used(name).taken())
    }
}

/// The number of free addresses of `family` in the active blocks of `file`. `usage` has the blocks' use by name.
pub(super) fn free_local(
    accepted: &AcceptedPool,
    family: Family,
    file: Option<&PoolFile>,
    usage: &BTreeMap<String, Usage>,
) -> u64 {
    let allocatable = Allocatable::of(file, usage);
    let in_pool = |cidr: &BlockCidr| accepted.layout(family).is_some_and(|layout| layout.has(*cidr));
    file.into_iter()
        .flat_map(PoolFile::active)
        .filter_map(|block| Some((BlockCidr::of(block.cidr).filter(in_pool)?, &block.name)))
        .map(|(cidr, name)| allocatable.free(name, cidr))
        .fold(0, u64::saturating_add)
}

#[cfg(test)]
mod tests;
