// SPDX-License-Identifier: Apache-2.0
//! `AddressSpace`: the pools of one space that may be cut into blocks. There is one small object for each space. The
//! controller changes it only when a pool changes, and only from the version that it read.
//!
//! Invariant: listed pools with addresses in common cut them into the same blocks.

use kube::{CustomResource, KubeSchema};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// The greatest number of stretches in an entry.
pub(crate) const MAX_STRETCHES: usize = 64;

/// The pools of an address space that nodes may take blocks of.
#[derive(CustomResource, KubeSchema, Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[kube(
    group = "rdmanet.io",
    version = "v1alpha1",
    kind = "AddressSpace",
    plural = "addressspaces",
    singular = "addressspace",
    category = "rdmanet",
    shortname = "rdspace",
    doc = "The pools of one address space, in which each address is unique, and how each pool is divided into blocks. Written by the controller; not for editing.",
    derive = "PartialEq",
    validation = rules::name_is_a_label(),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp")
)]
pub struct AddressSpaceSpec {
    /// The pools, by name.
    #[serde(default)]
    #[schemars(
        length(max = 1000),
        extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["name"])
    )]
    pub pools: Vec<PoolEntry>,
    /// Whether a node probes each address of a block that it claims, before the first use. A machine may still use an address of a
    /// block that the controller has freed, and another pool may have that address now or later.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub probe: bool,
}

/// A pool of which nodes may claim blocks.
#[derive(JsonSchema, Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PoolEntry {
    /// Its name.
    #[schemars(length(max = 63))]
    pub name: String,
    /// Its `metadata.uid`.
    #[schemars(length(max = 64))]
    pub uid: String,
    /// The number of the spec that was accepted (`status.acceptedGeneration` of the pool).
    pub generation: i64,
    /// The number of low bits in which the IPv4 addresses of a block differ.
    #[serde(rename = "shiftV4")]
    #[schemars(range(min = 0, max = 32), extend("format" = "int32"))]
    pub shift_v4: u8,
    /// The number of low bits in which the IPv6 addresses of a block differ.
    #[serde(rename = "shiftV6")]
    #[schemars(range(min = 0, max = 128), extend("format" = "int32"))]
    pub shift_v6: u8,
    /// Its addresses. They are whole subnets as a rule, so that an edit of an exclusion changes nothing here.
    #[serde(default)]
    #[schemars(length(max = MAX_STRETCHES))]
    pub stretches: Vec<AddressInterval>,
    /// A machine may still use an address of a block that the controller frees. So a node that claims a block of the pool
    /// from now on probes each address before its first use.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub probe: bool,
    /// Members that a later version of the definition has. A write replaces the whole list, and must not lose them.
    #[serde(flatten)]
    #[schemars(skip)]
    pub later: BTreeMap<String, serde_json::Value>,
}

/// Consecutive addresses.
#[derive(JsonSchema, Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct AddressInterval {
    /// The first address.
    #[schemars(length(min = 2, max = 39))]
    pub first: String,
    /// The last address.
    #[schemars(length(min = 2, max = 39))]
    pub last: String,
}

mod rules {
    use crate::cel::plain;
    use kube::core::Rule;

    pub(super) fn name_is_a_label() -> Rule {
        plain(
            "self.metadata.name.matches('^[a-z0-9]([-a-z0-9]*[a-z0-9])?$')",
            "the name of an address space is made of lower-case letters, digits and -, beginning and ending with a letter or digit",
        )
    }
}
