// SPDX-License-Identifier: Apache-2.0
//! What a cluster hears of a node's links: a real kernel, whose cables the test pulls, under a real agent.

use crate::events::events;
use agents::{Member, Site};
use cluster::install::{documents, manifests, until};
use cluster::{Relay, install};
use k8s_openapi::api::core::v1::{Node as Object, NodeCondition};
use kube::Api;
use kube::api::{DeleteParams, Patch, PatchParams};
use serde_json::json;
use std::time::{Duration, Instant};
use tests::Node;
use tokio::runtime::Runtime;

const CONDITION: &str = "rdmanet.io/LinksReady";
const BOTH: &str = "carrier on rail0, rail1";
const LOST: &str = "rail0 has no carrier: cable or switch port";

/// A machine with two rails in a network of its own, from where the API server is on the loopback too.
fn on_a_machine(test: impl AsyncFnOnce(&Site, &Node) + Send) {
    let runtime = Runtime::new().unwrap();
    let site = runtime.block_on(Site::new());
    Node::run(|machine| {
        let _relay = Relay::start(runtime.handle(), site.server.port());
        machine.cable("rail0");
        machine.cable("rail1");
        runtime.block_on(test(&site, machine));
    });
}

async fn condition(site: &Site) -> Option<NodeCondition> {
    let nodes: Api<Object> = Api::all(site.admin.clone());
    let conditions = nodes.get("a").await.ok()?.status?.conditions?;
    conditions
        .into_iter()
        .find(|condition| condition.type_ == CONDITION)
}

/// Waits until the condition says this.
async fn says(site: &Site, status: &str, reason: &str, message: &str) -> NodeCondition {
    let mut said = None;
    let wanted = (status, Some(reason), Some(message));
    let start = Instant::now();
    let is = |said: &NodeCondition| {
        (
            said.status.as_str(),
            said.reason.as_deref(),
            said.message.as_deref(),
        ) == wanted
    };
    while !said.as_ref().is_some_and(is) {
        assert!(
            start.elapsed() < Duration::from_secs(60),
            "{wanted:?}, not {said:?}"
        );
        tokio::time::sleep(Duration::from_millis(100)).await;
        said = condition(site).await;
    }
    said.unwrap()
}

/// How often the agent has written the status of its Node.
fn writes(site: &Site, since: cluster::audit::Mark) -> usize {
    let requests = site.server.requests_since(since).into_iter();
    let ours = requests.filter(|request| request.node() == Some("a") && request.verb == "patch");
    ours.filter(|request| request.uri.contains("/nodes/a/status"))
        .count()
}

#[test]
fn a_cable_that_is_pulled_and_put_back_is_told_by_condition_event_and_metric() {
    on_a_machine(async |site, machine| {
        let mut node = Member::running(&site.server, "a", &["--links", "rail[01]"]).await;
        says(site, "True", "LinksUp", BOTH).await;
        machine.ip("link set rail0-far down");
        let lost = says(site, "False", "LinkDown", LOST).await;
        until("it has an Event", async || {
            let events = events(site, "Node", "a", "LinkDown").await;
            events == [("Warning".to_owned(), "link rail0 has lost carrier".to_owned())]
        })
        .await;
        let numbers = node.get("/metrics");
        for number in [
            "rdmanet_link_up{link=\"rail0\"} 0",
            "rdmanet_link_up{link=\"rail1\"} 1",
            "rdmanet_link_changes_total{link=\"rail0\"} 1",
        ] {
            assert!(numbers.contains(number), "{number}: {numbers}");
        }

        // An agent that starts finds its own word, which needs no write.
        assert!(node.stop());
        let mark = site.server.mark();
        node.start();
        until("the next agent listens", async || {
            node.log().matches("the agent listens").count() == 2
        })
        .await;
        tokio::time::sleep(Duration::from_secs(2)).await;
        assert_eq!(writes(site, mark), 0);
        let still = condition(site).await.unwrap();
        assert_eq!(still.last_transition_time, lost.last_transition_time);

        machine.ip("link set rail0-far up");
        let found = says(site, "True", "LinksUp", BOTH).await;
        assert!(found.last_transition_time > lost.last_transition_time);
        until("it has an Event", async || {
            !events(site, "Node", "a", "LinkUp").await.is_empty()
        })
        .await;
        for rail in ["rail0", "rail1"] {
            machine.ip(&format!("link del {rail}"));
        }
        let gone = "no link of this node counts (--links rail[01]): they are gone, in pods, or set down";
        says(site, "Unknown", "NoLinks", gone).await;
        assert!(!node.get("/metrics").contains("rdmanet_link_up{link=\"rail"));
    });
}

#[test]
fn a_cable_that_flaps_is_written_of_at_a_bounded_rate_and_the_last_word_is_right() {
    on_a_machine(async |site, machine| {
        let flags = ["--links", "rail[01]", "--mirror", "1s", "--quarantine", "5s"];
        let _node = Member::running(&site.server, "a", &flags).await;
        says(site, "True", "LinksUp", BOTH).await;
        let (mark, start) = (site.server.mark(), Instant::now());
        while start.elapsed() < Duration::from_secs(5) {
            for state in ["down", "up", "down"] {
                machine.ip(&format!("link set rail0-far {state}"));
                tokio::time::sleep(Duration::from_millis(70)).await;
            }
        }
        says(site, "False", "LinkDown", LOST).await;
        let (writes, seconds) = (writes(site, mark), start.elapsed().as_secs_f64());
        #[expect(clippy::cast_precision_loss, reason = "a handful")]
        let rate = writes as f64 / (seconds + 1.0);
        assert!(writes >= 1 && rate <= 1.0, "{writes} writes in {seconds} s");

        // Somebody takes it away; a Node is registered anew.
        let nodes: Api<Object> = Api::all(site.admin.clone());
        let none = json!({ "status": { "conditions": [{ "type": CONDITION, "$patch": "delete" }] } });
        nodes
            .patch_status("a", &PatchParams::default(), &Patch::Strategic(none))
            .await
            .unwrap();
        says(site, "False", "LinkDown", LOST).await;
        nodes.delete("a", &DeleteParams::default()).await.unwrap();
        cluster::identity::join(&site.admin, "a").await.unwrap();
        says(site, "False", "LinkDown", LOST).await;
    });
}

#[test]
fn an_agent_that_may_not_write_it_says_so_once_and_does_everything_else() {
    on_a_machine(async |site, machine| {
        let role: Api<k8s_openapi::api::rbac::v1::ClusterRole> = Api::all(site.admin.clone());
        let mut reduced = role.get("rdmanet-agent").await.unwrap();
        let rules = reduced.rules.as_mut().unwrap();
        rules.retain(|rule| rule.resources.as_ref().is_none_or(|r| r != &["nodes/status"]));
        role.replace("rdmanet-agent", &kube::api::PostParams::default(), &reduced)
            .await
            .unwrap();
        machine.ip("link set rail0-far down");
        let node = Member::running(&site.server, "a", &["--links", "rail[01]"]).await;
        site.simple("rail0", "10.1.0.0/24").await;
        node.wait_active("rail0").await;
        let refused = "condition rdmanet.io/LinksReady is not written";
        until("the agent says so", async || node.log().contains(refused)).await;
        tokio::time::sleep(Duration::from_secs(3)).await;
        assert_eq!(node.log().matches(refused).count(), 1, "{}", node.log());
        assert_eq!(condition(site).await, None);
        for file in manifests("rbac") {
            for object in documents(&file) {
                install::apply(&site.admin, &object).await;
            }
        }
        says(site, "False", "LinkDown", LOST).await;
    });
}
