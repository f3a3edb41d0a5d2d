// SPDX-License-Identifier: Apache-2.0
//! What the agent reports about a node's links: a real agent on a real kernel, whose cables the test pulls.

use crate::events::events;
use agents::scrapes::alerts_at_once;
use agents::{InTurn, Member, Site};
use apiserver::audit::Mark;
use apiserver::install::{LIMIT, documents, manifests, until};
use apiserver::{Relay, install};
use k8s_openapi::api::core::v1::{Node as Object, NodeCondition};
use kube::Api;
use kube::api::{DeleteParams, Patch, PatchParams};
use serde_json::json;
use std::time::{Duration, Instant};
use tests::Node;

const CONDITION: &str = "rdmanet.io/LinksReady";
const BOTH: &str = "carrier on rail0, rail1";
const LOST: &str = "rail0 has no carrier: check cable and switch port";

/// A machine whose links the test controls, and its cluster.
struct RailNode<'a> {
    site: &'a Site,
    node: &'a Node,
    name: &'a str,
}

/// Runs `test` on a machine of the cluster that most tests here share, one after the other.
fn on_a_machine(name: &str, test: impl AsyncFnOnce(RailNode<'_>) + Send) {
    static CLUSTER: InTurn = InTurn::new(&["--quarantine", "5s"]);
    on_a_machine_of(&CLUSTER, name, test);
}

/// Runs `test` on a machine with two rails in its own network namespace, in which the API server is reachable on the
/// loopback too.
fn on_a_machine_of(cluster: &InTurn, name: &str, test: impl AsyncFnOnce(RailNode<'_>) + Send) {
    cluster.run(|runtime, site| {
        Node::run(|node| {
            let _relay = Relay::start(runtime.handle(), site.server.port());
            node.cable("rail0");
            node.cable("rail1");
            runtime.block_on(test(RailNode { site, node, name }));
        });
    });
}

impl RailNode<'_> {
    async fn agent(&self, more: &[&str]) -> Member {
        let flags = [&["--links", "rail[01]"], more].concat();
        Member::running(&self.site.server, self.name, &flags).await
    }

    fn nodes(&self) -> Api<Object> {
        Api::all(self.site.admin.clone())
    }

    fn ip(&self, words: &str) {
        self.node.ip(words);
    }

    /// Pulls the cable and waits until the kernel has reported it. The kernel may not report a cable that is back at
    /// once.
    async fn pull(&self, rail: &str) {
        self.ip(&format!("link set {rail}-far down"));
        let show = format!("-j link show {rail}");
        let is_reported = || !self.node.ip(&show).contains("\"operstate\":\"UP\"");
        until("the kernel has reported the cable", async || is_reported()).await;
    }

    async fn condition(&self) -> Option<NodeCondition> {
        let conditions = self.nodes().get(self.name).await.ok()?.status?.conditions?;
        conditions
            .into_iter()
            .find(|condition| condition.type_ == CONDITION)
    }

    /// Waits for this condition.
    async fn expect_condition(&self, status: &str, reason: &str, message: &str) -> NodeCondition {
        let wanted = (status, Some(reason), Some(message));
        let start = Instant::now();
        loop {
            let condition = self.condition().await;
            match condition {
                Some(condition)
                    if (
                        condition.status.as_str(),
                        condition.reason.as_deref(),
                        condition.message.as_deref(),
                    ) == wanted =>
                {
                    return condition;
                }
                condition => assert!(start.elapsed() < LIMIT, "{wanted:?}, not {condition:?}"),
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    }

    /// The number of times that the agent has written the status of its Node.
    fn writes(&self, since: Mark) -> usize {
        let status = format!("/nodes/{}/status", self.name);
        let requests = self.site.server.requests_since(since).into_iter();
        let ours = requests.filter(|request| request.node() == Some(self.name) && request.verb == "patch");
        ours.filter(|request| request.uri.contains(&status)).count()
    }

    /// Waits for one Event of the Node with this note.
    async fn has_event(&self, reason: &str, kind: &str, note: &str) {
        let wanted = (kind.to_owned(), note.to_owned());
        let mut all = Vec::new();
        until(note, async || {
            all = events(self.site, "Node", self.name, reason).await;
            all.contains(&wanted)
        })
        .await;
        let alike = all.iter().filter(|event| **event == wanted).count();
        assert_eq!(alike, 1, "{all:#?}");
    }
}

#[test]
fn a_condition_an_event_and_a_metric_report_a_pulled_and_replugged_cable() {
    on_a_machine("pulled", async |machine| {
        let node = machine.agent(&[]).await;
        machine.expect_condition("True", "LinksUp", BOTH).await;
        machine.ip("link set rail0-far down");
        let lost = machine.expect_condition("False", "LinkDown", LOST).await;
        machine
            .has_event("LinkDown", "Warning", "link rail0 has lost carrier")
            .await;
        machine.pull("rail1").await;
        machine.ip("link set rail1-far up");
        machine
            .has_event("LinkDown", "Warning", "link rail1 has lost carrier")
            .await;
        machine.expect_condition("False", "LinkDown", LOST).await;
        let numbers = [
            "rdmanet_link_up{link=\"rail0\"} 0",
            "rdmanet_link_up{link=\"rail1\"} 1",
            "rdmanet_link_expected{link=\"rail0\"} 1",
            "rdmanet_link_changes_total{link=\"rail0\"} 1",
        ];
        until("the metrics show it", async || {
            let served = node.get("/metrics");
            numbers.iter().all(|number| served.contains(number))
        })
        .await;
        let alerts = alerts_at_once(&[("a", node.get("/metrics"))]);
        let down = alerts
            .into_iter()
            .filter(|it| it.starts_with("RdmanetLinkDown: "));
        assert_eq!(
            down.collect::<Vec<_>>(),
            ["RdmanetLinkDown: Link rail0 of a has no carrier"]
        );

        // A starting agent finds its own condition, so it does not write it again.
        assert!(node.stop());
        let mark = machine.site.server.mark();
        node.start();
        until("the next agent listens", async || {
            node.log().matches("the agent listens").count() == 2
        })
        .await;
        tokio::time::sleep(Duration::from_secs(2)).await;
        assert_eq!(machine.writes(mark), 0);
        let still = machine.condition().await.unwrap();
        assert_eq!(still.last_transition_time, lost.last_transition_time);

        machine.ip("link set rail0-far up");
        let found = machine.expect_condition("True", "LinksUp", BOTH).await;
        assert!(found.last_transition_time > lost.last_transition_time);
        machine
            .has_event("LinkUp", "Normal", "link rail0 has carrier again")
            .await;
        for rail in ["rail0", "rail1"] {
            machine.ip(&format!("link del {rail}"));
        }
        let gone = "no link matches --links rail[01]: the links are gone, in pods, or set down";
        machine.expect_condition("Unknown", "NoLinks", gone).await;
        for metric in ["rdmanet_link_up", "rdmanet_link_expected"] {
            assert!(!node.get("/metrics").contains(&format!("{metric}{{link=\"rail")));
        }
    });
}

/// A bridge sends messages of its own about its ports to the listeners for links.
#[test]
fn links_on_a_bridge_are_reported_as_links_without_one() {
    on_a_machine("bridged", async |machine| {
        let node = machine.agent(&[]).await;
        machine.expect_condition("True", "LinksUp", BOTH).await;
        machine.ip("link add br0 type bridge");
        machine.node.cable("veth0");
        machine.ip("link set veth0 master br0");
        machine.ip("link set rail0 master br0");
        machine.ip("link set rail0 nomaster");
        machine.ip("link set veth0-far down");
        // The agent reads messages in their order.
        machine.pull("rail1").await;
        let last = "rdmanet_link_changes_total{link=\"rail1\"} 1";
        until("the agent has read all messages", async || {
            node.get("/metrics").contains(last)
        })
        .await;
        let served = node.get("/metrics");
        assert!(served.contains("rdmanet_link_up{link=\"rail0\"} 1"), "{served}");
        assert!(!served.contains("veth0"), "{served}");
    });
}

#[test]
fn a_flapping_link_updates_its_condition_at_a_bounded_rate_and_ends_correct() {
    on_a_machine("flapping", async |machine| {
        let _node = machine
            .agent(&["--report-interval", "1s", "--quarantine", "5s"])
            .await;
        machine.expect_condition("True", "LinksUp", BOTH).await;
        let (mark, start) = (machine.site.server.mark(), Instant::now());
        while start.elapsed() < Duration::from_secs(5) {
            for state in ["down", "up", "down"] {
                machine.ip(&format!("link set rail0-far {state}"));
                tokio::time::sleep(Duration::from_millis(70)).await;
            }
        }
        machine.expect_condition("False", "LinkDown", LOST).await;
        let (writes, seconds) = (machine.writes(mark), start.elapsed().as_secs_f64());
        #[expect(clippy::cast_precision_loss, reason = "a handful")]
        let rate = writes as f64 / (seconds + 1.0);
        assert!(writes >= 1 && rate <= 1.0, "{writes} writes in {seconds} s");

        // Another client removes the condition; then the Node is registered again.
        let nodes = machine.nodes();
        let none = json!({ "status": { "conditions": [{ "type": CONDITION, "$patch": "delete" }] } });
        nodes
            .patch_status(machine.name, &PatchParams::default(), &Patch::Strategic(none))
            .await
            .unwrap();
        machine.expect_condition("False", "LinkDown", LOST).await;
        nodes
            .delete(machine.name, &DeleteParams::default())
            .await
            .unwrap();
        apiserver::identity::join(&machine.site.admin, machine.name)
            .await
            .unwrap();
        machine.expect_condition("False", "LinkDown", LOST).await;
    });
}

/// Creates a pool whose status reports so many blocks that the turns of the agents are spread over months. No controller
/// corrects the number.
async fn pretend_that_the_cluster_is_huge(site: &Site) {
    site.simple("huge", "10.1.0.0/24").await;
    site.wait_condition("huge", "Ready", "True").await;
    site.controller.stop();
    let counters = json!({ "size": 0, "used": 0, "free": 0, "blocks": i64::MAX });
    let status = json!({ "status": { "counters": counters } });
    site.pools()
        .patch_status("huge", &PatchParams::default(), &Patch::Merge(status))
        .await
        .unwrap();
}

/// After a change that the agent sees while it waits for changes, it waits for its turn. Before that, it may write twice: at
/// its start, and at the end of the pause after that write.
#[test]
fn a_node_of_a_huge_cluster_reports_its_links_only_at_its_turn() {
    static CLUSTER: InTurn = InTurn::new(&[]);
    on_a_machine_of(&CLUSTER, "huge", async |machine| {
        pretend_that_the_cluster_is_huge(machine.site).await;
        let node = machine.agent(&["--report-interval", "1s"]).await;
        machine.expect_condition("True", "LinksUp", BOTH).await;
        until("the agent knows the pool", async || !node.file("huge").is_null()).await;
        let mark = machine.site.server.mark();
        for flap in 1..=6 {
            machine.pull("rail0").await;
            tokio::time::sleep(Duration::from_secs(2)).await;
            machine.ip("link set rail0-far up");
            let changes = format!("rdmanet_link_changes_total{{link=\"rail0\"}} {}", 2 * flap);
            until("the agent has seen both changes", async || {
                node.get("/metrics").contains(&changes)
            })
            .await;
            tokio::time::sleep(Duration::from_secs(2)).await;
        }
        // Without turns, each of the twelve changes is written.
        let writes = machine.writes(mark);
        assert!(writes <= 2, "{writes} writes");
        for reason in ["LinkDown", "LinkUp"] {
            let sent = events(machine.site, "Node", "huge", reason).await;
            assert!(sent.is_empty(), "{sent:?}");
        }
    });
}

#[test]
fn an_agent_without_the_right_to_node_status_logs_the_error_once_and_works() {
    on_a_machine("unauthorized", async |machine| {
        let role: Api<k8s_openapi::api::rbac::v1::ClusterRole> = Api::all(machine.site.admin.clone());
        let mut reduced = role.get("rdmanet-agent").await.unwrap();
        let rules = reduced.rules.as_mut().unwrap();
        rules.retain(|rule| rule.resources.as_ref().is_none_or(|r| r != &["nodes/status"]));
        role.replace("rdmanet-agent", &kube::api::PostParams::default(), &reduced)
            .await
            .unwrap();
        machine.ip("link set rail0-far down");
        let node = machine.agent(&[]).await;
        machine.site.simple("rail0", "10.1.0.0/24").await;
        node.wait_active("rail0").await;
        let refused = "writing a Node condition failed";
        node.wait_log(refused);
        tokio::time::sleep(Duration::from_secs(3)).await;
        assert_eq!(node.log().matches(refused).count(), 1, "{}", node.log());
        assert_eq!(machine.condition().await, None);
        for file in manifests("rbac") {
            for object in documents(&file) {
                install::apply(&machine.site.admin, &object).await;
            }
        }
        machine.expect_condition("False", "LinkDown", LOST).await;
    });
}
