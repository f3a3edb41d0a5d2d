// SPDX-License-Identifier: Apache-2.0
//! The objects of the API server that Multus reads and writes.

use apiserver::install::{documents, until};
use apiserver::objects::{self, account, create, token};
use apiserver::{Server, install};
use k8s_openapi::api::core::v1::{Event, Namespace, Pod};
use kube::api::{DeleteParams, DynamicObject, ListParams, PatchParams};
use kube::core::{ApiResource, GroupVersionKind};
use kube::{Api, Client, ResourceExt};
use serde_json::{Value, json};
use std::path::Path;
use tests::multus::PodIdentity;

const NETWORKS: &str = "k8s.v1.cni.cncf.io/networks";
const STATUS: &str = "k8s.v1.cni.cncf.io/network-status";

/// Applies the objects that Multus needs, and returns a token of its account.
pub async fn install(server: &Server) -> String {
    let admin = server.admin().await;
    let manifest = Path::new(env!("CARGO_MANIFEST_DIR")).join("multus.yaml");
    for object in documents(&manifest) {
        install::apply(&admin, &object).await;
    }
    let networks = networks(&admin, "default");
    until("NetworkAttachmentDefinitions are served", async || {
        networks.list(&ListParams::default().limit(1)).await.is_ok()
    })
    .await;
    token(&admin, "kube-system", "multus", None).await.unwrap()
}

/// The `NetworkAttachmentDefinition`s of a namespace.
pub fn networks(client: &Client, namespace: &str) -> Api<DynamicObject> {
    let kind = GroupVersionKind::gvk("k8s.cni.cncf.io", "v1", "NetworkAttachmentDefinition");
    let resource = ApiResource::from_gvk_with_plural(&kind, "network-attachment-definitions");
    Api::namespaced_with(client.clone(), namespace, &resource)
}

/// Applies like an administrator, and rejects unknown fields.
pub fn strictly() -> PatchParams {
    PatchParams::apply("tests").validation_strict()
}

/// Creates a namespace with the account that its pods need; no controller of Kubernetes runs that would create the
/// account.
pub async fn namespace(client: &Client, name: &str) {
    let namespaces: Api<Namespace> = Api::all(client.clone());
    create(&namespaces, json!({ "metadata": { "name": name } })).await;
    account(client, name, "default").await;
}

/// Creates a network with the text `config` as configuration. `resource` names a resource of a device plugin.
pub async fn network(client: &Client, namespace: &str, name: &str, config: &str, resource: Option<&str>) {
    let annotations = resource.map(|name| json!({ "k8s.v1.cni.cncf.io/resourceName": name }));
    let object = json!({
        "apiVersion": "k8s.cni.cncf.io/v1", "kind": "NetworkAttachmentDefinition",
        "metadata": { "name": name, "annotations": annotations },
        "spec": { "config": config },
    });
    create(&networks(client, namespace), object).await;
}

/// Creates a pod that is bound to `node` and requests networks in this annotation.
pub async fn pod(client: &Client, namespace: &str, name: &str, node: &str, wanted: &str) -> PodIdentity {
    let metadata = json!({ "name": name, "annotations": { NETWORKS: wanted } });
    let pods: Api<Pod> = Api::namespaced(client.clone(), namespace);
    let pod = create(&pods, objects::pod(&metadata, node)).await;
    PodIdentity {
        namespace: namespace.to_owned(),
        name: name.to_owned(),
        uid: pod.uid().unwrap(),
    }
}

/// Deletes a pod without a grace period.
pub async fn delete(client: &Client, pod: &PodIdentity) {
    let pods: Api<Pod> = Api::namespaced(client.clone(), &pod.namespace);
    let now = DeleteParams::default().grace_period(0);
    pods.delete(&pod.name, &now).await.unwrap();
}

/// The network status that Multus wrote to a pod, the cluster's default network first; empty if there is none.
pub async fn status(client: &Client, pod: &PodIdentity) -> Vec<Value> {
    let pods: Api<Pod> = Api::namespaced(client.clone(), &pod.namespace);
    let pod = pods.get(&pod.name).await.unwrap();
    let text = pod.annotations().get(STATUS).cloned();
    text.map(|text| serde_json::from_str(&text).unwrap())
        .unwrap_or_default()
}

/// The messages of the events about a pod.
pub async fn events(client: &Client, pod: &PodIdentity) -> Vec<String> {
    let events: Api<Event> = Api::namespaced(client.clone(), &pod.namespace);
    let of = format!("involvedObject.name={}", pod.name);
    let list = events.list(&ListParams::default().fields(&of)).await.unwrap();
    list.into_iter().filter_map(|event| event.message).collect()
}
