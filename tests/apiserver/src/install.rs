// SPDX-License-Identifier: Apache-2.0
//! Applies the manifests of `conf/`, as `kubectl apply -f` does.

use crate::identity::NAMESPACE;
use crate::{Identity, Server};
use api::IpBlock;
use k8s_openapi::api::core::v1::Node;
use kube::api::{DynamicObject, Patch, PatchParams};
use kube::core::GroupVersionKind;
use kube::discovery::Scope;
use kube::{Api, Client};
use serde::Deserialize;
use serde_json::json;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// The directories of `conf/` that a cluster needs, in this order.
pub const DIRECTORIES: [&str; 3] = ["crds", "rbac", "policies"];

/// Applies all manifests and waits until they are in force.
pub async fn all(server: &Server) {
    all_of(server, &conf()).await;
}

/// Applies all manifests below `conf`, which is the directory of any version, and waits until they are in force.
pub async fn all_of(server: &Server, conf: &Path) {
    let admin = server.admin().await;
    for directory in DIRECTORIES {
        for file in yaml_files(&conf.join(directory)) {
            for object in documents(&file) {
                apply(&admin, &object).await;
            }
        }
        if directory == "crds" {
            served(&admin).await;
        }
    }
    enforced(server, &admin, NAMESPACE).await;
}

/// The manifests of a directory below `conf/`, by name.
pub fn manifests(directory: &str) -> Vec<PathBuf> {
    yaml_files(&conf().join(directory))
}

fn conf() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../conf")
}

fn yaml_files(directory: &Path) -> Vec<PathBuf> {
    let mut files: Vec<PathBuf> = std::fs::read_dir(directory)
        .unwrap_or_else(|e| panic!("{}: {e}", directory.display()))
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.extension().is_some_and(|e| e == "yaml"))
        .collect();
    files.sort();
    files
}

/// The objects of a manifest.
pub fn documents(file: &Path) -> Vec<DynamicObject> {
    let text = std::fs::read_to_string(file).unwrap();
    serde_norway::Deserializer::from_str(&text)
        .map(|document| {
            DynamicObject::deserialize(document).unwrap_or_else(|e| panic!("{}: {e}", file.display()))
        })
        .collect()
}

/// Applies one object. Panics with the server's message if it is refused.
pub async fn apply(admin: &Client, object: &DynamicObject) {
    let kind = &object.types.as_ref().unwrap().kind;
    let name = object.metadata.name.as_deref().unwrap();
    api_of(admin, object)
        .await
        .patch(name, &PatchParams::apply("tests").force(), &Patch::Apply(object))
        .await
        .unwrap_or_else(|e| panic!("{kind} {name} is refused: {e}"));
}

/// The API of the object's kind. Discovery requests only its group, and retries, because the API server serves a new
/// CRD with a delay.
pub async fn api_of(admin: &Client, object: &DynamicObject) -> Api<DynamicObject> {
    let types = object.types.as_ref().unwrap();
    let kind = GroupVersionKind::try_from(types).unwrap();
    let mut tries = 0;
    let (resource, about) = loop {
        match kube::discovery::pinned_kind(admin, &kind).await {
            Ok(found) => break found,
            Err(e) => assert!(
                tries < 600,
                "the API server knows no {} {}: {e}",
                types.api_version,
                types.kind
            ),
        }
        tries += 1;
        tokio::time::sleep(Duration::from_millis(100)).await;
    };
    match object.metadata.namespace.as_deref() {
        Some(namespace) if about.scope == Scope::Namespaced => {
            Api::namespaced_with(admin.clone(), namespace, &resource)
        }
        _ => Api::all_with(admin.clone(), &resource),
    }
}

/// Waits until the API server accepts objects of the group.
async fn served(admin: &Client) {
    let pools: Api<api::IpPool> = Api::all(admin.clone());
    let blocks: Api<IpBlock> = Api::all(admin.clone());
    let addresses: Api<api::IpAddress> = Api::all(admin.clone());
    let spaces: Api<api::AddressSpace> = Api::all(admin.clone());
    let one = kube::api::ListParams::default().limit(1);
    until("the definitions are served", async || {
        pools.list(&one).await.is_ok()
            && blocks.list(&one).await.is_ok()
            && addresses.list(&one).await.is_ok()
            && spaces.list(&one).await.is_ok()
    })
    .await;
}

/// Waits until the policies refuse requests: the API server enforces a policy with a delay. Probes the last policy.
pub async fn enforced(server: &Server, admin: &Client, namespace: &str) {
    let agent = Identity::within(admin, "policies-enforced", namespace).await;
    let api: Api<Node> = Api::all(server.with_token(&agent.token).await);
    let foreign = Patch::Strategic(json!({ "status": { "capacity": { "cpu": "1" } } }));
    let dry = PatchParams {
        dry_run: true,
        ..PatchParams::default()
    };
    until("the policies are enforced", async || {
        matches!(api.patch_status("policies-enforced", &dry, &foreign).await, Err(kube::Error::Api(e)) if e.message.contains("ValidatingAdmissionPolicy"))
    })
    .await;
    agent.leave_within(admin, namespace).await.unwrap();
}

/// How long a test waits for a state or repeats ADD. Only a hang takes longer.
pub const LIMIT: Duration = Duration::from_secs(180);

/// Waits until `holds` returns true, for at most [`LIMIT`].
pub async fn until(what: &str, holds: impl AsyncFnMut() -> bool) {
    until_within(LIMIT, what, holds).await;
}

/// As [`until`], within `limit`.
///
/// # Panics
/// If it does not.
pub async fn until_within(limit: Duration, what: &str, mut holds: impl AsyncFnMut() -> bool) {
    let deadline = Instant::now() + limit;
    while !holds().await {
        assert!(Instant::now() < deadline, "not within {limit:?}: {what}");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}
