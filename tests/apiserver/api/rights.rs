// SPDX-License-Identifier: Apache-2.0
//! The rights of an agent, tested with the token of its pod.

mod addresses;
mod blocks;
mod node;

use crate::{block, changed, refusal};
use api::{IpAddress, IpBlock};
use apiserver::objects::{token, try_create};
use apiserver::{Identity, Server};
use k8s_openapi::api::authorization::v1::{
    ResourceAttributes, SelfSubjectAccessReview, SelfSubjectAccessReviewSpec,
};
use kube::api::{Api, Patch, PatchParams, PostParams};
use kube::{Client, ResourceExt};
use serde_json::{Value, json};

struct Agent {
    identity: Identity,
    client: Client,
}

impl Agent {
    async fn of(node: &str) -> Self {
        let server = Server::shared();
        let identity = Identity::new(&server.admin().await, node).await;
        let client = server.with_token(&identity.token).await;
        Self { identity, client }
    }

    fn blocks(&self) -> Api<IpBlock> {
        Api::all(self.client.clone())
    }

    fn addresses(&self) -> Api<IpAddress> {
        Api::all(self.client.clone())
    }

    async fn claim(&self, name: &str, cidr: &str) -> Result<IpBlock, kube::Error> {
        let claimed = block(name, cidr, &self.identity.node.node);
        try_create(&self.blocks(), claimed).await
    }

    /// Changes the current version of a block.
    async fn swap(&self, name: &str, changes: &[(&str, Value)]) -> Result<IpBlock, kube::Error> {
        let now = serde_json::to_value(self.blocks().get(name).await.unwrap()).unwrap();
        let patch = merge(&now, &changed(now.clone(), changes));
        let parameters = PatchParams::default();
        self.blocks().patch(name, &parameters, &Patch::Merge(patch)).await
    }

    /// The change that makes this agent the owner.
    fn owner(&self) -> (&'static str, Value) {
        ("/spec/owner", serde_json::to_value(&self.identity.node).unwrap())
    }

    async fn may(&self, verb: &str, group: &str, resource: &str, namespace: Option<&str>) -> bool {
        let (resource, subresource) = resource.split_once('/').unwrap_or((resource, ""));
        let review = SelfSubjectAccessReview {
            spec: SelfSubjectAccessReviewSpec {
                resource_attributes: Some(ResourceAttributes {
                    group: Some(group.to_owned()),
                    resource: Some(resource.to_owned()),
                    subresource: Some(subresource.to_owned()),
                    verb: Some(verb.to_owned()),
                    namespace: namespace.map(str::to_owned),
                    ..ResourceAttributes::default()
                }),
                ..SelfSubjectAccessReviewSpec::default()
            },
            ..SelfSubjectAccessReview::default()
        };
        let api: Api<SelfSubjectAccessReview> = Api::all(self.client.clone());
        let answer = api.create(&PostParams::default(), &review).await.unwrap();
        answer.status.unwrap().allowed
    }
}

/// The patch (RFC 7386) that makes `after` of `before`.
fn merge(before: &Value, after: &Value) -> Value {
    let (Value::Object(before), Value::Object(after)) = (before, after) else {
        return after.clone();
    };
    let removed = before.keys().filter(|key| !after.contains_key(*key));
    let mut patch: serde_json::Map<String, Value> = removed.map(|key| (key.clone(), Value::Null)).collect();
    for (key, value) in after {
        patch.insert(key.clone(), merge(before.get(key).unwrap_or(&json!({})), value));
    }
    Value::Object(patch)
}

/// Replaces `before` with `after`. Fails if the API server has another version than `before`.
async fn put<K>(api: &Api<K>, before: &K, after: &K) -> Result<K, kube::Error>
where
    K: kube::Resource + Clone + serde::Serialize + serde::de::DeserializeOwned + std::fmt::Debug,
{
    let (old, new) = (
        serde_json::to_value(before).unwrap(),
        serde_json::to_value(after).unwrap(),
    );
    let patch = Patch::Merge(merge(&old, &new));
    api.patch(
        &before.meta().name.clone().unwrap(),
        &PatchParams::default(),
        &patch,
    )
    .await
}

const VERBS: [&str; 8] = [
    "get",
    "list",
    "watch",
    "create",
    "update",
    "patch",
    "delete",
    "deletecollection",
];

#[tokio::test]
async fn an_agent_has_the_verbs_it_needs_and_no_others() {
    let agent = Agent::of("verbs").await;
    let wanted: [(&str, &str, &str); 17] = [
        ("rdmanet.io", "ippools", "list watch"),
        ("rdmanet.io", "ippools/status", "patch"),
        ("rdmanet.io", "addressspaces", "get"),
        ("rdmanet.io", "ipblocks", "get list watch create patch delete"),
        ("rdmanet.io", "ipblocks/status", "patch"),
        ("rdmanet.io", "ipaddresses", "get list create patch delete"),
        ("", "nodes", "get"),
        ("", "nodes/status", "patch"),
        ("", "pods", "get"),
        ("", "pods/exec", ""),
        ("", "namespaces", "get list watch"),
        ("", "secrets", ""),
        ("", "configmaps", ""),
        ("", "serviceaccounts/token", ""),
        ("events.k8s.io", "events", "create patch"),
        ("apiextensions.k8s.io", "customresourcedefinitions", ""),
        ("admissionregistration.k8s.io", "validatingadmissionpolicies", ""),
    ];
    for (group, resource, verbs) in wanted {
        for verb in VERBS {
            let may = agent.may(verb, group, resource, None).await;
            let should = verbs.split(' ').any(|v| v == verb);
            assert_eq!(may, should, "{verb} {resource}.{group}");
        }
    }
    for verb in VERBS {
        for namespace in ["rdmanet-system", "kube-system"] {
            let may = agent
                .may(verb, "coordination.k8s.io", "leases", Some(namespace))
                .await;
            assert!(!may, "{verb} leases of {namespace}");
        }
    }
}

#[tokio::test]
async fn a_token_without_a_node_cannot_claim_blocks() {
    let server = Server::shared();
    let admin = server.admin().await;
    let unbound = token(&admin, "rdmanet-system", "rdmanet-agent", None).await;
    let client = server.with_token(&unbound.unwrap()).await;
    let api: Api<IpBlock> = Api::all(client);
    for node in ["", "n"] {
        let claimed = block("unbound-4-0a000000-26", "10.0.0.0/26", node);
        refusal(try_create(&api, claimed).await);
    }
}

#[tokio::test]
async fn the_token_of_a_deleted_pod_is_refused() {
    let agent = Agent::of("gone").await;
    assert!(
        agent
            .blocks()
            .list(&kube::api::ListParams::default().limit(1))
            .await
            .is_ok()
    );
    agent.identity.leave(&Server::shared().admin().await).await;
    // The API server caches a valid token for ten seconds.
    let stranger = Server::shared().with_token(&agent.identity.token).await;
    apiserver::install::until("the token is refused", async || {
        let api: Api<IpBlock> = Api::all(stranger.clone());
        matches!(api.list(&kube::api::ListParams::default().limit(1)).await, Err(kube::Error::Api(e)) if e.code == 401)
    })
    .await;
}

#[tokio::test]
async fn a_field_selector_lists_only_the_blocks_of_one_node() {
    let (mine, other) = (Agent::of("selected-1").await, Agent::of("selected-2").await);
    mine.claim("selected-4-0a000000-26", "10.0.0.0/26").await.unwrap();
    other
        .claim("selected-4-0a000040-26", "10.0.0.64/26")
        .await
        .unwrap();
    let own = kube::api::ListParams::default().fields("spec.owner.node=selected-1");
    let names: Vec<String> = mine
        .blocks()
        .list(&own)
        .await
        .unwrap()
        .iter()
        .map(ResourceExt::name_any)
        .collect();
    assert_eq!(names, ["selected-4-0a000000-26"]);
}
