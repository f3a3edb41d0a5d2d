// SPDX-License-Identifier: Apache-2.0
//! What an agent may do, asked of the API server with the token of its pod.

use crate::{address, block, changed, pool, refusal};
use agent::api::{IpAddress, IpBlock, IpPool};
use cluster::{Identity, Server};
use k8s_openapi::api::authorization::v1::{
    ResourceAttributes, SelfSubjectAccessReview, SelfSubjectAccessReviewSpec,
};
use k8s_openapi::api::core::v1::Node;
use kube::api::{Api, DeleteParams, Patch, PatchParams, PostParams};
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
        self.blocks()
            .create(&PostParams::default(), &serde_json::from_value(claimed).unwrap())
            .await
    }

    /// Changes a block as it is now.
    async fn swap(&self, name: &str, changes: &[(&str, Value)]) -> Result<IpBlock, kube::Error> {
        let now = serde_json::to_value(self.blocks().get(name).await.unwrap()).unwrap();
        let then = serde_json::from_value(changed(now, changes)).unwrap();
        self.blocks().replace(name, &PostParams::default(), &then).await
    }

    /// The change that makes it the owner.
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

fn state(state: &str) -> (&'static str, Value) {
    ("/spec/state", json!(state))
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
    let read = "get list watch";
    let wanted: [(&str, &str, &str); 17] = [
        ("rdmanet.io", "ippools", "get list watch update patch"),
        ("rdmanet.io", "ippools/status", "update patch"),
        ("rdmanet.io", "addressspaces", "get list watch create update"),
        ("rdmanet.io", "ipblocks", "get list watch create update delete"),
        ("rdmanet.io", "ipblocks/status", "update patch"),
        ("rdmanet.io", "ipaddresses", "get list watch create update delete"),
        ("", "nodes", read),
        ("", "nodes/status", "patch"),
        ("", "pods", read),
        ("", "pods/exec", ""),
        ("", "namespaces", read),
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
    assert!(
        agent
            .may("create", "coordination.k8s.io", "leases", Some("rdmanet-system"))
            .await
    );
    assert!(
        !agent
            .may("update", "coordination.k8s.io", "leases", Some("kube-system"))
            .await
    );
}

#[tokio::test]
async fn the_keepers_lease_is_the_only_one_that_an_agent_may_change() {
    use k8s_openapi::api::coordination::v1::Lease;
    let agent = Agent::of("leases").await;
    let admin: Api<Lease> = Api::namespaced(Server::shared().admin().await, "rdmanet-system");
    let leases: Api<Lease> = Api::namespaced(agent.client.clone(), "rdmanet-system");
    for (name, allowed) in [("rdmanet-keeper", true), ("another", false)] {
        let lease: Lease =
            serde_json::from_value(json!({ "metadata": { "name": name }, "spec": {} })).unwrap();
        admin.create(&PostParams::default(), &lease).await.unwrap();
        let patch = Patch::Merge(json!({ "spec": { "holderIdentity": "me" } }));
        let patched = leases.patch(name, &PatchParams::default(), &patch).await;
        assert_eq!(patched.is_ok(), allowed, "{name}: {patched:?}");
        admin.delete(name, &DeleteParams::default()).await.unwrap();
    }
}

#[tokio::test]
async fn an_agent_claims_blocks_for_its_own_node_alone() {
    let (mine, other) = (Agent::of("claims-1").await, Agent::of("claims-2").await);
    mine.claim("claims-4-0a000000-26", "10.0.0.0/26").await.unwrap();
    let foreign: IpBlock =
        serde_json::from_value(block("claims-4-0a000040-26", "10.0.0.64/26", "claims-1")).unwrap();
    let status = refusal(other.blocks().create(&PostParams::default(), &foreign).await);
    assert_eq!(status.code, 403);
    assert!(
        status
            .message
            .contains("the agent of node claims-2 may claim a block for that node alone"),
        "{}",
        status.message
    );
}

#[tokio::test]
async fn an_agent_cannot_touch_a_block_of_another_node() {
    let (mine, other) = (Agent::of("touch-1").await, Agent::of("touch-2").await);
    let name = "touch-4-0a000000-26";
    mine.claim(name, "10.0.0.0/26").await.unwrap();
    mine.swap(name, &[state("Draining")]).await.unwrap();
    mine.swap(name, &[state("Active")]).await.unwrap();

    refusal(other.swap(name, &[state("Draining")]).await);
    refusal(other.swap(name, &[("/spec/epoch", json!(2))]).await);
    refusal(
        other
            .swap(name, &[other.owner(), ("/spec/epoch", json!(2))])
            .await,
    );
    refusal(other.swap(name, &[other.owner(), state("Orphaned")]).await);
    refusal(other.swap(name, &[state("Shared")]).await);
    let said = refusal(other.blocks().delete(name, &DeleteParams::default()).await).message;
    assert!(
        said.contains("block of node touch-1 is not Orphaned or Shared"),
        "{said}"
    );
    let patch = Patch::Merge(json!({ "status": { "used": 1, "free": 0 } }));
    let said = refusal(
        other
            .blocks()
            .patch_status(name, &PatchParams::default(), &patch)
            .await,
    )
    .message;
    assert!(said.contains("status of a block of node touch-1"), "{said}");
    mine.blocks()
        .patch_status(name, &PatchParams::default(), &patch)
        .await
        .unwrap();
    mine.blocks()
        .delete(name, &DeleteParams::default())
        .await
        .unwrap();
}

#[tokio::test]
async fn an_agent_may_orphan_a_block_and_afterwards_take_or_end_it() {
    let (mine, other, third) = (
        Agent::of("orphan-1").await,
        Agent::of("orphan-2").await,
        Agent::of("orphan-3").await,
    );
    let name = "orphan-4-0a000000-26";
    mine.claim(name, "10.0.0.0/26").await.unwrap();
    other
        .swap(
            name,
            &[
                state("Orphaned"),
                (
                    "/spec/orphaned",
                    json!({ "by": "orphan-2", "since": "2026-01-01T00:00:00Z" }),
                ),
            ],
        )
        .await
        .unwrap();
    refusal(
        other
            .swap(name, &[third.owner(), state("Active"), ("/spec/epoch", json!(2))])
            .await,
    );
    let taken = other
        .swap(name, &[other.owner(), state("Active"), ("/spec/epoch", json!(2))])
        .await
        .unwrap();
    assert_eq!(taken.spec.owner, other.identity.node);
    refusal(mine.swap(name, &[state("Draining")]).await);
    mine.swap(name, &[state("Orphaned")]).await.unwrap();
    third
        .blocks()
        .delete(name, &DeleteParams::default())
        .await
        .unwrap();
}

#[tokio::test]
async fn a_block_of_an_earlier_node_of_the_same_name_can_be_taken_back() {
    let mine = Agent::of("namesake").await;
    let name = "namesake-4-0a000000-26";
    mine.claim(name, "10.0.0.0/26").await.unwrap();
    mine.swap(name, &[state("Orphaned")]).await.unwrap();
    mine.swap(name, &[mine.owner(), state("Active"), ("/spec/epoch", json!(2))])
        .await
        .unwrap();
}

#[tokio::test]
async fn an_agent_has_the_addresses_of_its_own_node_alone() {
    let (mine, other) = (Agent::of("addresses-1").await, Agent::of("addresses-2").await);
    let name = "addresses-0a000005";
    let wanted: IpAddress = serde_json::from_value(address(name, "10.0.0.5", "addresses-1")).unwrap();
    let said = refusal(other.addresses().create(&PostParams::default(), &wanted).await).message;
    assert!(said.contains("may take addresses for that node alone"), "{said}");
    let had = mine
        .addresses()
        .create(&PostParams::default(), &wanted)
        .await
        .unwrap();
    let said = refusal(other.addresses().delete(name, &DeleteParams::default()).await).message;
    assert!(said.contains("node addresses-1 still has this address"), "{said}");

    let mut orphaned = had.clone();
    orphaned.spec.state = agent::api::AddressState::Orphaned;
    let orphaned = other
        .addresses()
        .replace(name, &PostParams::default(), &orphaned)
        .await
        .unwrap();
    let mut given = orphaned.clone();
    given.spec.attachment.as_mut().unwrap().ifname = "stolen".to_owned();
    given.spec.state = agent::api::AddressState::Bound;
    let said = refusal(
        other
            .addresses()
            .replace(name, &PostParams::default(), &given)
            .await,
    )
    .message;
    assert!(said.contains("may only say that it is Orphaned"), "{said}");
    let mut kept = orphaned.clone();
    kept.spec.state = agent::api::AddressState::Kept;
    kept.spec.holder = Some(agent::api::Holder {
        namespace: "train".to_owned(),
        stateful_set: "db".to_owned(),
        pod: "db-0".to_owned(),
        network: "rail0".to_owned(),
        ifname: "net1".to_owned(),
    });
    let orphaned = other
        .addresses()
        .replace(name, &PostParams::default(), &kept)
        .await
        .unwrap();
    let mut stolen = orphaned.clone();
    stolen.spec.node.node = "addresses-3".to_owned();
    refusal(
        other
            .addresses()
            .replace(name, &PostParams::default(), &stolen)
            .await,
    );
    other
        .addresses()
        .delete(name, &DeleteParams::default())
        .await
        .unwrap();
}

#[tokio::test]
async fn an_agent_cannot_change_what_a_person_wrote_in_a_pool() {
    let agent = Agent::of("pools").await;
    let made = pool("written", &json!([{ "subnet": "10.0.0.0/16" }]));
    let admin: Api<IpPool> = Api::all(Server::shared().admin().await);
    admin
        .create(&PostParams::default(), &serde_json::from_value(made).unwrap())
        .await
        .unwrap();
    let pools: Api<IpPool> = Api::all(agent.client.clone());
    let patch = Patch::Merge(json!({ "metadata": { "finalizers": ["rdmanet.io/addresses"] } }));
    pools
        .patch("written", &PatchParams::default(), &patch)
        .await
        .unwrap();
    let patch = Patch::Merge(json!({ "spec": { "priority": 7 } }));
    let said = refusal(pools.patch("written", &PatchParams::default(), &patch).await).message;
    assert!(said.contains("the spec of a pool is for people"), "{said}");
    let patch = Patch::Merge(json!({ "status": { "observedGeneration": 1 } }));
    pools
        .patch_status("written", &PatchParams::default(), &patch)
        .await
        .unwrap();
    refusal(pools.delete("written", &DeleteParams::default()).await);
    let patch = Patch::Merge(json!({ "metadata": { "finalizers": [] } }));
    pools
        .patch("written", &PatchParams::default(), &patch)
        .await
        .unwrap();
}

/// The condition, as `Cluster::tell_node` of an agent writes it.
fn links_ready(status: &str) -> Value {
    condition("rdmanet.io/LinksReady", status)
}

fn condition(kind: &str, status: &str) -> Value {
    json!({ "type": kind, "status": status, "reason": "Test", "message": "a test" })
}

/// What the API server makes of this patch of the status of `node` by `agent`.
async fn patched(agent: &Agent, node: &str, patch: &Value) -> Result<Node, kube::Error> {
    let nodes: Api<Node> = Api::all(agent.client.clone());
    nodes
        .patch_status(node, &PatchParams::default(), &Patch::Strategic(patch))
        .await
}

/// A node with a status as a kubelet writes it.
async fn agent_of_a_node_that_runs(name: &str) -> Agent {
    let agent = Agent::of(name).await;
    let nodes: Api<Node> = Api::all(Server::shared().admin().await);
    let status = json!({ "status": {
        "capacity": { "cpu": "8" }, "allocatable": { "cpu": "7" }, "nodeInfo": agent_info(),
        "conditions": [condition("Ready", "True"), condition("MemoryPressure", "False")],
    } });
    nodes
        .patch_status(name, &PatchParams::default(), &Patch::Strategic(status))
        .await
        .unwrap();
    agent
}

fn agent_info() -> Value {
    let names = [
        "architecture",
        "bootID",
        "containerRuntimeVersion",
        "kernelVersion",
        "kubeProxyVersion",
        "kubeletVersion",
        "machineID",
        "operatingSystem",
        "osImage",
        "systemUUID",
    ];
    names
        .into_iter()
        .map(|name| (name.to_owned(), json!("a")))
        .collect()
}

#[tokio::test]
async fn an_agent_says_of_its_own_node_whether_its_links_are_ready() {
    let agent = agent_of_a_node_that_runs("links-1").await;
    let cluster = agent::cluster::Cluster::new(agent.client.clone());
    let says = |status: &str| agent::cluster::NodeCondition {
        status: status.to_owned(),
        reason: "Test".to_owned(),
        message: "a test".to_owned(),
    };
    let read = async || {
        let nodes: Api<Node> = Api::all(agent.client.clone());
        let mut conditions = nodes
            .get("links-1")
            .await
            .unwrap()
            .status
            .unwrap()
            .conditions
            .unwrap();
        conditions.retain(|condition| condition.type_ == "rdmanet.io/LinksReady");
        conditions.pop()
    };
    for (status, turned) in [("True", true), ("False", true), ("False", false)] {
        let before = read().await.and_then(|condition| condition.last_transition_time);
        cluster
            .tell_node("links-1", "rdmanet.io/LinksReady", Some(&says(status)), turned)
            .await
            .unwrap();
        let now = read().await.unwrap();
        assert_eq!(now.status, status);
        // To the second.
        assert!(now.last_transition_time.is_some() && (turned || now.last_transition_time == before));
        tokio::time::sleep(std::time::Duration::from_millis(1100)).await;
    }
    let told = cluster.registration("links-1").await.unwrap().unwrap();
    assert_eq!(told.conditions["rdmanet.io/LinksReady"], says("False"));
    assert!(!told.lost && told.conditions.len() == 3);
    cluster
        .tell_node("links-1", "rdmanet.io/LinksReady", None, true)
        .await
        .unwrap();
    assert_eq!(read().await, None);
    let left = cluster.registration("links-1").await.unwrap().unwrap();
    assert_eq!(left.conditions.len(), 2);
}

#[tokio::test]
async fn an_agent_changes_nothing_else_of_a_node() {
    let mine = agent_of_a_node_that_runs("status-1").await;
    let other = Agent::of("status-2").await;
    let ready = json!({ "status": { "conditions": [links_ready("True")] } });
    let said = refusal(patched(&other, "status-1", &ready).await).message;
    assert!(
        said.contains("Node status-1 is not the one of this agent"),
        "{said}"
    );
    let conditions = |conditions: Value| json!({ "status": { "conditions": conditions } });
    let alone = "rdmanet.io/LinksReady alone";
    let node = "not for an agent";
    let refused = [
        (conditions(json!([condition("Ready", "False")])), alone),
        (
            conditions(json!([condition("Another", "True"), links_ready("True")])),
            alone,
        ),
        (
            conditions(json!([{ "type": "MemoryPressure", "$patch": "delete" }])),
            alone,
        ),
        (json!({ "status": { "capacity": { "cpu": "800" } } }), alone),
        (json!({ "status": { "allocatable": null } }), alone),
        (json!({ "status": { "phase": "Running" } }), alone),
        (
            json!({ "status": { "nodeInfo": { "kernelVersion": "b" } } }),
            alone,
        ),
        (
            json!({ "metadata": { "labels": { "node-role.kubernetes.io/control-plane": "" } } }),
            node,
        ),
        (json!({ "metadata": { "annotations": { "a": "b" } } }), node),
        (
            json!({ "metadata": { "finalizers": ["example.com/stays"] } }),
            node,
        ),
    ];
    for (patch, sentence) in refused {
        let said = refusal(patched(&mine, "status-1", &patch).await).message;
        assert!(said.contains(sentence), "{patch}: {said}");
    }
    // The API server lets go of what is no status, and the condition with it is as before.
    let tainted =
        json!({ "spec": { "unschedulable": true }, "status": { "conditions": [links_ready("True")] } });
    let node = patched(&mine, "status-1", &tainted).await.unwrap();
    assert_ne!(node.spec.unwrap_or_default().unschedulable, Some(true));
    let nodes: Api<Node> = Api::all(mine.client.clone());
    let cordon = Patch::Strategic(json!({ "spec": { "unschedulable": true } }));
    refusal(nodes.patch("status-1", &PatchParams::default(), &cordon).await);
}

#[tokio::test]
async fn a_token_that_names_no_node_may_claim_nothing() {
    use k8s_openapi::api::authentication::v1::TokenRequest;
    use k8s_openapi::api::core::v1::ServiceAccount;
    let server = Server::shared();
    let accounts: Api<ServiceAccount> = Api::namespaced(server.admin().await, "rdmanet-system");
    let unbound = TokenRequest::default();
    let answer = accounts
        .create_token_request("rdmanet-agent", &PostParams::default(), &unbound)
        .await
        .unwrap();
    let client = server.with_token(&answer.status.unwrap().token).await;
    let api: Api<IpBlock> = Api::all(client);
    let wanted: IpBlock = serde_json::from_value(block("unbound-4-0a000000-26", "10.0.0.0/26", "")).unwrap();
    let named: IpBlock = serde_json::from_value(block("unbound-4-0a000000-26", "10.0.0.0/26", "n")).unwrap();
    for block in [wanted, named] {
        refusal(api.create(&PostParams::default(), &block).await);
    }
}

#[tokio::test]
async fn the_token_of_a_pod_that_is_gone_is_worth_nothing() {
    let agent = Agent::of("gone").await;
    assert!(
        agent
            .blocks()
            .list(&kube::api::ListParams::default().limit(1))
            .await
            .is_ok()
    );
    agent.identity.leave(&Server::shared().admin().await).await;
    // The API server remembers a token that was good for ten seconds.
    let stranger = Server::shared().with_token(&agent.identity.token).await;
    cluster::install::until("the token is refused", async || {
        let api: Api<IpBlock> = Api::all(stranger.clone());
        matches!(api.list(&kube::api::ListParams::default().limit(1)).await, Err(kube::Error::Api(e)) if e.code == 401)
    })
    .await;
}

#[tokio::test]
async fn a_watch_of_the_blocks_of_one_node_shows_no_others() {
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
