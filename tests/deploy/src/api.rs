// SPDX-License-Identifier: Apache-2.0
//! Objects on their way to an API server.

use crate::manifests::{kind, name};
use kube::api::{Api, DynamicObject, Patch, PatchParams};
use kube::core::GroupVersionKind;
use kube::discovery::{Discovery, Scope};
use kube::{Client, ResourceExt};
use serde_json::Value;

/// Whether objects are stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Send {
    /// They are.
    ForGood,
    /// They pass every check of the server, and are not stored.
    Dry,
}

/// Sends `objects` as `kubectl apply --server-side` does; unknown fields are refused.
pub async fn apply(admin: &Client, objects: &[Value], send: Send) {
    let discovery = Discovery::new(admin.clone()).run().await.unwrap();
    for object in objects {
        let (group, version) = match object["apiVersion"].as_str().unwrap().split_once('/') {
            Some(parts) => parts,
            None => ("", object["apiVersion"].as_str().unwrap()),
        };
        let (resource, about) = discovery
            .resolve_gvk(&GroupVersionKind::gvk(group, version, kind(object)))
            .unwrap_or_else(|| panic!("the API server knows no {}", kind(object)));
        let typed: DynamicObject = serde_json::from_value(object.clone()).unwrap();
        let api: Api<DynamicObject> = match typed.namespace() {
            Some(namespace) if about.scope == Scope::Namespaced => {
                Api::namespaced_with(admin.clone(), &namespace, &resource)
            }
            _ => Api::all_with(admin.clone(), &resource),
        };
        let parameters = PatchParams {
            dry_run: send == Send::Dry,
            ..PatchParams::apply("tests").force().validation_strict()
        };
        api.patch(name(object), &parameters, &Patch::Apply(&typed))
            .await
            .unwrap_or_else(|e| panic!("{} {} is refused: {e}", kind(object), name(object)));
    }
}
