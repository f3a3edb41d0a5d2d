// SPDX-License-Identifier: Apache-2.0
//! Which pools of an address space may be cut into blocks.
//!
//! Invariant: two listed pools with addresses in common cut them into the same blocks, so creating the name of a block
//! claims it for both pools. A stretch leaves the list only when no block of its pool lies in it.
//!
//! Invariant: each address object in the addresses of a listed pool names the block of that pool's cut. So a node that claims a
//! block finds the objects in it by the name of the block. The controller lists no pool over an object of another cut, and a node
//! that has created an object reads the list afterwards.

use crate::accepted_pool::AcceptedPool;
use crate::address_space::{AddressInterval, AddressSpaceSpec, MAX_STRETCHES, PoolEntry};
use crate::block_layout::{BlockCidr, BlockLayout};
use crate::pool::{Allocation, IpPoolSpec};
use ipam::interval::{Interval, IntervalSet};
use ipam::range::{Family, bits};
use ipnetwork::IpNetwork;
use std::collections::BTreeMap;
use std::net::IpAddr;

/// Whether a pool may be listed in its address space.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Listing {
    /// The pool may be listed. It has addresses in common with these pools.
    Accepted(Vec<String>),
    /// The pool may not be listed: another pool has some of its addresses and cuts them into other blocks.
    Conflict {
        /// The other pool.
        pool: String,
        /// One address that both have.
        ip: IpAddr,
    },
}

/// The entry of `accepted` in its address space.
pub fn entry(accepted: &AcceptedPool) -> PoolEntry {
    let shift = |family| {
        let layout = accepted.layout(family).map_or(0, BlockLayout::shift);
        // A pool without blocks creates one object for each address, which is a block of one.
        let shift = if accepted.spec.allocation == Allocation::PerAddress {
            0
        } else {
            layout
        };
        u8::try_from(shift).unwrap_or_default()
    };
    PoolEntry {
        name: accepted.name.to_string(),
        uid: accepted.uid.clone(),
        generation: accepted.generation,
        shift_v4: shift(Family::V4),
        shift_v6: shift(Family::V6),
        stretches: stretches(accepted),
        probe: false,
        later: BTreeMap::new(),
    }
}

/// The whole subnets of the ranges.
fn stretches(accepted: &AcceptedPool) -> Vec<AddressInterval> {
    let subnets = accepted
        .spec
        .ranges
        .iter()
        .filter_map(|range| range.subnet.parse::<ipnetwork::IpNetwork>().ok());
    subnets
        .map(|subnet| AddressInterval {
            first: subnet.network().to_string(),
            last: subnet.broadcast().to_string(),
        })
        .collect()
}

/// An address that both specs contain, if there is one: the first address of the first common subnet.
pub fn common_address(one: &IpPoolSpec, other: &IpPoolSpec) -> Option<IpAddr> {
    let subnets = |spec: &IpPoolSpec| -> Vec<IpNetwork> {
        let all = spec.ranges.iter();
        all.filter_map(|range| range.subnet.parse().ok()).collect()
    };
    let others = subnets(other);
    subnets(one).into_iter().find_map(|subnet| {
        // If two networks overlap, one contains the other.
        let other = others
            .iter()
            .find(|other| subnet.contains(other.network()) || other.contains(subnet.network()))?;
        Some(if subnet.prefix() > other.prefix() {
            subnet.network()
        } else {
            other.network()
        })
    })
}

/// A block that contains subnets of two pools, which have none of its addresses in common.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SplitBlock {
    /// The block. It serves only the pool that claims it.
    pub cidr: BlockCidr,
    /// The greatest size of blocks that separates the two subnets.
    pub size: u128,
}

/// The first block of `one`, not of its spec `before`, that both pools would claim for different addresses. A block may be larger
/// than a subnet, and then reaches outside.
pub fn split_block(
    one: &AcceptedPool,
    before: Option<&AcceptedPool>,
    other: &AcceptedPool,
) -> Option<SplitBlock> {
    if !one.has_blocks() || !other.has_blocks() {
        return None;
    }
    one.layouts.iter().find_map(|layout| {
        let (family, shift) = (layout.family(), layout.shift());
        other.layout(family).filter(|other| other.shift() == shift)?;
        let subnets = |pool| -> IntervalSet {
            let all = stretches(pool).into_iter();
            all.filter_map(|stretch| interval(&stretch, family)).collect()
        };
        let (ours, theirs) = (subnets(one), subnets(other));
        let known = before.map(subnets).unwrap_or_default();
        let split = blocks_over(&ours, shift)
            .minus(&blocks_over(&known, shift))
            .both(&blocks_over(&theirs, shift))
            .minus(&blocks_over(&ours.both(&theirs), shift));
        let cidr = BlockCidr::containing(family.address(split.first_from(0)?), shift)?;
        let first = |set: &IntervalSet| set.first_from(cidr.interval().first);
        let size = 1_u128 << (first(&ours)? ^ first(&theirs)?).checked_ilog2()?;
        Some(SplitBlock { cidr, size })
    })
}

/// The addresses of all blocks of `2^shift` addresses that contain a member of `set`.
fn blocks_over(set: &IntervalSet, shift: u32) -> IntervalSet {
    let within = 1_u128.checked_shl(shift).map_or(u128::MAX, |size| size - 1);
    let blocks = set.intervals().iter().map(|i| Interval {
        first: i.first & !within,
        last: i.last | within,
    });
    blocks.collect()
}

/// The addresses of `family` in the entry of a pool.
pub fn addresses(listed: &PoolEntry, family: Family) -> IntervalSet {
    let stretches = listed.stretches.iter();
    stretches
        .filter_map(|stretch| interval(stretch, family))
        .collect()
}

/// The addresses of a stretch as numbers, if they are of `family`.
fn interval(stretch: &AddressInterval, family: Family) -> Option<Interval> {
    let (first, last): (IpAddr, IpAddr) = (stretch.first.parse().ok()?, stretch.last.parse().ok()?);
    (Family::of(first) == family)
        .then(|| Interval::new(bits(first), bits(last)))
        .flatten()
}

/// The number of low bits in which the addresses of a block of the entry differ.
pub fn shift(listed: &PoolEntry, family: Family) -> u8 {
    match family {
        Family::V4 => listed.shift_v4,
        Family::V6 => listed.shift_v6,
    }
}

/// The entry of `accepted` in `space`.
pub fn find_entry<'s>(space: &'s AddressSpaceSpec, accepted: &AcceptedPool) -> Option<&'s PoolEntry> {
    let mut pools = space.pools.iter();
    pools.find(|listed| listed.name == accepted.name.as_str() && listed.uid == accepted.uid)
}

impl PoolEntry {
    /// Whether both entries are of one pool. A pool that is created again under its name is another one.
    pub fn is_of(&self, other: &Self) -> bool {
        self.name == other.name && self.uid == other.uid
    }

    /// Takes over what a controller wrote into `space`, which may have an earlier entry of the pool.
    pub fn carry_over(&mut self, space: &AddressSpaceSpec) {
        if let Some(before) = space.pools.iter().find(|before| before.name == self.name) {
            self.later.clone_from(&before.later);
        }
        self.probe |= space.requests_probes();
    }
}

impl AddressSpaceSpec {
    /// Whether a node probes the addresses of each block that it claims. An earlier controller requests probes in the entry of
    /// one pool only, although other pools may have the same addresses.
    pub fn requests_probes(&self) -> bool {
        self.probe || self.pools.iter().any(|listed| listed.probe)
    }

    /// Makes nodes probe. An earlier agent reads the entry of its pool only.
    pub fn enable_probes(&mut self) {
        self.probe = true;
        for listed in &mut self.pools {
            listed.probe = true;
        }
    }
}

/// Whether `pool` may be listed together with the other pools of `space`. The entry of an earlier pool of the same name, which
/// still has blocks, counts as one of these.
pub fn check(space: &AddressSpaceSpec, pool: &PoolEntry) -> Listing {
    let mut shared = Vec::new();
    for other in space.pools.iter().filter(|other| !other.is_of(pool)) {
        for family in [Family::V4, Family::V6] {
            let both = addresses(pool, family).both(&addresses(other, family));
            let Some(first) = both.first_from(0) else { continue };
            if shift(other, family) != shift(pool, family) {
                return Listing::Conflict {
                    pool: other.name.clone(),
                    ip: family.address(first),
                };
            }
            if other.name != pool.name && !shared.contains(&other.name) {
                shared.push(other.name.clone());
            }
        }
    }
    Listing::Accepted(shared)
}

/// The entry of `pool` while the blocks in `kept`, which the pool has already, still exist. It has the addresses of these blocks
/// too. If that makes more stretches than an entry may have, each stretch of the entry `before` that contains such a block stays
/// as a whole, so a removed range is one stretch for any number of blocks.
#[must_use]
pub fn with_intervals_of(mut pool: PoolEntry, before: Option<&PoolEntry>, kept: &[BlockCidr]) -> PoolEntry {
    let outside = |family| -> IntervalSet {
        let blocks = kept.iter().filter(|cidr| cidr.family() == family);
        let blocks: IntervalSet = blocks.map(|cidr| cidr.interval()).collect();
        blocks.minus(&addresses(&pool, family))
    };
    let outside = [Family::V4, Family::V6].map(|family| (family, outside(family)));
    let count: usize = outside.iter().map(|(_, set)| set.intervals().len()).sum();
    let is_short = pool.stretches.len() + count <= MAX_STRETCHES;
    for (family, mut outside) in outside {
        if !is_short {
            let whole = earlier_stretches(before, family, &mut outside);
            pool.stretches.extend(whole);
        }
        let rest = outside.intervals().iter().map(|i| AddressInterval {
            first: family.address(i.first).to_string(),
            last: family.address(i.last).to_string(),
        });
        pool.stretches.extend(rest);
    }
    pool
}

/// The stretches of `before` that contain a member of `outside`, from which it takes their addresses.
fn earlier_stretches(
    before: Option<&PoolEntry>,
    family: Family,
    outside: &mut IntervalSet,
) -> Vec<AddressInterval> {
    let mut earlier: Vec<(&AddressInterval, Interval)> = before
        .iter()
        .flat_map(|before| &before.stretches)
        .filter_map(|stretch| Some((stretch, interval(stretch, family)?)))
        .collect();
    // The widest first, since it may contain others.
    earlier.sort_by_key(|(_, interval)| std::cmp::Reverse(interval.count()));
    let mut found = Vec::new();
    for (stretch, interval) in earlier {
        if !outside.within(interval).is_empty() {
            *outside = outside.minus(&[interval].into_iter().collect());
            found.push(stretch.clone());
        }
    }
    found
}

/// Whether the space lists the pool with `ip`, cut as `accepted` cuts it. An edit that is not known here yet may have removed
/// the address, and another pool may have it since.
pub fn admits_address(space: &AddressSpaceSpec, accepted: &AcceptedPool, ip: IpAddr) -> bool {
    let (family, cut) = (Family::of(ip), accepted.block_of(ip).map(BlockCidr::shift));
    find_entry(space, accepted).is_some_and(|listed| {
        cut == Some(u32::from(shift(listed, family))) && addresses(listed, family).contains(bits(ip))
    })
}

/// Whether the space lists the pool with this block, from no newer spec than that of `accepted`.
pub fn admits(
    space: &AddressSpaceSpec,
    accepted: &AcceptedPool,
    layout: &BlockLayout,
    cidr: BlockCidr,
) -> bool {
    find_entry(space, accepted).is_some_and(|listed| {
        listed.generation <= accepted.generation
            && u32::from(shift(listed, layout.family())) == layout.shift()
            && layout
                .usable(cidr)
                .minus(&addresses(listed, layout.family()))
                .is_empty()
    })
}

#[cfg(test)]
mod tests;
