// SPDX-License-Identifier: Apache-2.0
//! The definitions of all kinds of `rdmanet.io`, as `conf/crds` has them.

use crate::address::IpAddress;
use crate::address_space::AddressSpace;
use crate::block::IpBlock;
use crate::pool::IpPool;
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
