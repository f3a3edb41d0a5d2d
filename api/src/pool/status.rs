// SPDX-License-Identifier: Apache-2.0
//! The status of a pool.

use super::IpPoolSpec;
use ipam::range::Family;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// The distance between the number of a spec and its generation, if they differ. An agent before `acceptedGeneration` compares
/// reports of numbers with the generation. So a number in force must not equal the generation of a later edit.
const NUMBER_GAP: i64 = 1000;

/// The most addresses of one pool whose release a node may request at once.
pub const MAX_REQUESTED_ADDRESSES: usize = 64;

/// The state of a pool, written by the controller.
#[derive(JsonSchema, Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct IpPoolStatus {
    /// The generation of the spec that conditions and counters describe.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// The number of the spec in `accepted`: its generation, or a greater number. It grows whenever `accepted` changes, and
    /// only then. Nodes report this number, since the spec of `observedGeneration` may not be in force.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub accepted_generation: Option<i64>,
    /// The conditions of the pool, by type.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["type"]))]
    pub conditions: Vec<Condition>,
    /// The numbers of addresses in the pool. If it has both families, `size`, `used`, `free` and `unclaimed` are those of the
    /// family with the fewest free addresses.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub counters: Option<Counters>,
    /// The requests of nodes to the controller, by the name of the node. The agent of a node writes the entry of that node. The
    /// controller removes a request once it has handled it.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub requests: BTreeMap<String, Option<NodeRequest>>,
    /// The blocks that their owners must share, because the pool is full. The controller chooses the owners with most free addresses.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub sharing: Vec<String>,
    /// The last accepted spec. Nodes apply this spec, so an invalid edit takes no address from a pod.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "accepted_schema")]
    pub accepted: Option<IpPoolSpec>,
}

impl IpPoolStatus {
    /// The number of the spec in force; 0 if none is. A controller before `acceptedGeneration` wrote `observedGeneration` alone.
    pub fn number_in_force(&self) -> i64 {
        let number = self.accepted_generation.or(self.observed_generation);
        number.filter(|_| self.accepted.is_some()).unwrap_or_default()
    }

    /// The number that `spec`, of this `metadata.generation`, has when it is accepted next.
    ///
    /// Invariant: the number is greater than each generation that was observed while an earlier spec was in force. An agent
    /// before `acceptedGeneration` reports that generation, although it applies the earlier spec.
    pub fn number_of(&self, spec: &IpPoolSpec, generation: i64) -> i64 {
        let now = self.number_in_force();
        if self.accepted.as_ref() == Some(spec) {
            return now;
        }
        let observed = self.observed_generation.filter(|_| self.accepted.is_some());
        number_after(now.max(observed.unwrap_or_default()), generation)
    }
}

/// The number of a spec of this `metadata.generation`, if nodes may report every number up to `reported` for other specs.
pub fn number_after(reported: i64, generation: i64) -> i64 {
    if generation > reported {
        return generation;
    }
    let next = reported.saturating_add(1);
    next.max(generation.saturating_add(NUMBER_GAP))
}

/// The requests of one node to the controller. An absent member is written as null, which a merge patch removes.
#[derive(JsonSchema, Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeRequest {
    /// When the node last found no free IPv4 address and no block to claim.
    #[serde(default)]
    pub v4: Option<Time>,
    /// The same for IPv6.
    #[serde(default)]
    pub v6: Option<Time>,
    /// Names of `IPAddress` objects that are kept for pods of this node and still bound to a node that does not respond.
    #[serde(default)]
    #[schemars(length(max = MAX_REQUESTED_ADDRESSES), inner(length(max = 128)))]
    pub addresses: Vec<String>,
}

impl NodeRequest {
    /// When the node last found no address of `family`.
    pub fn of(&mut self, family: Family) -> &mut Option<Time> {
        match family {
            Family::V4 => &mut self.v4,
            Family::V6 => &mut self.v6,
        }
    }

    fn since(&self, family: Family) -> Option<&Time> {
        match family {
            Family::V4 => self.v4.as_ref(),
            Family::V6 => self.v6.as_ref(),
        }
    }

    /// Whether the node found no address.
    pub fn is_short(&self) -> bool {
        self.v4.is_some() || self.v6.is_some()
    }

    fn is_empty(&self) -> bool {
        !self.is_short() && self.addresses.is_empty()
    }
}

impl IpPoolStatus {
    /// The requests of nodes that the controller has not handled yet.
    pub fn open_requests(&self) -> impl Iterator<Item = &NodeRequest> {
        self.requests
            .values()
            .flatten()
            .filter(|request| !request.is_empty())
    }

    /// Whether a node found no address.
    pub fn has_shortage(&self) -> bool {
        self.open_requests().any(NodeRequest::is_short)
    }

    /// The nodes that found no address of `family`, each with the time by its own clock.
    pub fn shortages(&self, family: Family) -> impl Iterator<Item = (&str, &Time)> {
        self.requests.iter().filter_map(move |(node, request)| {
            let since = request.as_ref()?.since(family)?;
            Some((node.as_str(), since))
        })
    }

    /// Closes all requests for addresses of `family`.
    pub fn close_requests(&mut self, family: Family) {
        for request in self.requests.values_mut().flatten() {
            *request.of(family) = None;
        }
        self.remove_closed();
    }

    /// Closes every request for the address `name`.
    pub fn close_address_request(&mut self, name: &str) {
        for request in self.requests.values_mut().flatten() {
            request.addresses.retain(|asked| asked != name);
        }
        self.remove_closed();
    }

    /// Removes empty entries. An entry that is written as null is removed from the object.
    fn remove_closed(&mut self) {
        for request in self.requests.values_mut() {
            *request = request.take().filter(|request| !request.is_empty());
        }
    }
}

/// The numbers of addresses of a pool. A number that does not fit is given as the greatest possible number.
///
/// `size`, `used`, `free` and `unclaimed` are those of the family with the fewest free addresses. A family whose addresses
/// are all reserved counts only if the pool has no other one.
#[derive(JsonSchema, Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Counters {
    /// Addresses that the pool can allocate.
    pub size: i64,
    /// Addresses in use by attachments.
    pub used: i64,
    /// Addresses that are free for any pod: those in blocks, by the last report of each owner, and those outside of blocks.
    pub free: i64,
    /// The free addresses that are in no block.
    #[serde(default)]
    pub unclaimed: i64,
    /// Blocks of the pool, shared and orphaned ones too.
    pub blocks: i64,
    /// When the oldest attachment in use got its address.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub oldest: Option<Time>,
}

/// The types of a pool's conditions.
pub mod condition {
    /// The spec of this generation is in force.
    pub const READY: &str = "Ready";
    /// Addresses are given, by this spec or by an earlier one.
    pub const SERVING: &str = "Serving";
    /// Another pool of the address space contains some of the addresses.
    pub const OVERLAP: &str = "Overlap";
    /// A pool of another address space contains some of the addresses.
    pub const OVERLAP_ELSEWHERE: &str = "OverlapElsewhere";
    /// Attachments use addresses that are excluded now. They keep them, and no later attachment gets them.
    pub const EXCLUSION_OVER_LIVE: &str = "ExclusionOverLive";
    /// Attachments use addresses that no range contains any more.
    pub const SHRINK_PENDING: &str = "ShrinkPending";
    /// No address of a family is free, and no block of the family can be claimed.
    pub const EXHAUSTED: &str = "Exhausted";
    /// The ranges have fewer blocks than the pool selects nodes.
    pub const FEW_BLOCKS: &str = "FewBlocks";
    /// `spec.fallback` names a pool that does not exist.
    pub const FALLBACK_MISSING: &str = "FallbackMissing";
    /// The spec is contradictory, so only an edit of this pool helps. kstatus reports such a pool as `Failed`.
    pub const STALLED: &str = "Stalled";
    /// The spec is invalid in a way that only the controller detects. The spec that was accepted before stays in force.
    pub const DEGRADED: &str = "Degraded";
}

/// The reasons of a pool's conditions, which are those of its Events too.
pub mod reason {
    /// The spec is in force.
    pub const ACCEPTED: &str = "Accepted";
    /// An earlier spec is in force.
    pub const EARLIER_SPEC: &str = "EarlierSpec";
    /// The spec is contradictory.
    pub const INVALID_SPEC: &str = "InvalidSpec";
    /// Another pool contains some of the addresses and divides them into blocks of another size.
    pub const CONFLICT: &str = "Conflict";
    /// The API server refuses to list the pool in its address space.
    pub const REFUSED: &str = "Refused";
    /// The pool is being deleted.
    pub const DELETING: &str = "Deleting";
    /// Another pool contains some of the addresses and divides them into the same blocks.
    pub const SAME_BLOCK_LAYOUT: &str = "SameBlockLayout";
    /// As [`CONFLICT`], as the reason of the condition `Overlap`.
    pub const BLOCK_SIZE_CONFLICT: &str = "BlockSizeConflict";
    /// A pool of another address space contains some of the addresses.
    pub const OTHER_SPACE: &str = "OtherAddressSpace";
    /// No address is free.
    pub const NO_ADDRESS_LEFT: &str = "NoAddressLeft";
    /// Addresses are free.
    pub const ADDRESSES_AVAILABLE: &str = "AddressesAvailable";
    /// Excluded addresses are in use.
    pub const IN_USE: &str = "InUse";
    /// Blocks outside the ranges are in use.
    pub const BLOCKS_IN_USE: &str = "BlocksInUse";
    /// The pool selects more nodes than it has blocks.
    pub const FEWER_BLOCKS_THAN_NODES: &str = "FewerBlocksThanNodes";
    /// There is no pool of that name.
    pub const NO_SUCH_POOL: &str = "NoSuchPool";
    /// The condition does not apply.
    pub const NONE: &str = "None";
}

/// The schema of a spec that has already passed the rules for `spec`. It needs no rules of its own.
fn accepted_schema(_: &mut SchemaGenerator) -> Schema {
    json_schema!({ "type": "object", "nullable": true, "x-kubernetes-preserve-unknown-fields": true })
}
