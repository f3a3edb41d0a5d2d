// SPDX-License-Identifier: Apache-2.0
//! `IPBlock`: the addresses that one node allocates without asking the API server.
//!
//! Invariants, enforced by rules of the API server:
//!
//! - The name determines the addresses, so two nodes cannot both create it.
//! - The block passes to another owner only while it is orphaned. A node that takes the block, or takes it back,
//!   increases `epoch` by one.
//! - A shared block stays shared.

mod rules;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::{CustomResource, KubeSchema};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A block of addresses that belongs to a node.
#[derive(CustomResource, KubeSchema, Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[kube(
    group = "rdmanet.io",
    version = "v1alpha1",
    kind = "IPBlock",
    root = "IpBlock",
    plural = "ipblocks",
    singular = "ipblock",
    category = "rdmanet",
    shortname = "rdblock",
    doc = "A block of addresses of one pool that one node owns. The node allocates them to its pods without a request to the API server. Written by agents; not for editing.",
    status = "IpBlockStatus",
    derive = "PartialEq",
    selectable = ".spec.pool",
    selectable = ".spec.owner.node",
    selectable = ".spec.state",
    validation = rules::name_encodes_addresses(),
    printcolumn(name = "Pool", type_ = "string", json_path = ".spec.pool"),
    printcolumn(name = "CIDR", type_ = "string", json_path = ".spec.cidr"),
    printcolumn(name = "Node", type_ = "string", json_path = ".spec.owner.node"),
    printcolumn(name = "State", type_ = "string", json_path = ".spec.state"),
    printcolumn(name = "Used", type_ = "integer", json_path = ".status.used"),
    printcolumn(name = "Free", type_ = "integer", json_path = ".status.free"),
    printcolumn(name = "Oldest", type_ = "date", json_path = ".status.oldest"),
    printcolumn(name = "Reported", type_ = "date", priority = 1, json_path = ".status.reportedAt"),
    printcolumn(name = "Epoch", type_ = "integer", priority = 1, json_path = ".spec.epoch"),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp")
)]
#[x_kube(
    validation = rules::cidr_is_a_network(),
    validation = rules::addresses_stay(),
    validation = rules::owner_changes_when_orphaned(),
    validation = rules::epoch_counts(),
    validation = rules::shared_stays_shared()
)]
pub struct IpBlockSpec {
    /// The pool for which it was claimed.
    #[schemars(length(min = 1, max = 63))]
    pub pool: String,
    /// Its addresses.
    #[schemars(length(min = 4, max = 43))]
    pub cidr: String,
    /// The owner; once the block is shared, the last owner.
    pub owner: NodeRef,
    /// The number of times that an owner claimed or confirmed the block.
    #[schemars(range(min = 1))]
    pub epoch: i64,
    /// The state of the block.
    pub state: BlockState,
    /// The quarantine in seconds that was in force when the block was claimed. The block of a gone node is not deleted sooner,
    /// whatever quarantine is in force then, since the file of its owner may still use this one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0))]
    pub quarantine_seconds: Option<i64>,
    /// The process that marked the block as orphaned, and the time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub orphaned: Option<Orphaned>,
}

/// A registration of a node: one Node object. A node that joins again under its old name has another registration.
#[derive(JsonSchema, Clone, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct NodeRef {
    /// Its name.
    #[schemars(length(min = 1, max = 253))]
    pub node: String,
    /// `metadata.uid` of the Node.
    #[serde(rename = "nodeUID")]
    #[schemars(length(min = 1, max = 64))]
    pub node_uid: String,
}

/// The state of a block.
#[derive(JsonSchema, Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum BlockState {
    /// The owner allocates its addresses.
    Active,
    /// The owner allocates no more addresses, and returns the block once none is in use.
    Draining,
    /// The Node of the owner is gone. Once the block was unchanged for a whole quarantine, it may be deleted.
    Orphaned,
    /// Any node may use its addresses; each address in use is an object.
    Shared,
}

/// The process that marked a block as orphaned, and the time.
#[derive(JsonSchema, Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Orphaned {
    /// The node or controller that marked the block.
    #[schemars(length(max = 253))]
    pub by: String,
    /// The time.
    pub since: Time,
}

/// The usage of a block, reported by its owner from time to time.
#[derive(JsonSchema, Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct IpBlockStatus {
    /// Addresses in use by attachments.
    pub used: i64,
    /// Addresses that are free.
    pub free: i64,
    /// Addresses in use that the pool does not contain any more.
    #[serde(default)]
    pub excluded: i64,
    /// When the oldest attachment in use got its address.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub oldest: Option<Time>,
    /// The `status.acceptedGeneration` of the pool that the owner applies. The owner allocates no address that this spec
    /// excludes or reserves.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// When the owner wrote this report.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reported_at: Option<Time>,
}
