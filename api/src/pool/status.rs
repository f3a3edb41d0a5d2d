// SPDX-License-Identifier: Apache-2.0
//! The status of a pool.

use super::IpPoolSpec;
use ipam::range::Family;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// What the keeper knows of a pool.
#[derive(JsonSchema, Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct IpPoolStatus {
    /// The generation of the spec that the rest is about.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// The number of the spec in `accepted`: the generation that it had, or a greater number. It grows whenever `accepted` changes, and
    /// at no other time. Nodes note this number, not `observedGeneration`, which may be that of a spec that is not in force.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub accepted_generation: Option<i64>,
    /// What is the case, by type.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["type"]))]
    pub conditions: Vec<Condition>,
    /// The pool in numbers of addresses.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub counters: Option<Counters>,
    /// What nodes ask of the controller, by the name of the node. Each node's agent writes its own entry; the controller removes
    /// what it has answered.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub requests: BTreeMap<String, Option<NodeRequest>>,
    /// Blocks that are to be shared: they belong to the nodes that have most addresses to spare.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub sharing: Vec<String>,
    /// The last spec that was accepted. Nodes go by it, so that a wrong edit takes no address from anybody.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "as_it_was")]
    pub accepted: Option<IpPoolSpec>,
}

impl IpPoolStatus {
    /// The number of the spec in force; 0 if none is. A controller before `acceptedGeneration` wrote `observedGeneration` alone.
    pub fn number_in_force(&self) -> i64 {
        let number = self.accepted_generation.or(self.observed_generation);
        number.filter(|_| self.accepted.is_some()).unwrap_or_default()
    }

    /// The number that `spec`, of this `metadata.generation`, has when it is accepted next.
    pub fn number_of(&self, spec: &IpPoolSpec, generation: i64) -> i64 {
        let now = self.number_in_force();
        if self.accepted.as_ref() == Some(spec) {
            now
        } else {
            generation.max(now.saturating_add(1))
        }
    }
}

/// What one node asks of the controller. An absent member is written as null, which a merge patch takes for a removal.
#[derive(JsonSchema, Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeRequest {
    /// When the node last found no IPv4 address, and no block to claim.
    #[serde(default)]
    pub v4: Option<Time>,
    /// The same of IPv6.
    #[serde(default)]
    pub v6: Option<Time>,
    /// Names of `IPAddress` objects that pods of the node keep and that a node which does not answer still has.
    #[serde(default)]
    #[schemars(length(max = 64), inner(length(max = 128)))]
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
    /// What nodes ask now.
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

    /// When a node last found no address of `family`.
    pub fn short_since(&self, family: Family) -> Option<Time> {
        self.open_requests()
            .filter_map(|request| request.since(family))
            .max()
            .cloned()
    }

    /// All requests for addresses of `family` are answered.
    pub fn close_requests(&mut self, family: Family) {
        for request in self.requests.values_mut().flatten() {
            *request.of(family) = None;
        }
        self.remove_closed();
    }

    /// The request of any node to have the address `name` is answered.
    pub fn close_address_request(&mut self, name: &str) {
        for request in self.requests.values_mut().flatten() {
            request.addresses.retain(|asked| asked != name);
        }
        self.remove_closed();
    }

    /// An entry that is written as null is removed from the object.
    fn remove_closed(&mut self) {
        for request in self.requests.values_mut() {
            *request = request.take().filter(|request| !request.is_empty());
        }
    }
}

/// A pool in numbers of addresses; the greatest number stands for that and more.
#[derive(JsonSchema, Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Counters {
    /// All that the pool could give.
    pub size: i64,
    /// Held by attachments.
    pub used: i64,
    /// That nobody has and any pod could be given: in blocks, as their owners have told last, and outside.
    pub free: i64,
    /// Those of them that are in no block of any node.
    #[serde(default)]
    pub unclaimed: i64,
    /// Blocks that have an owner.
    pub blocks: i64,
    /// Since when the oldest attachment has its address.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub oldest: Option<Time>,
}

/// The types of a pool's conditions.
pub mod condition {
    /// The spec of this generation is in force.
    pub const READY: &str = "Ready";
    /// Addresses are given, by this spec or by an earlier one.
    pub const SERVING: &str = "Serving";
    /// Another pool of the address space has some of the addresses too.
    pub const OVERLAP: &str = "Overlap";
    /// A pool of another address space has some of the addresses too.
    pub const OVERLAP_ELSEWHERE: &str = "OverlapElsewhere";
    /// Living attachments have addresses that are excluded now; they keep them, and nobody gets them afterwards.
    pub const EXCLUSION_OVER_LIVE: &str = "ExclusionOverLive";
    /// Living attachments have addresses that no range has any more.
    pub const SHRINK_PENDING: &str = "ShrinkPending";
    /// There is no address and no block left to give.
    pub const EXHAUSTED: &str = "Exhausted";
    /// The ranges have fewer blocks than the pool selects nodes.
    pub const FEW_BLOCKS: &str = "FewBlocks";
    /// `spec.fallback` names a pool that is not there.
    pub const FALLBACK_MISSING: &str = "FallbackMissing";
    /// The spec is wrong in a way that only shows when it is used; what was accepted before stays in force.
    pub const DEGRADED: &str = "Degraded";
}

/// The reasons of a pool's conditions, which are those of its Events too.
pub mod reason {
    /// The spec is in force.
    pub const ACCEPTED: &str = "Accepted";
    /// An earlier spec is in force.
    pub const EARLIER_SPEC: &str = "EarlierSpec";
    /// The spec means nothing.
    pub const INVALID_SPEC: &str = "InvalidSpec";
    /// Another pool has some of the addresses and cuts them into other blocks.
    pub const CONFLICT: &str = "Conflict";
    /// The pool is being deleted.
    pub const DELETING: &str = "Deleting";
    /// Another pool has some of the addresses and cuts them into the same blocks.
    pub const SAME_BLOCKS: &str = "SameBlocks";
    /// As [`CONFLICT`], told of the overlap.
    pub const OTHER_BLOCKS: &str = "OtherBlocks";
    /// A pool of another address space has some of the addresses.
    pub const OTHER_SPACE: &str = "OtherAddressSpace";
    /// Nothing is left to give.
    pub const NO_ADDRESS_LEFT: &str = "NoAddressLeft";
    /// Something is left to give.
    pub const ROOM: &str = "Room";
    /// Excluded addresses are in use.
    pub const IN_USE: &str = "InUse";
    /// Blocks outside the ranges are in use.
    pub const BLOCKS_IN_USE: &str = "BlocksInUse";
    /// Some nodes that the pool selects can have no block of their own.
    pub const FEWER_BLOCKS_THAN_NODES: &str = "FewerBlocksThanNodes";
    /// There is no pool of that name.
    pub const NO_SUCH_POOL: &str = "NoSuchPool";
    /// Nothing of the kind is the case.
    pub const NONE: &str = "None";
}

/// The rules about an `IPPool`'s spec are for what people write; here is what passed them once.
fn as_it_was(_: &mut SchemaGenerator) -> Schema {
    json_schema!({ "type": "object", "nullable": true, "x-kubernetes-preserve-unknown-fields": true })
}
