// SPDX-License-Identifier: Apache-2.0
//! The utilization of a pool, from the last reports about its blocks and from its address objects.
//!
//! Invariant: each address counts once. The store of a node counts all addresses that its pods have in the node's own
//! blocks, whether they are objects or not. All other address objects are counted here.

use api::accepted_pool::AcceptedPool;
use api::block_layout::BlockCidr;
use api::convert::{cidr_of, ip_in};
use api::{AddressState, BlockState, Counters, IpAddress, IpBlock};
use ipam::interval::IntervalSet;
use ipam::range::{Family, bits, single};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use std::borrow::Borrow;
use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::Arc;

/// The utilization of a pool.
#[derive(Debug)]
pub(super) struct Usage {
    /// The numbers of addresses are those of `family`.
    pub(super) counters: Counters,
    /// The family with the fewest free addresses: a pod needs one address of each family, so this family is used up first.
    pub(super) family: Family,
    /// A family has no free address left, neither in blocks nor outside.
    pub(super) is_exhausted: bool,
    /// Attachments whose addresses are excluded now.
    pub(super) excluded: u64,
    /// Blocks outside the ranges.
    pub(super) outside: u64,
}

/// The blocks and the address objects of a pool.
#[derive(Default)]
struct Totals {
    families: HashMap<Family, FamilyTotals>,
    blocks: i64,
    excluded: u64,
    outside: u64,
    oldest: Option<Time>,
}

/// The addresses of one family.
#[derive(Clone, Copy, Default)]
struct FamilyTotals {
    /// Addresses in use: those that the owners of blocks report, and address objects that no block's owner counts.
    used: i64,
    /// Free addresses in blocks of the pool.
    free: i64,
    /// Usable addresses of the pool that lie in blocks, of this pool or another one. In a pool without blocks, also those that
    /// have an object.
    claimed: u128,
}

/// The address objects of an address space that lie in `cidr`, whichever pool created them.
pub(super) fn objects_in(addresses: &[impl Borrow<IpAddress>], space: &str, cidr: BlockCidr) -> IntervalSet {
    let block = cidr.network().to_string();
    let inside = addresses
        .iter()
        .map(Borrow::borrow)
        .filter(|address: &&IpAddress| address.spec.block == block);
    inside
        .filter_map(|address| ip_in(address, space))
        .map(single)
        .collect()
}

/// The number of free addresses of a shared block.
pub(super) fn free_of_shared(
    accepted: &AcceptedPool,
    block: &IpBlock,
    addresses: &[impl Borrow<IpAddress>],
) -> u128 {
    let Some(cidr) = cidr_of(block) else { return 0 };
    let taken = objects_in(addresses, &accepted.spec.address_space, cidr);
    accepted.usable(cidr).minus(&taken).count()
}

impl Usage {
    /// The utilization of the pool in force with its `blocks`. `blocks` and `addresses` may contain those of other pools: an address
    /// in a block of another pool is not free for this one.
    pub(super) fn of(
        accepted: &AcceptedPool,
        blocks: &[Arc<IpBlock>],
        addresses: &[impl Borrow<IpAddress>],
    ) -> Self {
        let mut totals = Totals::default();
        for block in blocks {
            totals.add_block(accepted, block, addresses);
        }
        totals.add_objects(accepted, blocks, addresses);
        let families = accepted.layouts.iter().map(|layout| {
            let numbers = totals.of(layout.family());
            let unclaimed = layout.addresses().saturating_sub(numbers.claimed);
            let free = saturate(unclaimed).saturating_add(numbers.free);
            (layout, free, unclaimed)
        });
        // If all addresses of a family are reserved, none of them is free at any time, and pods request them by name.
        let scarcest = families.min_by_key(|(layout, free, _)| (layout.addresses() == 0, *free));
        let (family, free, unclaimed) = scarcest.map_or((Family::V4, 0, 0), |(layout, free, unclaimed)| {
            (layout.family(), free, unclaimed)
        });
        Self {
            counters: Counters {
                size: saturate(accepted.size(family)),
                used: totals.of(family).used,
                free,
                unclaimed: saturate(unclaimed),
                blocks: totals.blocks,
                oldest: totals.oldest,
            },
            family,
            is_exhausted: free == 0,
            excluded: totals.excluded,
            outside: totals.outside,
        }
    }
}

impl Totals {
    fn of(&self, family: Family) -> FamilyTotals {
        self.families.get(&family).copied().unwrap_or_default()
    }

    fn of_mut(&mut self, family: Family) -> &mut FamilyTotals {
        self.families.entry(family).or_default()
    }

    fn keep_oldest(&mut self, time: Option<Time>) {
        self.oldest = self.oldest.take().into_iter().chain(time).min();
    }

    fn add_block(&mut self, accepted: &AcceptedPool, block: &IpBlock, addresses: &[impl Borrow<IpAddress>]) {
        let Some(cidr) = cidr_of(block) else { return };
        let usable = accepted.usable(cidr).count();
        if block.spec.pool != accepted.name.as_str() {
            self.of_mut(cidr.family()).claim(usable);
            return;
        }
        self.blocks = self.blocks.saturating_add(1);
        let is_shared = block.spec.state == BlockState::Shared;
        // The last report about a shared block may be from the time when it had an owner.
        if let Some(status) = block.status.as_ref().filter(|_| !is_shared) {
            let family = self.of_mut(cidr.family());
            family.used = family.used.saturating_add(status.used);
            self.keep_oldest(status.oldest.clone());
        }
        if !accepted.reaches(cidr) {
            self.outside += 1;
            return;
        }
        let excluded = block.status.as_ref().map_or(0, |status| status.excluded);
        self.excluded = self
            .excluded
            .saturating_add(u64::try_from(excluded).unwrap_or_default());
        if !accepted.has(cidr) {
            // Exclusions cover the whole block.
            return;
        }
        let free = match (&block.status, block.spec.state) {
            (_, BlockState::Shared) => saturate(free_of_shared(accepted, block, addresses)),
            (Some(status), BlockState::Active) => status.free,
            // There is no report yet. All usable addresses were free when the block was claimed.
            (None, BlockState::Active) => saturate(usable),
            (_, BlockState::Draining | BlockState::Orphaned) => 0,
        };
        let family = self.of_mut(cidr.family());
        family.claim(usable);
        family.free = family.free.saturating_add(free);
    }

    /// Adds the objects of the pool's addresses.
    fn add_objects(
        &mut self,
        accepted: &AcceptedPool,
        blocks: &[Arc<IpBlock>],
        addresses: &[impl Borrow<IpAddress>],
    ) {
        let is_own = |block: &&Arc<IpBlock>| block.spec.pool == accepted.name.as_str();
        let own = blocks.iter().filter(is_own);
        let unshared = own.filter(|block| block.spec.state != BlockState::Shared);
        let nodes: HashMap<&str, &str> = unshared
            .map(|block| (block.spec.cidr.as_str(), block.spec.owner.node.as_str()))
            .collect();
        let of_pool = |address: &&IpAddress| address.spec.pool == accepted.name.as_str();
        for address in addresses.iter().map(Borrow::borrow).filter(of_pool) {
            let spec = &address.spec;
            let is_bound = spec.state == AddressState::Bound;
            if is_bound {
                self.keep_oldest(spec.since.clone());
            }
            let node = nodes.get(spec.block.as_str());
            if is_bound && node.is_some_and(|node| *node == spec.node.node) {
                continue;
            }
            let Ok(ip) = spec.address.parse::<IpAddr>() else {
                continue;
            };
            // The machine of an orphaned address may still run.
            self.excluded += u64::from(spec.state != AddressState::Kept && is_excluded(accepted, ip));
            let family = self.of_mut(Family::of(ip));
            family.used = family
                .used
                .saturating_add(i64::from(spec.state != AddressState::Orphaned));
            family.claim(u128::from(!accepted.has_blocks() && is_allocatable(accepted, ip)));
        }
    }
}

impl FamilyTotals {
    fn claim(&mut self, addresses: u128) {
        self.claimed = self.claimed.saturating_add(addresses);
    }
}

/// Whether the pool allocates the address to any pod. Reserved and excluded addresses are not allocatable.
fn is_allocatable(accepted: &AcceptedPool, ip: IpAddr) -> bool {
    accepted.ranges.usable(Family::of(ip)).contains(bits(ip))
}

/// Whether the address lies between the first and the last address of a range that excludes it.
fn is_excluded(accepted: &AcceptedPool, ip: IpAddr) -> bool {
    let reaches = BlockCidr::containing(ip, 0).is_some_and(|cidr| accepted.reaches(cidr));
    reaches && accepted.ranges.range_of(ip).is_none()
}

/// The number in the type of an object's field; too large numbers become the maximum.
pub(super) fn saturate(number: u128) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests;
