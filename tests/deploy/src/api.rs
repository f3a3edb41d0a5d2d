// SPDX-License-Identifier: Apache-2.0
//! Sends objects to an API server.

use crate::manifests::{kind, name};
use kube::Client;
use kube::api::{DynamicObject, Patch, PatchParams};
use serde_json::Value;

/// Whether the server stores the objects.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Send {
    /// The server stores them.
    ForGood,
    /// The server only validates them.
    Dry,
}

/// Sends `objects` as `kubectl apply --server-side` does. The server rejects unknown fields.
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
