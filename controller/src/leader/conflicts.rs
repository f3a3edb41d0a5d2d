// SPDX-License-Identifier: Apache-2.0
//! Blocks and addresses that keep a pool out of its address space: those that a pool has left behind and another one would cut
//! into other blocks, and blocks that two pools would claim for different addresses.
//!
//! Invariant: a node that claims a block finds each address object in it by the name of that block (`spec.block`). So the
//! controller lists no pool whose addresses contain a block, or an address object, of another cut.

use super::Leader;
use api::accepted_pool::AcceptedPool;
use api::block_layout::BlockCidr;
use api::convert::{cidr_of, ip_in, named_block};
use api::listing::{Listing, addresses, check, find_entry, shift, split_block};
use api::requests::ReconcileError;
use api::{AddressSpaceSpec, IpAddress, IpBlock, IpPool, PoolEntry};
use ipam::interval::IntervalSet;
use ipam::range::{Family, bits};
use kube::ResourceExt;
use kube::runtime::reflector::ObjectRef;
use std::borrow::Borrow;
use std::sync::Arc;

/// The addresses that a pool adds to the list of its address space.
pub(super) struct AddedAddresses<'a> {
    space: &'a str,
    listed: &'a PoolEntry,
    v4: IntervalSet,
    v6: IntervalSet,
}

impl<'a> AddedAddresses<'a> {
    /// The addresses of `listed` that are not in `old`, the entry of the same pool before. Without a range of a family, a pool cuts
    /// that family into single addresses: objects made meanwhile name such blocks, so a returned range is searched again.
    pub(super) fn new(space: &'a str, listed: &'a PoolEntry, old: Option<&PoolEntry>) -> Self {
        let added = |family| {
            let old = old.filter(|old| shift(old, family) == shift(listed, family));
            let old = old.map(|old| addresses(old, family)).unwrap_or_default();
            addresses(listed, family).minus(&old)
        };
        Self {
            space,
            listed,
            v4: added(Family::V4),
            v6: added(Family::V6),
        }
    }

    fn is_empty(&self) -> bool {
        self.v4.is_empty() && self.v6.is_empty()
    }

    fn of(&self, family: Family) -> &IntervalSet {
        match family {
            Family::V4 => &self.v4,
            Family::V6 => &self.v6,
        }
    }

    fn shift(&self, family: Family) -> u32 {
        u32::from(shift(self.listed, family))
    }

    /// Describes a block of another size that contains added addresses.
    fn conflicting_block(&self, names: &[String]) -> Option<String> {
        let prefix = format!("{}-", self.space);
        let conflicts = |name: &&String| {
            let cidr = name.strip_prefix(&prefix).and_then(BlockCidr::from_name);
            cidr.is_some_and(|cidr| {
                let added = self.of(cidr.family()).within(cidr.interval());
                cidr.shift() != self.shift(cidr.family()) && !added.is_empty()
            })
        };
        let name = names.iter().find(conflicts)?;
        Some(format!(
            "block {name} has another size and contains addresses of this pool; the conflict ends when the pods with addresses of the block are deleted"
        ))
    }

    /// Describes an address object that lies in the added addresses and names a block of another size.
    fn conflicting_address(&self, there: &[impl Borrow<IpAddress>]) -> Option<String> {
        let conflicts = |address: &&IpAddress| {
            let cut = named_block(address).map(BlockCidr::shift);
            ip_in(address, self.space).is_some_and(|ip| {
                let family = Family::of(ip);
                cut != Some(self.shift(family)) && self.of(family).contains(bits(ip))
            })
        };
        let address = there.iter().map(Borrow::borrow).find(conflicts)?;
        Some(format!(
            "ipaddresses.rdmanet.io {} of pool {} is an address of this pool too, and the two pools cut it into blocks of different sizes; the conflict ends when its pod is deleted, or the StatefulSet that keeps the address",
            address.metadata.name.as_deref().unwrap_or_default(),
            address.spec.pool
        ))
    }
}

impl Leader {
    /// Describes a block that the spec adds to the pool and that contains a subnet of another listed pool. The first of the two
    /// pools that claims the block has it, so the other one could never use its own addresses there.
    pub(super) fn split_conflict(
        &self,
        pool: &IpPool,
        accepted: &AcceptedPool,
        space: &AddressSpaceSpec,
    ) -> Option<String> {
        let before = AcceptedPool::of(pool).ok().flatten();
        space.pools.iter().find_map(|listed| {
            let other = self.context.pools.get(&ObjectRef::new(&listed.name))?;
            if listed.name == accepted.name.as_str() || other.uid().as_ref() != Some(&listed.uid) {
                return None;
            }
            // The watch may not show yet that the pool was accepted.
            let theirs = AcceptedPool::of(&other).ok().flatten();
            let theirs = theirs.or_else(|| AcceptedPool::new(&other, &other.spec, 0).ok())?;
            let split = split_block(accepted, before.as_ref(), &theirs)?;
            let member = match split.cidr.family() {
                Family::V4 => "v4",
                Family::V6 => "v6",
            };
            Some(format!(
                "block {} contains addresses of pool {} too, and a block serves one pool only; make both pools anew with blockSize.{member}: {} or smaller",
                split.cidr.name(&accepted.spec.address_space),
                listed.name,
                split.size
            ))
        })
    }

    /// The blocks of other pools that have addresses in common with this one.
    pub(super) fn blocks_of_others(&self, accepted: &AcceptedPool) -> Vec<Arc<IpBlock>> {
        let name = &accepted.spec.address_space;
        let spaces = self.spaces();
        let others = spaces
            .iter()
            .find(|space| space.name_any() == *name)
            .and_then(
                |space| match check(&space.spec, find_entry(&space.spec, accepted)?) {
                    Listing::Accepted(others) => Some(others),
                    Listing::Conflict { .. } => None,
                },
            );
        let others = others.unwrap_or_default();
        if others.is_empty() {
            return Vec::new();
        }
        let is_theirs = |block: &Arc<IpBlock>| {
            let is_here = |cidr: BlockCidr| cidr.name(name) == block.name_any();
            others.contains(&block.spec.pool) && cidr_of(block).is_some_and(is_here)
        };
        self.blocks().into_iter().filter(is_theirs).collect()
    }

    /// Searches for a block or an address object of another cut in the addresses that a pool adds to the list. Both are read past
    /// every cache, because a pool that was removed from the list may have left some.
    pub(super) async fn find_conflict(
        &self,
        added: AddedAddresses<'_>,
    ) -> Result<Option<String>, ReconcileError> {
        if added.is_empty() {
            return Ok(None);
        }
        // A conflict lasts as long as a pod. The last list shows it without a request in each round.
        if let Some(conflict) = added.conflicting_address(&self.addresses) {
            return Ok(Some(conflict));
        }
        let names = self.context.api.list_names::<IpBlock>().await?;
        if let Some(conflict) = added.conflicting_block(&names) {
            return Ok(Some(conflict));
        }
        let there: Vec<IpAddress> = self.context.api.list("").await?;
        Ok(added.conflicting_address(&there))
    }
}

#[cfg(test)]
mod tests;
