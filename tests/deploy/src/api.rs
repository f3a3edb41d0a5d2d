// SPDX-License-Identifier: Apache-2.0
//! Objects on their way to an API server.

use crate::manifests::{kind, name};
use kube::Client;
use kube::api::{DynamicObject, Patch, PatchParams};
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
    for object in objects {
        let typed: DynamicObject = serde_json::from_value(object.clone()).unwrap();
        let api = apiserver::install::api_of(admin, &typed).await;
        let parameters = PatchParams {
            dry_run: send == Send::Dry,
            ..PatchParams::apply("tests").force().validation_strict()
        };
        api.patch(name(object), &parameters, &Patch::Apply(&typed))
            .await
            .unwrap_or_else(|e| panic!("{} {} is refused: {e}", kind(object), name(object)));
    }
}
