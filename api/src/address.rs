// SPDX-License-Identifier: Apache-2.0
//! `IPAddress`: one address that must be unique across nodes: requested by name, kept by a pod, or part of a shared
//! block.
//!
//! Invariant (enforced by rules of the API server): the name determines the address, so only one client can create it.

use crate::block::NodeRef;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::{CustomResource, KubeSchema};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// An address that one attachment uses, or that is kept for a pod.
#[derive(CustomResource, KubeSchema, Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[kube(
    group = "rdmanet.io",
    version = "v1alpha1",
    kind = "IPAddress",
    root = "IpAddress",
    plural = "ipaddresses",
    singular = "ipaddress",
    category = "rdmanet",
    shortname = "rdip",
    doc = "One address that is unique across nodes: requested by name, kept by a pod of a StatefulSet, or part of a shared block. Written by agents; release one with `rdmanet release`.",
    derive = "PartialEq",
    selectable = ".spec.pool",
    selectable = ".spec.node.node",
    selectable = ".spec.state",
    selectable = ".spec.block",
    selectable = ".spec.holder.namespace",
    selectable = ".spec.holder.pod",
    validation = rules::name_encodes_address(),
    printcolumn(name = "Address", type_ = "string", json_path = ".spec.address"),
    printcolumn(name = "Pool", type_ = "string", json_path = ".spec.pool"),
    printcolumn(name = "State", type_ = "string", json_path = ".spec.state"),
    printcolumn(name = "Namespace", type_ = "string", json_path = ".spec.pod.namespace"),
    printcolumn(name = "Pod", type_ = "string", json_path = ".spec.pod.name"),
    printcolumn(name = "Node", type_ = "string", json_path = ".spec.node.node"),
    printcolumn(name = "StatefulSet", type_ = "string", priority = 1, json_path = ".spec.holder.statefulSet"),
    printcolumn(name = "Interface", type_ = "string", priority = 1, json_path = ".spec.attachment.ifname"),
    printcolumn(name = "Since", type_ = "date", json_path = ".spec.since")
)]
#[x_kube(
    validation = rules::address_is_one(),
    validation = rules::block_has_the_address(),
    validation = rules::address_stays(),
    validation = rules::has_what_its_state_needs(),
    validation = rules::node_changes_only_if_not_bound()
)]
pub struct IpAddressSpec {
    /// The pool of the address.
    #[schemars(length(min = 1, max = 63))]
    pub pool: String,
    /// The address.
    #[schemars(length(min = 2, max = 39))]
    pub address: String,
    /// The CIDR of the block that contains the address, whether or not a node owns that block. A node that claims the block
    /// lists the objects that name it. In a pool without blocks, each address is a block of its own.
    #[schemars(length(min = 4, max = 43))]
    pub block: String,
    /// The node of the attachment, or of the last attachment.
    pub node: NodeRef,
    /// Whether the address is in use.
    pub state: AddressState,
    /// The attachment that uses the address, or used it last.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub attachment: Option<Attachment>,
    /// The pod of the attachment.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pod: Option<PodRef>,
    /// The holder that keeps the address after the attachment has ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub holder: Option<Holder>,
    /// When the attachment got the address.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub since: Option<Time>,
    /// The quarantine in seconds of the controller that last marked the address as orphaned. Neither a controller with a shorter
    /// one nor `rdmanet release` frees an address of a gone node sooner after the last change of the object.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0))]
    pub quarantine_seconds: Option<i64>,
}

/// Whether an address is in use.
#[derive(JsonSchema, Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum AddressState {
    /// `attachment` uses the address.
    Bound,
    /// The address is not in use and is kept for `holder`.
    Kept,
    /// The node of the attachment is gone. The controller sets this state before it deletes the object.
    Orphaned,
}

/// A CNI attachment.
#[derive(JsonSchema, Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Attachment {
    /// `CNI_CONTAINERID`.
    #[serde(rename = "containerID")]
    #[schemars(length(min = 1, max = 253))]
    pub container_id: String,
    /// `CNI_IFNAME`.
    #[schemars(length(min = 1, max = 15))]
    pub ifname: String,
    /// The name of the network.
    #[schemars(length(min = 1, max = 253))]
    pub network: String,
}

/// A pod.
#[derive(JsonSchema, Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct PodRef {
    /// Its namespace.
    #[schemars(length(min = 1, max = 63))]
    pub namespace: String,
    /// Its name.
    #[schemars(length(min = 1, max = 253))]
    pub name: String,
    /// Its `metadata.uid`, if known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 64))]
    pub uid: Option<String>,
}

/// The holder of a kept address: an interface of a pod, identified by the name of the pod and not by its UID.
#[derive(JsonSchema, Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Holder {
    /// The namespace of the `StatefulSet` and of its pod.
    #[schemars(length(min = 1, max = 63))]
    pub namespace: String,
    /// The `StatefulSet`.
    #[schemars(length(min = 1, max = 253))]
    pub stateful_set: String,
    /// The name of the pod.
    #[schemars(length(min = 1, max = 253))]
    pub pod: String,
    /// The name of the network.
    #[schemars(length(min = 1, max = 253))]
    pub network: String,
    /// The name of the interface in the pod.
    #[schemars(length(min = 1, max = 15))]
    pub ifname: String,
}

mod rules {
    use crate::cel::{about, address, plain, spelled};
    use kube::core::Rule;

    pub(super) fn name_encodes_address() -> Rule {
        let (valid, digits) = (
            address("self.spec.address"),
            spelled("self.metadata.name", "self.spec.address", "0"),
        );
        plain(
            format!("!({valid}) || {digits}"),
            "the name of an address is <address space>-<address in hexadecimal>",
        )
    }

    pub(super) fn address_is_one() -> Rule {
        about(
            "address",
            address("self.address"),
            "'address ' + self.address + ' is not an IP address'",
        )
    }

    pub(super) fn block_has_the_address() -> Rule {
        about(
            "block",
            "isCIDR(self.block) && (!isIP(self.address) || cidr(self.block).containsIP(self.address))",
            "'block ' + self.block + ' is not a network with address ' + self.address",
        )
    }

    pub(super) fn address_stays() -> Rule {
        plain(
            "self.address == oldSelf.address && self.pool == oldSelf.pool && self.block == oldSelf.block",
            "pool, address and block cannot be changed",
        )
    }

    pub(super) fn has_what_its_state_needs() -> Rule {
        plain(
            "self.state == 'Kept' ? has(self.holder) : has(self.attachment)",
            "an address that is Bound or Orphaned names its attachment, one that is Kept its holder",
        )
    }

    pub(super) fn node_changes_only_if_not_bound() -> Rule {
        plain(
            "self.node == oldSelf.node || oldSelf.state != 'Bound'",
            "an address passes to another node only while it is Kept or Orphaned",
        )
    }
}
