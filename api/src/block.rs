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
    doc = "A block of addresses of one pool that belongs to one node. The node gives them to its pods without a request. Made by agents; not for editing.",
    status = "IpBlockStatus",
    derive = "PartialEq",
    selectable = ".spec.pool",
    selectable = ".spec.owner.node",
    selectable = ".spec.state",
    validation = rules::name_tells_addresses(),
    printcolumn(name = "Pool", type_ = "string", json_path = ".spec.pool"),
    printcolumn(name = "CIDR", type_ = "string", json_path = ".spec.cidr"),
    printcolumn(name = "Node", type_ = "string", json_path = ".spec.owner.node"),
    printcolumn(name = "State", type_ = "string", json_path = ".spec.state"),
    printcolumn(name = "Used", type_ = "integer", json_path = ".status.used"),
    printcolumn(name = "Free", type_ = "integer", json_path = ".status.free"),
    printcolumn(name = "Oldest", type_ = "date", json_path = ".status.oldest"),
    printcolumn(name = "Mirrored", type_ = "date", priority = 1, json_path = ".status.mirroredAt"),
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
    /// The pool that it was claimed for.
    #[schemars(length(min = 1, max = 63))]
    pub pool: String,
    /// Its addresses.
    #[schemars(length(min = 4, max = 43))]
    pub cidr: String,
    /// Whose it is; once it is shared, whose it was.
    pub owner: NodeRef,
    /// How many times it was confirmed, from 1.
    #[schemars(range(min = 1))]
    pub epoch: i64,
    /// What its owner does with it.
    pub state: BlockState,
    /// The quarantine, in seconds, that was in force when it was claimed. Nobody ends the block of a gone node sooner, whatever
    /// quarantine is in force by then: the owner's file may still go by this one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0))]
    pub quarantine_seconds: Option<i64>,
    /// Why it is orphaned.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub orphaned: Option<Orphaned>,
}

/// A node as one Node object: a node that joins again under its old name is another one.
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

/// What the owner of a block does with it.
#[derive(JsonSchema, Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum BlockState {
    /// Gives its addresses.
    Active,
    /// Gives none any more, and returns it once none is in use.
    Draining,
    /// Its Node is gone. Whoever sees it unchanged for a whole quarantine may end it or take it.
    Orphaned,
    /// Each address of it is an object that any node may create.
    Shared,
}

/// Why a block is orphaned.
#[derive(JsonSchema, Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Orphaned {
    /// The node whose agent said so.
    #[schemars(length(max = 253))]
    pub by: String,
    /// When.
    pub since: Time,
}

/// How far a block is used, told by its owner now and then.
#[derive(JsonSchema, Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct IpBlockStatus {
    /// Addresses held by attachments.
    pub used: i64,
    /// Addresses that could be given.
    pub free: i64,
    /// Attachments with addresses that the pool does not give any more.
    #[serde(default)]
    pub excluded: i64,
    /// Since when the oldest attachment has its address.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub oldest: Option<Time>,
    /// The `status.acceptedGeneration` of the pool that the owner applies: it allocates none of the addresses that are excluded or
    /// reserved there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// When the owner counted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mirrored_at: Option<Time>,
}
