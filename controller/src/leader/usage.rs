// SPDX-License-Identifier: Apache-2.0
//! The utilization of a pool, from the last reports about its blocks and from its address objects.
//!
//! Invariant: each address counts once. The store of a node counts all addresses that its pods have in the node's own
//! blocks, whether they are objects or not. All other address objects are counted here.

use api::accepted_pool::AcceptedPool;
use api::block_layout::{BlockCidr, BlockLayout};
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
    pub(super) counters: Counters,
    /// No free address is left, neither in blocks nor outside.
    pub(super) is_exhausted: bool,
    /// Attachments whose addresses are excluded now.
    pub(super) excluded: u64,
    /// Blocks outside the ranges.
    pub(super) outside: u64,
}

/// The blocks of a pool.
#[derive(Default)]
struct BlockTotals {
    blocks: i64,
    used: i64,
    /// Free addresses in these blocks.
    free: i64,
    /// Usable addresses of the pool that lie in blocks, of this pool or another one.
    claimed: u128,
    excluded: i64,
    outside: u64,
    oldest: Option<Time>,
}

/// The objects of a pool's addresses.
#[derive(Default)]
struct AddressTotals {
    /// Address objects that no block's owner counts.
    used: i64,
    /// Address objects that take a usable address of a pool without blocks.
    taken: u128,
    /// Address objects in use that lie in the ranges and are excluded, and that no block's owner counts.
    excluded: u64,
    oldest: Option<Time>,
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
        let (inside, objects) = (
            BlockTotals::of(accepted, blocks, addresses),
            AddressTotals::of(accepted, blocks, addresses),
        );
        let all = accepted.layouts.iter().map(BlockLayout::addresses);
        let unclaimed = all
            .fold(0, u128::saturating_add)
            .saturating_sub(inside.claimed)
            .saturating_sub(objects.taken);
        Self {
            counters: Counters {
                size: saturate(accepted.size()),
                used: inside.used.saturating_add(objects.used),
                free: saturate(unclaimed).saturating_add(inside.free),
                unclaimed: saturate(unclaimed),
                blocks: inside.blocks,
                oldest: inside.oldest.into_iter().chain(objects.oldest).min(),
            },
            is_exhausted: unclaimed == 0 && inside.free == 0,
            excluded: u64::try_from(inside.excluded)
                .unwrap_or_default()
                .saturating_add(objects.excluded),
            outside: inside.outside,
        }
    }
}

impl BlockTotals {
    fn of(accepted: &AcceptedPool, blocks: &[Arc<IpBlock>], addresses: &[impl Borrow<IpAddress>]) -> Self {
        let mut all = Self::default();
        for block in blocks {
            all.add(accepted, block, addresses);
        }
        all
    }

    fn add(&mut self, accepted: &AcceptedPool, block: &IpBlock, addresses: &[impl Borrow<IpAddress>]) {
        if block.spec.pool != accepted.name.as_str() {
            let usable = cidr_of(block).map_or(0, |cidr| accepted.usable(cidr).count());
            self.claimed = self.claimed.saturating_add(usable);
            return;
        }
        self.blocks = self.blocks.saturating_add(1);
        let is_shared = block.spec.state == BlockState::Shared;
        // The last report about a shared block may be from the time when it had an owner.
        if let Some(status) = block.status.as_ref().filter(|_| !is_shared) {
            self.used = self.used.saturating_add(status.used);
            self.oldest = self.oldest.take().into_iter().chain(status.oldest.clone()).min();
        }
        let Some(cidr) = cidr_of(block) else { return };
        if !accepted.reaches(cidr) {
            self.outside += 1;
            return;
        }
        let excluded = block.status.as_ref().map_or(0, |status| status.excluded);
        self.excluded = self.excluded.saturating_add(excluded);
        if !accepted.has(cidr) {
            // Exclusions cover the whole block.
            return;
        }
        let usable = accepted.usable(cidr).count();
        self.claimed = self.claimed.saturating_add(usable);
        let free = match (&block.status, block.spec.state) {
            (_, BlockState::Shared) => saturate(free_of_shared(accepted, block, addresses)),
            (Some(status), BlockState::Active) => status.free,
            // There is no report yet. All usable addresses were free when the block was claimed.
            (None, BlockState::Active) => saturate(usable),
            (_, BlockState::Draining | BlockState::Orphaned) => 0,
        };
        self.free = self.free.saturating_add(free);
    }
}

impl AddressTotals {
    fn of(accepted: &AcceptedPool, blocks: &[Arc<IpBlock>], addresses: &[impl Borrow<IpAddress>]) -> Self {
        let is_own = |block: &&Arc<IpBlock>| block.spec.pool == accepted.name.as_str();
        let own = blocks.iter().filter(is_own);
        let unshared = own.filter(|block| block.spec.state != BlockState::Shared);
        let nodes: HashMap<&str, &str> = unshared
            .map(|block| (block.spec.cidr.as_str(), block.spec.owner.node.as_str()))
            .collect();
        let mut all = Self::default();
        let of_pool = |address: &&IpAddress| {
            address.spec.pool == accepted.name.as_str() && address.spec.state != AddressState::Orphaned
        };
        for address in addresses.iter().map(Borrow::borrow).filter(of_pool) {
            let spec = &address.spec;
            let is_bound = spec.state == AddressState::Bound;
            if is_bound {
                all.oldest = all.oldest.take().into_iter().chain(spec.since.clone()).min();
            }
            let node = nodes.get(spec.block.as_str());
            if is_bound && node.is_some_and(|node| *node == spec.node.node) {
                continue;
            }
            all.used = all.used.saturating_add(1);
            all.excluded += u64::from(is_bound && is_excluded(accepted, &spec.address));
            all.taken += u128::from(!accepted.has_blocks() && is_allocatable(accepted, &spec.address));
        }
        all
    }
}

/// Whether the pool allocates the address to any pod. Reserved and excluded addresses are not allocatable.
fn is_allocatable(accepted: &AcceptedPool, address: &str) -> bool {
    address
        .parse()
        .is_ok_and(|ip: IpAddr| accepted.ranges.usable(Family::of(ip)).contains(bits(ip)))
}

/// Whether the address lies between the first and the last address of a range that excludes it.
fn is_excluded(accepted: &AcceptedPool, address: &str) -> bool {
    address.parse().is_ok_and(|ip: IpAddr| {
        let reaches = BlockCidr::containing(ip, 0).is_some_and(|cidr| accepted.reaches(cidr));
        reaches && accepted.ranges.range_of(ip).is_none()
    })
}

/// The number in the type of an object's field; too large numbers become the maximum.
pub(super) fn saturate(number: u128) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests;
