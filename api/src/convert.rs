// SPDX-License-Identifier: Apache-2.0
//! Converts blocks and addresses between API objects and the state machine (crate `block`).

use crate::address::{AddressState, IpAddress};
use crate::block::{BlockState, IpBlock, IpBlockSpec, NodeRef, Orphaned};
use crate::block_layout::{BlockCidr, address_name};
use block::{BlockRecord, Owner, Phase};
use ipnetwork::IpNetwork;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use k8s_openapi::jiff::{SignedDuration, Timestamp};
use kube::{Resource, ResourceExt};
use std::net::IpAddr;
use std::time::Duration;

/// The finalizer of a block that has an owner. If a person deletes the block, the owner returns it. Until then the block
/// stays, as long as a pod has an address of it.
pub const LEASES: &str = "rdmanet.io/leases";

/// The annotation of a block that a node claims again because its pods have addresses of it. A node that dies before its first
/// report leaves a block in use.
pub const IN_USE: &str = "rdmanet.io/in-use";

const SECOND: SignedDuration = SignedDuration::from_secs(1);

/// The current time, for a field of an object.
pub fn now() -> Time {
    Time(Timestamp::now())
}

/// The fields of a block that the state machine uses.
pub fn block_record(block: &IpBlock) -> BlockRecord {
    BlockRecord {
        owner: owner(&block.spec.owner),
        epoch: u64::try_from(block.spec.epoch).unwrap_or_default(),
        phase: match block.spec.state {
            BlockState::Active => Phase::Active,
            BlockState::Draining => Phase::Draining,
            BlockState::Orphaned => Phase::Orphaned,
            BlockState::Shared => Phase::Shared,
        },
    }
}

/// Whether addresses were in use in the last report of the owner, or at its claim if it has not reported since.
pub fn in_use(block: &IpBlock) -> bool {
    let claimed_in_use = || block.annotations().contains_key(IN_USE);
    block
        .status
        .as_ref()
        .map_or_else(claimed_in_use, |status| status.used > 0)
}

/// The fields of an address object that the state machine uses. An address passes on as a block does. A kept address has
/// no user, so it counts as orphaned.
pub fn address_record(address: &IpAddress) -> BlockRecord {
    BlockRecord {
        owner: owner(&address.spec.node),
        epoch: 1,
        phase: match address.spec.state {
            AddressState::Bound => Phase::Active,
            AddressState::Orphaned | AddressState::Kept => Phase::Orphaned,
        },
    }
}

/// Changes an address object so that a write gives it a new version and a DELETE in flight fails its precondition. The
/// API server ignores a write that changes nothing, and its times are whole seconds. So two renewals in one second must
/// differ.
pub fn renewed(mut address: IpAddress) -> IpAddress {
    let after = |Time(since): Time| Time(since.saturating_add(SECOND).unwrap_or(since));
    address.spec.since = address.spec.since.map(after).max(Some(now()));
    address
}

/// The address of an object, if the object belongs to the address space `space`. The whole name is compared: `fab-2` is
/// another address space than `fab`.
pub fn ip_in(address: &IpAddress, space: &str) -> Option<IpAddr> {
    let ip: IpAddr = address.spec.address.parse().ok()?;
    (address.metadata.name.as_deref() == Some(address_name(space, ip).as_str())).then_some(ip)
}

/// A node in the form of the state machine.
pub fn owner(node: &NodeRef) -> Owner {
    Owner {
        node: node.node.as_str().into(),
        uid: node.node_uid.as_str().into(),
    }
}

/// A node in the form of the API objects.
pub fn node_ref(owner: &Owner) -> NodeRef {
    NodeRef {
        node: owner.node.to_string(),
        node_uid: owner.uid.to_string(),
    }
}

/// The object `name` that claims a block. `quarantine` is that of the claiming node.
pub fn new_block(name: &str, pool: &str, cidr: BlockCidr, by: &Owner, quarantine: Duration) -> IpBlock {
    let seen = BlockRecord::claimed(by);
    let spec = IpBlockSpec {
        pool: pool.to_owned(),
        cidr: cidr.network().to_string(),
        owner: node_ref(by),
        epoch: i64::try_from(seen.epoch).unwrap_or(1),
        state: BlockState::Active,
        quarantine_seconds: i64::try_from(quarantine.as_secs()).ok(),
        orphaned: None,
    };
    let mut block = IpBlock::new(name, spec);
    block.metadata.finalizers = Some(vec![LEASES.to_owned()]);
    block
}

/// `block` with the fields of `to`, changed by `by`: the name of a node whose agent writes, or of the controller. The version
/// stays: it is the precondition.
pub fn with_record(block: &IpBlock, to: &BlockRecord, by: &str) -> IpBlock {
    let mut block = block.clone();
    block.spec.owner = node_ref(&to.owner);
    block.spec.epoch = i64::try_from(to.epoch).unwrap_or(i64::MAX);
    block.spec.state = match to.phase {
        Phase::Active => BlockState::Active,
        Phase::Draining => BlockState::Draining,
        Phase::Orphaned => BlockState::Orphaned,
        Phase::Shared => BlockState::Shared,
    };
    block.spec.orphaned = (to.phase == Phase::Orphaned).then(|| Orphaned {
        by: by.to_owned(),
        since: now(),
    });
    finalize(&mut block);
    block
}

/// Adds the finalizer to a block with an owner. Removes it from a shared block, whose addresses are objects of their own.
/// The API server refuses a new finalizer on an object that is being deleted.
fn finalize(block: &mut IpBlock) {
    let has = block.finalizers().iter().any(|name| name == LEASES);
    if block.spec.state == BlockState::Shared {
        block.finalizers_mut().retain(|name| name != LEASES);
    } else if !has && block.metadata.deletion_timestamp.is_none() {
        block.finalizers_mut().push(LEASES.to_owned());
    }
}

/// The addresses of a block, or `None` if its `cidr` is unreadable, which the rules of the API server prevent.
pub fn cidr_of(block: &IpBlock) -> Option<BlockCidr> {
    BlockCidr::of(block.spec.cidr.parse::<IpNetwork>().ok()?)
}

/// The addresses of a block, if the block belongs to the address space `space`. A pool that was created again under its name may
/// have blocks of the earlier pool in another one.
pub fn cidr_in(block: &IpBlock, space: &str) -> Option<BlockCidr> {
    cidr_of(block).filter(|cidr| block.metadata.name.as_deref() == Some(cidr.name(space).as_str()))
}

/// The block that an address object names (`spec.block`), or `None` if the text is no network.
pub fn named_block(address: &IpAddress) -> Option<BlockCidr> {
    BlockCidr::of(address.spec.block.parse::<IpNetwork>().ok()?)
}

/// The version of an object as a number, to find the newer of two (Kubernetes API concepts, "Resource versions").
pub fn version_number(object: &impl Resource) -> u64 {
    let text = object.meta().resource_version.as_deref();
    text.and_then(|text| text.parse().ok()).unwrap_or_default()
}

#[cfg(test)]
mod tests;
