// SPDX-License-Identifier: Apache-2.0
//! Nodes that share a pool, die, and come back.

use crate::streams::label;
use agents::later::until_blocks_freed_later;
use agents::pools::simple;
use agents::{Attachment, Member, Site};
use api::AddressState;
use apiserver::install::until;
use apiserver::{Fault, Identity, Proxy};
use serde_json::json;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

#[tokio::test(flavor = "multi_thread")]
async fn two_nodes_allocate_every_address_of_a_pool_exactly_once() {
    let site = Site::new().await;
    let nodes = site.two_nodes().await;
    site.simple("rail0", "10.1.0.0/26").await;
    for node in &nodes {
        node.wait_active("rail0").await;
    }
    let mut given = BTreeSet::new();
    for i in 0..31 {
        for node in &nodes {
            let ip = node.add_soon("rail0", &Attachment::of(&format!("p{i}"))).await;
            assert!(given.insert(ip.clone()), "{ip} is allocated twice");
        }
    }
    // A /26 without its network and broadcast addresses.
    assert_eq!(given.len(), 62);
    for node in &nodes {
        until("the pool is exhausted", async || {
            node.error("rail0", &Attachment::of("more"))["code"] == 110
        })
        .await;
    }
    site.wait_condition("rail0", "Exhausted", "True").await;
    // The other node can allocate the address of a deleted pod.
    let [one, other] = &nodes;
    one.del("rail0", &Attachment::of("p0"));
    other.add_soon("rail0", &Attachment::of("late")).await;
    for i in 1..5 {
        one.del("rail0", &Attachment::of(&format!("p{i}")));
    }
    site.wait_condition("rail0", "Exhausted", "False").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn blocks_of_a_deleted_node_pass_to_another_node_after_the_quarantine() {
    let flags = ["--quarantine", "4s", "--quarantine-in-use", "4s"];
    let site = Site::with(&flags).await;
    let dead = Member::running(&site.server, "dead", &flags).await;
    site.simple("rail0", "10.1.0.0/28").await;
    dead.wait_active("rail0").await;
    let ip = dead.add("rail0", &Attachment::of("one"));
    dead.kill();
    let heir = Member::running(&site.server, "heir", &flags).await;
    heir.refused("rail0", &Attachment::of("two"), &[11, 110, 116], &[]);
    let uid = site.pod("bound", "dead").await;
    assert!(!uid.is_empty());
    dead.identity.leave(&site.admin).await;
    until_blocks_freed_later(&site).await;
    assert_eq!(site.blocks("rail0").await.len(), 1);
    assert_eq!(
        site.blocks("rail0").await[0].spec.owner.node,
        "dead",
        "a pod is bound to that node still"
    );
    site.remove_pod("bound").await;
    heir.wait_active("rail0").await;
    site.controller.wait_log("a block is orphaned: its node is gone");
    let after = site.blocks("rail0").await.remove(0);
    assert_eq!(after.spec.owner, heir.identity.node);
    // The plugin probes addresses of blocks that are not in their first epoch: the machine that is gone may still use them.
    assert!(after.spec.epoch > 1, "{after:?}");
    assert_eq!(heir.file("rail0")["blocks"][0]["epoch"], after.spec.epoch);
    let mut given = BTreeSet::new();
    for i in 0..14 {
        given.extend(heir.add("rail0", &Attachment::of(&format!("p{i}"))));
    }
    assert!(given.contains(&ip[0]));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_returning_node_allocates_nothing_from_a_block_that_passed_to_another() {
    let flags = ["--quarantine", "4s", "--quarantine-in-use", "4s"];
    let site = Site::with(&flags).await;
    let mut lost = Member::running(&site.server, "lost", &flags).await;
    site.simple("rail0", "10.1.0.0/28").await;
    lost.wait_active("rail0").await;
    lost.add("rail0", &Attachment::of("one"));
    lost.kill();
    lost.identity.leave(&site.admin).await;
    let heir = Member::running(&site.server, "heir", &flags).await;
    heir.wait_active("rail0").await;
    // A block without a free address is not shared.
    for i in 0..14 {
        heir.add("rail0", &Attachment::of(&format!("p{i}")));
    }
    // The file is older than the quarantine.
    lost.reboot("rail0");
    lost.refused("rail0", &Attachment::of("two"), &[11], &[]);
    let again = Identity::new(&site.admin, "lost").await;
    lost.becomes(&site.server, again);
    lost.start();
    until("nothing is allocated from the block", async || {
        lost.blocks("rail0", "active").is_empty()
            && lost
                .log()
                .contains("removed a block that this node does not own any more")
    })
    .await;
    lost.refused("rail0", &Attachment::of("two"), &[11, 110], &[]);
    let owners: Vec<String> = site
        .blocks("rail0")
        .await
        .into_iter()
        .map(|block| block.spec.owner.node)
        .collect();
    assert_eq!(owners, ["heir"]);
}

/// A namespace gets the pool's label while the node is away. So the first ADD asks the agent, whose first round has failed.
#[tokio::test(flavor = "multi_thread")]
async fn a_returning_node_serves_a_new_namespace_only_after_it_has_compared_its_blocks() {
    let flags = ["--quarantine", "4s", "--quarantine-in-use", "4s"];
    let site = Site::with(&flags).await;
    // After a failed round, the agent answers plugins for at least three seconds before the next round.
    let slow = [flags.as_slice(), &["--reconcile-interval", "3s"]].concat();
    let mut lost = Member::running(&site.server, "lost", &slow).await;
    let mut spec = simple("10.1.0.0/28");
    spec["namespaceSelector"] = json!({ "matchLabels": { "team": "ml" } });
    site.pool("rail0", spec).await;
    lost.wait_active("rail0").await;
    lost.kill();
    lost.identity.leave(&site.admin).await;
    label(&site, "default").await;
    let heir = Member::running(&site.server, "heir", &flags).await;
    heir.wait_active("rail0").await;
    // A block without a free address is not shared.
    for i in 0..14 {
        heir.add("rail0", &Attachment::of(&format!("p{i}")));
    }
    lost.reboot("rail0");
    let again = Identity::new(&site.admin, "lost").await;
    lost.becomes(&site.server, again);
    let proxy = Proxy::start(&site.server).await;
    lost.go_through(&proxy, &site.server);
    let fails = Arc::new(AtomicBool::new(true));
    let node_fails = fails.clone();
    proxy.decide(move |method, path| {
        if (method, path) == ("GET", "/api/v1/nodes/lost") && node_fails.load(Ordering::SeqCst) {
            Fault::Status(500)
        } else {
            Fault::None
        }
    });
    let failed = || lost.log().matches("reconcile round failed").count();
    let before = failed();
    lost.start();
    until("the first round has failed", async || failed() > before).await;
    fails.store(false, Ordering::SeqCst);
    until("the block of the other node leaves the file", async || {
        // Each address of the pool belongs to a pod of the other node.
        lost.refused("rail0", &Attachment::of("two"), &[11, 110], &[]);
        lost.blocks("rail0", "active").is_empty() && lost.blocks("rail0", "draining").is_empty()
    })
    .await;
    assert_eq!(lost.file("rail0")["namespaces"], json!(["default"]));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_reregistered_node_keeps_the_blocks_and_addresses_in_its_pool_file() {
    let flags = ["--quarantine", "120s"];
    let site = Site::with(&flags).await;
    let mut node = Member::running(&site.server, "a", &flags).await;
    let mut spec = simple("10.1.0.0/24");
    spec["reserved"] = json!(["10.1.0.200"]);
    site.pool("rail0", spec).await;
    node.wait_active("rail0").await;
    let blocks = node.blocks("rail0", "active");
    let ip = node.add("rail0", &Attachment::of("one"));
    node.add_soon("rail0", &Attachment::of("three").asking("10.1.0.200"))
        .await;
    node.kill();
    node.identity.leave(&site.admin).await;
    let again = Identity::new(&site.admin, "a").await;
    assert_ne!(again.node, node.identity.node);
    node.becomes(&site.server, again.clone());
    node.start();
    until("the blocks are those of the new registration", async || {
        let there = site.blocks("rail0").await;
        !there.is_empty()
            && there
                .iter()
                .all(|block| block.spec.owner == again.node && block.spec.epoch == 2)
    })
    .await;
    until("the file says so", async || {
        node.blocks("rail0", "active") == blocks
    })
    .await;
    until("the address is the new registration's", async || {
        let there = site.addresses().await;
        there.len() == 1 && there[0].spec.node == again.node && there[0].spec.state == AddressState::Bound
    })
    .await;
    assert_ne!(node.add("rail0", &Attachment::of("two")), ip);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_replaced_under_its_name_waits_for_the_quarantine_of_the_old_block() {
    const QUARANTINE: Duration = Duration::from_secs(4);
    let flags = ["--quarantine", "4s", "--quarantine-in-use", "4s"];
    let site = Site::with(&flags).await;
    let old = Member::running(&site.server, "a", &flags).await;
    site.simple("rail0", "10.1.0.0/28").await;
    old.wait_active("rail0").await;
    let before = site.blocks("rail0").await.remove(0);
    old.kill();
    let left = Instant::now();
    old.identity.leave(&site.admin).await;
    let new = Member::running(&site.server, "a", &flags).await;
    let early = new.call("ADD", "rail0", &Attachment::of("one"));
    assert!(!early.status.success() || left.elapsed() >= QUARANTINE, "{early}");
    new.wait_active("rail0").await;
    let waited = left.elapsed();
    assert!(waited >= QUARANTINE, "the block was free after {waited:?}");
    let blocks = site.blocks("rail0").await;
    assert_eq!(blocks[0].spec.owner, new.identity.node);
    assert_ne!(
        blocks[0].metadata.uid, before.metadata.uid,
        "it was deleted and claimed, not handed on"
    );
}

/// A spare machine gets the name of one that was cut off, and goes on with its pods.
#[tokio::test(flavor = "multi_thread")]
async fn a_node_replaced_under_its_name_keeps_the_old_objects_for_the_quarantine() {
    const QUARANTINE: Duration = Duration::from_secs(15);
    let flags = ["--quarantine", "15s"];
    let site = Site::with(&flags).await;
    let old = Member::running(&site.server, "a", &flags).await;
    site.pool("rail0", json!({
        "ranges": [{ "subnet": "10.1.0.0/28", "gateway": "none" }], "blockSize": { "v4": 16 }, "cooldownSeconds": 0,
        "reserved": ["10.1.0.9"],
    }))
    .await;
    old.wait_active("rail0").await;
    old.add_soon("rail0", &Attachment::of("one").asking("10.1.0.9"))
        .await;
    assert_eq!(site.addresses().await.len(), 1);
    old.kill();
    let left = Instant::now();
    old.identity.leave(&site.admin).await;
    let _new = Member::running(&site.server, "a", &flags).await;
    until("the address is free", async || site.addresses().await.is_empty()).await;
    let waited = left.elapsed();
    assert!(waited >= QUARANTINE, "the address was free after {waited:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_agent_of_a_deleted_node_allocates_nothing_and_keeps_pod_addresses() {
    let flags = ["--quarantine", "5s"];
    let site = Site::with(&flags).await;
    let node = Member::running(&site.server, "a", &flags).await;
    let second = Member::running(&site.server, "b", &flags).await;
    site.pool("rail0", json!({
        "ranges": [{ "subnet": "10.1.0.0/28", "gateway": "none" }], "blockSize": { "v4": 16 }, "cooldownSeconds": 0,
        "reserved": ["10.1.0.9"],
        "nodeSelector": { "matchExpressions": [{ "key": "never", "operator": "DoesNotExist" }] },
    }))
    .await;
    until("a block is active", async || {
        !node.blocks("rail0", "active").is_empty() || !second.blocks("rail0", "active").is_empty()
    })
    .await;
    let (owner, other) = if node.blocks("rail0", "active").is_empty() {
        (&second, &node)
    } else {
        (&node, &second)
    };
    owner.add("rail0", &Attachment::of("one"));
    let reserved = Attachment::of("three").asking("10.1.0.9");
    owner.add_soon("rail0", &reserved).await;
    site.remove_node(&owner.identity.node.node).await;
    until("no address is allocated any more", async || {
        owner.blocks("rail0", "draining").len() == 1
    })
    .await;
    owner.refused("rail0", &Attachment::of("two"), &[11, 116], &[]);
    until_blocks_freed_later(&site).await;
    let blocks = site.blocks("rail0").await;
    assert_eq!(blocks.len(), 1, "a living pod keeps its block");
    assert_eq!(blocks[0].spec.owner, owner.identity.node);
    let addresses = site.addresses().await;
    assert_eq!(addresses.len(), 1, "a living pod keeps its address");
    assert_eq!(addresses[0].spec.node, owner.identity.node);
    other.refused(
        "rail0",
        &Attachment::of("four").asking("10.1.0.9"),
        &[11, 111],
        &[],
    );
    owner.del("rail0", &reserved);
    owner.del("rail0", &Attachment::of("one"));
    other.wait_active("rail0").await;
}
