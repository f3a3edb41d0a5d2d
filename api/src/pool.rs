// SPDX-License-Identifier: Apache-2.0
//! `IPPool`: the addresses of a pool, and which pods may use them. Administrators write this object and seldom change it.

mod range;
mod rules;
mod status;

pub use range::{Range, Route};
pub use status::{
    Counters, IpPoolStatus, MAX_REQUESTED_ADDRESSES, NodeRequest, condition, number_after, reason,
};

use super::selector;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use kube::{CustomResource, KubeSchema};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// Addresses for pods.
#[derive(CustomResource, KubeSchema, Clone, Debug, PartialEq, Serialize, Deserialize)]
#[kube(
    group = "rdmanet.io",
    version = "v1alpha1",
    kind = "IPPool",
    root = "IpPool",
    plural = "ippools",
    singular = "ippool",
    category = "rdmanet",
    shortname = "rdpool",
    doc = "A pool of addresses for the whole cluster: its ranges, the nodes and namespaces that may use it, and how nodes divide it.",
    status = "IpPoolStatus",
    derive = "PartialEq",
    validation = rules::fallback_is_another(),
    printcolumn(name = "Size", type_ = "integer", json_path = ".status.counters.size"),
    printcolumn(name = "Used", type_ = "integer", json_path = ".status.counters.used"),
    printcolumn(name = "Free", type_ = "integer", json_path = ".status.counters.free"),
    printcolumn(name = "Blocks", type_ = "integer", json_path = ".status.counters.blocks"),
    printcolumn(name = "Ready", type_ = "string", json_path = r#".status.conditions[?(@.type=="Ready")].status"#),
    printcolumn(name = "Reason", type_ = "string", json_path = r#".status.conditions[?(@.type=="Ready")].reason"#),
    printcolumn(name = "Oldest", type_ = "date", priority = 1, json_path = ".status.counters.oldest"),
    printcolumn(name = "Space", type_ = "string", priority = 1, json_path = ".spec.addressSpace"),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp")
)]
#[serde(rename_all = "camelCase")]
#[x_kube(
    validation = rules::ranges_are_apart(),
    validation = rules::reserved_are_readable(),
    validation = rules::reserved_lie_in_ranges(),
    validation = rules::warm_blocks_fit(),
    validation = rules::sticky_needs_reserved()
)]
pub struct IpPoolSpec {
    /// The address space in which the addresses are unique. Pools of different spaces may contain the same addresses. Cannot be
    /// changed.
    #[serde(default = "default_space")]
    #[schemars(length(min = 1, max = 63))]
    #[x_kube(validation = rules::unchanged("addressSpace"), validation = rules::space_is_a_label())]
    pub address_space: String,
    /// The ranges of addresses. An attachment gets one address of each IP family that occurs here.
    #[schemars(length(min = 1, max = 16))]
    pub ranges: Vec<Range>,
    /// Routes for every attachment.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 32))]
    pub routes: Vec<Route>,
    /// How many addresses a node claims at a time. Cannot be changed.
    #[serde(default)]
    #[x_kube(validation = rules::unchanged("blockSize"))]
    pub block_size: BlockSize,
    /// How addresses are allocated. Cannot be changed.
    #[serde(default)]
    #[x_kube(validation = rules::unchanged("allocation"))]
    pub allocation: Allocation,
    /// The nodes that may use this pool; absent: all nodes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "selector::schema")]
    pub node_selector: Option<LabelSelector>,
    /// The namespaces whose pods may use this pool; absent: all namespaces.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "selector::schema")]
    pub namespace_selector: Option<LabelSelector>,
    /// If a network names several pools, pools with a greater number are tried first. Pools with the same number are tried in the
    /// order of the network.
    #[serde(default)]
    pub priority: i32,
    /// The pools that are tried, in this order, if this pool has no free address or is not for the node or the namespace.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 8), inner(length(min = 1, max = 63)))]
    pub fallback: Vec<String>,
    /// The number of seconds for which a released address is not allocated again.
    #[serde(default = "default_cooldown")]
    #[schemars(range(min = 0, max = 86_400))]
    pub cooldown_seconds: i32,
    /// Addresses that only pods get that request them by name or keep their addresses. Entries are addresses, networks and
    /// `first-last`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 32), inner(length(min = 2, max = 80)))]
    pub reserved: Vec<String>,
    /// Which pods keep their addresses across restarts and nodes.
    #[serde(default)]
    pub sticky: Sticky,
    /// How many blocks a node claims ahead of need.
    #[serde(default = "default_warm")]
    #[schemars(range(min = 0, max = 16))]
    pub warm_blocks: i32,
    /// The maximum number of blocks of each family that a node has; 0: no limit.
    #[serde(default)]
    #[schemars(range(min = 0, max = 65_536))]
    pub max_blocks_per_node: i32,
}

/// How many addresses a block has, by family: a power of two.
#[derive(KubeSchema, Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct BlockSize {
    /// IPv4 addresses in a block.
    #[serde(default = "default_v4")]
    #[schemars(range(min = 1, max = 65_536))]
    #[x_kube(validation = rules::power_of_two("blockSize.v4", 16))]
    pub v4: i64,
    /// IPv6 addresses in a block.
    #[serde(default = "default_v6")]
    #[schemars(range(min = 1, max = 4_294_967_296_i64))]
    #[x_kube(validation = rules::power_of_two("blockSize.v6", 32))]
    pub v6: i64,
}

/// How addresses are allocated.
#[derive(JsonSchema, Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Allocation {
    /// The node allocates from its own blocks, without a request to the API server.
    #[default]
    Blocks,
    /// Each address is an object of the API server.
    PerAddress,
}

/// Which pods keep their addresses.
#[derive(JsonSchema, Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Sticky {
    /// No pods.
    #[default]
    Never,
    /// The pods of a `StatefulSet`. The address belongs to the name of the pod and is one of `reserved`.
    StatefulSet,
}

impl IpPoolSpec {
    /// How long a released address is not allocated again.
    pub fn cooldown(&self) -> Duration {
        Duration::from_secs(u64::try_from(self.cooldown_seconds).unwrap_or_default())
    }
}

impl IpPool {
    /// The spec, if the controller has neither accepted nor rejected it yet.
    pub fn unjudged(&self) -> Option<&IpPoolSpec> {
        let judged = self.status.as_ref().and_then(|status| status.observed_generation);
        (self.metadata.generation > judged).then_some(&self.spec)
    }
}

impl Default for BlockSize {
    fn default() -> Self {
        Self {
            v4: default_v4(),
            v6: default_v6(),
        }
    }
}

fn default_space() -> String {
    "default".to_owned()
}

fn default_v4() -> i64 {
    64
}

fn default_v6() -> i64 {
    1024
}

fn default_cooldown() -> i32 {
    30
}

fn default_warm() -> i32 {
    1
}
