// SPDX-License-Identifier: Apache-2.0
//! An agent may write one condition of its own Node, and nothing else.

use super::Agent;
use crate::refusal;
use api::deadline::Deadline;
use api::requests::Requests;
use apiserver::Server;
use k8s_openapi::api::core::v1::Node;
use kube::api::{Api, Patch, PatchParams};
use serde_json::{Value, json};

/// A condition as `Requests::patch_node_condition` of an agent writes it.
fn links_ready(status: &str) -> Value {
    condition("rdmanet.io/LinksReady", status)
}

fn condition(kind: &str, status: &str) -> Value {
    json!({ "type": kind, "status": status, "reason": "Test", "message": "a test" })
}

/// The response of the API server to this patch of the status of `node` by `agent`.
async fn patched(agent: &Agent, node: &str, patch: &Value) -> Result<Node, kube::Error> {
    let nodes: Api<Node> = Api::all(agent.client.clone());
    nodes
        .patch_status(node, &PatchParams::default(), &Patch::Strategic(patch))
        .await
}

/// The agent of a node whose status is like that of a running kubelet.
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
async fn an_agent_can_write_the_links_ready_condition_of_its_own_node() {
    let agent = agent_of_a_node_that_runs("links-1").await;
    let requests = Requests::new(agent.client.clone(), Deadline::background());
    let says = |status: &str| api::requests::NodeCondition {
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
        requests
            .patch_node_condition("links-1", "rdmanet.io/LinksReady", Some(&says(status)), turned)
            .await
            .unwrap();
        let now = read().await.unwrap();
        assert_eq!(now.status, status);
        // The times have a resolution of one second.
        assert!(now.last_transition_time.is_some() && (turned || now.last_transition_time == before));
        tokio::time::sleep(std::time::Duration::from_millis(1100)).await;
    }
    let told = requests.registration("links-1").await.unwrap().unwrap();
    assert_eq!(told.conditions["rdmanet.io/LinksReady"], says("False"));
    assert!(!told.lost && told.conditions.len() == 3);
    requests
        .patch_node_condition("links-1", "rdmanet.io/LinksReady", None, true)
        .await
        .unwrap();
    assert_eq!(read().await, None);
    let left = requests.registration("links-1").await.unwrap().unwrap();
    assert_eq!(left.conditions.len(), 2);
}

#[tokio::test]
async fn an_agent_can_change_only_the_links_ready_condition_of_its_node() {
    let mine = agent_of_a_node_that_runs("status-1").await;
    let other = Agent::of("status-2").await;
    let ready = json!({ "status": { "conditions": [links_ready("True")] } });
    let message = refusal(patched(&other, "status-1", &ready).await).message;
    assert!(
        message.contains("Node status-1 is not the one of this agent"),
        "{message}"
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
        let message = refusal(patched(&mine, "status-1", &patch).await).message;
        assert!(message.contains(sentence), "{patch}: {message}");
    }
    // The API server drops fields outside the status, and the condition is unchanged.
    let tainted =
        json!({ "spec": { "unschedulable": true }, "status": { "conditions": [links_ready("True")] } });
    let node = patched(&mine, "status-1", &tainted).await.unwrap();
    assert_ne!(node.spec.unwrap_or_default().unschedulable, Some(true));
    let nodes: Api<Node> = Api::all(mine.client.clone());
    let cordon = Patch::Strategic(json!({ "spec": { "unschedulable": true } }));
    refusal(nodes.patch("status-1", &PatchParams::default(), &cordon).await);
}
