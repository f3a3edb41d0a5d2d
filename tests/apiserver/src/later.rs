// SPDX-License-Identifier: Apache-2.0
//! A cluster with the definitions of a later version, which have a field more in each `spec` and `status`.

use crate::install::apply;
use api::definitions;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::DynamicObject;
use kube::core::GroupVersionKind;
use kube::discovery::ApiResource;
use kube::{Api, Client, ResourceExt};
use serde_json::json;

/// The field of the later version: in `spec`, in `status`, and in the items of `spec.pools`.
pub const LATER: &str = "later";

/// Applies the definitions of rdmanet with the later field.
pub async fn install_later(admin: &Client) {
    for definition in definitions() {
        let name = definition.name_any();
        let mut definition = serde_json::to_value(definition).unwrap();
        let schema = &mut definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"];
        for part in ["spec", "status"] {
            if schema[part]["properties"].is_object() {
                schema[part]["properties"][LATER] = json!({ "type": "string" });
            }
        }
        if name.starts_with("addressspaces") {
            schema["spec"]["properties"]["pools"]["items"]["properties"][LATER] = json!({ "type": "string" });
        }
        let definition: CustomResourceDefinition = serde_json::from_value(definition).unwrap();
        let definition: DynamicObject =
            serde_json::from_value(serde_json::to_value(definition).unwrap()).unwrap();
        apply(admin, &definition).await;
    }
}

/// The objects of a kind of rdmanet, with the fields that this version does not know.
pub fn raw(admin: &Client, kind: &str, plural: &str) -> Api<DynamicObject> {
    let kind = GroupVersionKind::gvk("rdmanet.io", "v1alpha1", kind);
    Api::all_with(admin.clone(), &ApiResource::from_gvk_with_plural(&kind, plural))
}
