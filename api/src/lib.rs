// SPDX-License-Identifier: Apache-2.0
//! The objects of API group `rdmanet.io`, all cluster scoped, and the code about them that the agent, the controller, the
//! command and the tests share. The manifests in `conf/crds` are generated from these types.
//!
//! The root module exports the types. `block_layout`, `accepted_pool`, `listing`, `sticky` and `convert` are pure.
//! `requests` sends requests, each with its precondition and a `deadline`. `client`, `http`, `process`, `recorder`,
//! `request_metrics` and `supervisor` serve both daemons.
//!
//! Invariant: every stored object has passed the rules beside its type, so code need not validate it again.
//!
//! Invariant: the client that creates the object of a block or of an address has claimed it.

#![allow(
    unreachable_pub,
    reason = "KubeSchema copies each struct into a function, where nothing can reach it"
)]

pub mod accepted_pool;
pub mod address;
pub mod address_space;
pub mod block;
pub mod block_layout;
mod cel;
pub mod client;
pub mod convert;
pub mod deadline;
pub mod demand;
pub mod http;
pub mod links;
pub mod listing;
pub mod pace;
pub mod pool;
pub mod process;
pub mod quarantine;
pub mod recorder;
pub mod request_metrics;
pub mod requests;
mod selector;
pub mod sticky;
pub mod supervisor;
#[cfg(any(test, feature = "testing"))]
pub mod testing;

pub use self::address::{AddressState, Attachment, Holder, IpAddress, IpAddressSpec, PodRef};
pub use self::address_space::{AddressInterval, AddressSpace, AddressSpaceSpec, PoolEntry};
pub use self::block::{BlockState, IpBlock, IpBlockSpec, IpBlockStatus, NodeRef, Orphaned};
pub use self::pool::{
    Allocation, BlockSize, Counters, IpPool, IpPoolSpec, IpPoolStatus, NodeRequest, Range, Route, Sticky,
    condition,
};

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::{
    CustomResourceDefinition, JSON, JSONSchemaProps,
};
use kube::CustomResourceExt;

/// The definitions to apply to a cluster.
pub fn definitions() -> [CustomResourceDefinition; 4] {
    [
        unobserved(bounded(IpPool::crd(), 63)),
        bounded(AddressSpace::crd(), 63),
        bounded(IpBlock::crd(), 128),
        bounded(IpAddress::crd(), 128),
    ]
}

/// Sets the default status that marks an object as not yet seen by a controller. Tools that wait for `Ready` treat an
/// object without any status as ready (kstatus, `status.Compute`).
fn unobserved(mut definition: CustomResourceDefinition) -> CustomResourceDefinition {
    let schemas = definition
        .spec
        .versions
        .iter_mut()
        .filter_map(|version| version.schema.as_mut()?.open_api_v3_schema.as_mut());
    for schema in schemas {
        if let Some(status) = schema.properties.as_mut().and_then(|all| all.get_mut("status")) {
            status.default = Some(JSON(serde_json::json!({ "observedGeneration": -1 })));
        }
    }
    definition
}

/// Limits the length of an object's name. The API server needs a bound to compute the cost of a rule that reads the name.
fn bounded(mut definition: CustomResourceDefinition, length: i64) -> CustomResourceDefinition {
    let name = JSONSchemaProps {
        type_: Some("string".to_owned()),
        max_length: Some(length),
        ..JSONSchemaProps::default()
    };
    let metadata = JSONSchemaProps {
        type_: Some("object".to_owned()),
        properties: Some([("name".to_owned(), name)].into()),
        ..JSONSchemaProps::default()
    };
    let schemas = definition
        .spec
        .versions
        .iter_mut()
        .filter_map(|version| version.schema.as_mut());
    for schema in schemas.filter_map(|schema| schema.open_api_v3_schema.as_mut()) {
        schema
            .properties
            .get_or_insert_default()
            .insert("metadata".to_owned(), metadata.clone());
    }
    definition
}

#[cfg(test)]
mod tests;
