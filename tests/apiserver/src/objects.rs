// SPDX-License-Identifier: Apache-2.0
//! The objects that tests create, from JSON.

use api::block_layout::address_name;
use api::{AddressState, Attachment, IpAddress, IpAddressSpec, NodeRef};
use k8s_openapi::api::authentication::v1::{BoundObjectReference, TokenRequest, TokenRequestSpec};
use k8s_openapi::api::core::v1::ServiceAccount;
use kube::api::PostParams;
use kube::{Api, Client};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use std::fmt::Debug;
use std::net::IpAddr;

/// Creates `object`.
///
/// # Errors
/// The API server's refusal.
pub async fn try_create<K>(api: &Api<K>, object: Value) -> kube::Result<K>
where
    K: Clone + Debug + Serialize + DeserializeOwned,
{
    let object = serde_json::from_value(object).unwrap();
    api.create(&PostParams::default(), &object).await
}

/// Creates `object`, which must succeed.
pub async fn create<K>(api: &Api<K>, object: Value) -> K
where
    K: Clone + Debug + Serialize + DeserializeOwned,
{
    let name = object["metadata"]["name"].clone();
    try_create(api, object)
        .await
        .unwrap_or_else(|e| panic!("cannot create {name}: {e}"))
}

/// An `IPPool` with this spec.
pub fn pool(name: &str, spec: &Value) -> Value {
    json!({
        "apiVersion": "rdmanet.io/v1alpha1", "kind": "IPPool", "metadata": { "name": name }, "spec": spec,
    })
}

/// The object of the address `ip` in `block`, for an attachment on `node`. The pool is in the default space.
pub fn address(pool: &str, ip: IpAddr, block: &str, node: NodeRef) -> IpAddress {
    let spec = IpAddressSpec {
        pool: pool.to_owned(),
        address: ip.to_string(),
        block: block.to_owned(),
        node,
        state: AddressState::Bound,
        attachment: Some(Attachment {
            container_id: "c9".to_owned(),
            ifname: "net1".to_owned(),
            network: "net".to_owned(),
        }),
        pod: None,
        holder: None,
        since: None,
        quarantine_seconds: None,
    };
    IpAddress::new(&address_name("default", ip), spec)
}

/// A pod on `node` with this metadata.
pub fn pod(metadata: &Value, node: &str) -> Value {
    json!({
        "metadata": metadata,
        "spec": { "nodeName": node, "containers": [{ "name": "main", "image": "main" }] },
    })
}

/// A `StatefulSet`. Without the controllers of Kubernetes it has no pods.
pub fn stateful_set(name: &str, replicas: usize) -> Value {
    json!({
        "metadata": { "name": name },
        "spec": {
            "replicas": replicas, "serviceName": name, "selector": { "matchLabels": { "app": name } },
            "template": {
                "metadata": { "labels": { "app": name } },
                "spec": { "containers": [{ "name": "main", "image": "main" }] },
            },
        },
    })
}

/// Creates the service account `name`. No controller of Kubernetes runs here to create the account `default`.
pub async fn account(admin: &Client, namespace: &str, name: &str) {
    let accounts: Api<ServiceAccount> = Api::namespaced(admin.clone(), namespace);
    create(&accounts, json!({ "metadata": { "name": name } })).await;
}

/// A token of `account` for one day. With `bound`, the token ends with that object.
///
/// # Errors
/// The API server's refusal.
pub async fn token(
    admin: &Client,
    namespace: &str,
    account: &str,
    bound: Option<BoundObjectReference>,
) -> kube::Result<String> {
    let accounts: Api<ServiceAccount> = Api::namespaced(admin.clone(), namespace);
    let request = TokenRequest {
        spec: TokenRequestSpec {
            bound_object_ref: bound,
            expiration_seconds: Some(86_400),
            ..TokenRequestSpec::default()
        },
        ..TokenRequest::default()
    };
    let answer = accounts
        .create_token_request(account, &PostParams::default(), &request)
        .await?;
    Ok(answer.status.unwrap().token)
}
