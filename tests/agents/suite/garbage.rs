// SPDX-License-Identifier: Apache-2.0
//! Pods that ended without DEL.

use agents::later::until_collected_later;
use agents::scrapes::alerts_at_once;
use agents::{Attachment, Member, Named, Site};
use apiserver::install::until;
use tests::Version;

async fn pod_in(site: &Site, node: &Member, netns: &Named, name: &str) -> Attachment {
    let mut attachment = Attachment::of(name);
    attachment.uid = site.pod(name, &node.identity.node.node).await;
    attachment.netns = netns.path();
    attachment
}

/// Waits until the agent has looked at all leases of `rail0` as often as a release takes.
async fn until_looked_at(node: &Member) {
    let attach = async |name: &str, netns| {
        let attachment = Attachment {
            netns,
            ..Attachment::of(name)
        };
        node.add("rail0", &attachment);
    };
    until_collected_later(attach, async |name| released(node, name).is_some()).await;
}

/// The log line of the release of the lease of `container`, if there is one.
fn released(node: &Member, container: &str) -> Option<String> {
    let of_container = format!("net1 of container {container} (");
    let log = node.log();
    let mut lines = log.lines();
    let line =
        lines.find(|line| line.contains("released a lease without a pod") && line.contains(&of_container))?;
    Some(line.to_owned())
}

#[tokio::test(flavor = "multi_thread")]
async fn an_address_is_released_only_after_both_its_netns_and_its_pod_are_gone() {
    let (site, node) = Site::with_node().await;
    site.simple("rail0", "10.1.0.0/24").await;
    node.wait_active("rail0").await;
    let (gone, kept) = (Named::new("gone"), Named::new("kept"));
    let one = pod_in(&site, &node, &gone, "one").await;
    let two = pod_in(&site, &node, &kept, "two").await;
    let result = node.call("ADD", "rail0", &one).result();
    let kept_address = node.add("rail0", &two);
    drop(gone);
    // The pod's object still exists: kubelet may be about to call DEL.
    until_looked_at(&node).await;
    node.check_of(Version::Today, "rail0", &one, result);
    assert_eq!((released(&node, "one"), released(&node, "two")), (None, None));
    site.remove_pod("one").await;
    // The object is gone but the process runs: no evidence that the address is free.
    site.remove_pod("two").await;
    until("the address is freed", async || released(&node, "one").is_some()).await;
    let line = released(&node, "one").unwrap();
    assert!(
        line.contains("its network namespace is gone, and its Pod object is gone"),
        "{line}"
    );
    until_looked_at(&node).await;
    assert_eq!(released(&node, "two"), None);
    assert_eq!(node.add("rail0", &two), kept_address);
}

/// The state after a restart of kubelet: the pod continues in a new sandbox, and the old sandbox gets no DEL.
#[tokio::test(flavor = "multi_thread")]
async fn the_address_of_a_replaced_sandbox_is_released_while_the_pod_runs() {
    let (site, node) = Site::with_node().await;
    site.simple("rail0", "10.1.0.0/24").await;
    node.wait_active("rail0").await;
    let (old, new) = (Named::new("old"), Named::new("new"));
    let before = pod_in(&site, &node, &old, "one").await;
    node.add("rail0", &before);
    drop(old);
    let after = Attachment {
        container: "one-again".to_owned(),
        netns: new.path(),
        ..before.clone()
    };
    let ip = node.add("rail0", &after);
    node.wait_log("and its pod has a newer sandbox");
    assert_eq!(released(&node, "one-again"), None);
    assert_eq!(node.add("rail0", &after), ip);
}

/// The state after a kill of CRI-O: the pod continues in a new sandbox, and the namespace of the old one stays.
#[tokio::test(flavor = "multi_thread")]
async fn a_replaced_sandbox_with_a_namespace_is_logged_and_keeps_its_address() {
    let (site, node) = Site::with_node().await;
    site.simple("rail0", "10.1.0.0/24").await;
    node.wait_active("rail0").await;
    let (old, new) = (Named::new("old"), Named::new("new"));
    let before = pod_in(&site, &node, &old, "one").await;
    let ip = node.add("rail0", &before);
    let after = Attachment {
        container: "one-again".to_owned(),
        netns: new.path(),
        ..before.clone()
    };
    node.add("rail0", &after);
    node.wait_log("a sandbox keeps its address and its network namespace");
    let line = node
        .log()
        .lines()
        .find(|line| line.contains("a sandbox keeps its address"))
        .unwrap()
        .to_owned();
    for piece in [&ip[0], old.path().to_str().unwrap(), "ip netns delete"] {
        assert!(line.contains(piece), "no {piece} in {line}");
    }
    assert_eq!(released(&node, "one"), None);
    let counts = |lost: usize| {
        let line = format!("rdmanet_lost_sandboxes{{pool=\"rail0\"}} {lost}");
        node.get("/metrics").lines().any(|there| there == line)
    };
    until("the sandbox is counted", async || counts(1)).await;
    let alerts = alerts_at_once(&[("a", node.get("/metrics"))]);
    let lost = alerts.iter().find(|it| it.starts_with("RdmanetLostSandbox: "));
    assert!(
        lost.is_some_and(|it| it.contains("runtime of a") && it.contains("pool rail0")),
        "{alerts:?}"
    );
    // A person deletes the namespace.
    drop(old);
    until("the address is freed", async || released(&node, "one").is_some()).await;
    until("no sandbox is counted", async || counts(0)).await;
    assert_eq!(released(&node, "one-again"), None);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_address_object_without_a_lease_is_deleted() {
    let (site, node) = Site::with_node().await;
    let mut spec = agents::pools::simple("10.1.0.0/28");
    spec["allocation"] = serde_json::json!("PerAddress");
    site.pool("rail0", spec).await;
    until("the pool is here", async || !node.file("rail0").is_null()).await;
    node.add("rail0", &Attachment::of("one"));
    node.add("rail0", &Attachment::of("two"));
    node.kill();
    node.forget_leases("rail0");
    assert!(site.addresses().await.len() >= 2);
    node.start();
    until("both are free", async || site.addresses().await.is_empty()).await;
    node.wait_log("two observations found no lease of the address on this node");
}
