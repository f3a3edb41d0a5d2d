// SPDX-License-Identifier: Apache-2.0
//! A pool whose blocks all have owners: nodes share blocks, and no address is allocated twice.

use agents::member::error_of;
use agents::pools::simple;
use agents::{Attachment, Member, Site};
use api::BlockState;
use apiserver::install::until;
use serde_json::json;
use std::collections::BTreeSet;
use std::time::{Duration, Instant};

async fn members(site: &Site, names: &[&str]) -> Vec<Member> {
    members_with(site, names, &[]).await
}

async fn members_with(site: &Site, names: &[&str], flags: &[&str]) -> Vec<Member> {
    let mut nodes = Vec::new();
    for name in names {
        nodes.push(Member::running(&site.server, name, flags).await);
    }
    nodes
}

async fn all_have_a_block(nodes: &[Member]) {
    for node in nodes {
        node.wait_active("rail0").await;
    }
}

/// The node that has the pool's only block, and a node that has none.
async fn owner_and_other<'n>(site: &Site, pool: &str, nodes: &'n [Member]) -> (&'n Member, &'n Member) {
    site.wait_blocks(pool, 1).await;
    let owner = site.blocks(pool).await[0].spec.owner.node.clone();
    let is_owner = |node: &&Member| node.identity.node.node == owner;
    (
        nodes.iter().find(is_owner).unwrap(),
        nodes.iter().find(|node| !is_owner(node)).unwrap(),
    )
}

async fn shared_blocks(site: &Site) -> usize {
    let blocks = site.blocks("rail0").await;
    blocks
        .iter()
        .filter(|block| block.spec.state == BlockState::Shared)
        .count()
}

#[tokio::test(flavor = "multi_thread")]
async fn three_nodes_share_a_pool_down_to_its_last_address() {
    let site = Site::new().await;
    let nodes = members(&site, &["a", "b", "c"]).await;
    site.simple("rail0", "10.1.0.0/26").await;
    all_have_a_block(&nodes).await;
    let mut given = BTreeSet::new();
    for node in &nodes[..2] {
        given.extend(node.add("rail0", &Attachment::of("one")));
    }
    // One node allocates all remaining addresses. The number of blocks that one request shares depends on the load of
    // this machine; `controller/src/leader/share/batch/tests.rs` asserts that it is one at first.
    for i in 0..60 {
        let ip = nodes[2]
            .add_soon("rail0", &Attachment::of(&format!("p{i}")))
            .await;
        assert!(given.insert(ip.clone()), "{ip} is allocated twice");
    }
    assert_eq!(given.len(), 62);
    assert!(shared_blocks(&site).await >= 2);
    site.wait_condition("rail0", "Exhausted", "True").await;
    for node in &nodes {
        until("the pool is exhausted", async || {
            let refused = node.error("rail0", &Attachment::of("more"));
            refused["code"] == 110
                && refused["msg"]
                    .as_str()
                    .unwrap()
                    .contains("62 addresses, 62 in use")
        })
        .await;
    }
    // An address that one node releases is allocated by another.
    nodes[2].del("rail0", &Attachment::of("p0"));
    nodes[2].del("rail0", &Attachment::of("p59"));
    for node in &nodes[..2] {
        node.add_soon("rail0", &Attachment::of("more")).await;
    }
    for node in &nodes[..2] {
        node.del("rail0", &Attachment::of("one"));
        node.del("rail0", &Attachment::of("more"));
    }
    (0..60).for_each(|i| nodes[2].del("rail0", &Attachment::of(&format!("p{i}"))));
    until("no block is shared any more", async || {
        shared_blocks(&site).await == 0 && site.addresses().await.is_empty()
    })
    .await;
    site.wait_condition("rail0", "Exhausted", "False").await;
    nodes[0].add_soon("rail0", &Attachment::of("again")).await;
}

/// The cooldown is longer than this test.
#[tokio::test(flavor = "multi_thread")]
async fn a_block_serves_other_nodes_while_some_of_its_addresses_rest() {
    let site = Site::new().await;
    let nodes = members(&site, &["a", "b"]).await;
    let mut spec = simple("10.1.0.0/28");
    spec["cooldownSeconds"] = json!(3600);
    site.pool("rail0", spec).await;
    let (owner, other) = owner_and_other(&site, "rail0", &nodes).await;
    owner.wait_active("rail0").await;
    let pod = |i: usize| Attachment::of(&format!("p{i}"));
    let mut given = BTreeSet::new();
    for i in 0..3 {
        given.extend(owner.add("rail0", &pod(i)));
    }
    (0..3).for_each(|i| owner.del("rail0", &pod(i)));
    let rest = given.clone();
    for i in 3..14 {
        let ip = other.add_soon("rail0", &pod(i)).await;
        assert!(given.insert(ip.clone()), "{ip} is allocated twice");
    }
    // Only the resting addresses are left.
    other.refused("rail0", &pod(14), &[11, 110, 118], &["every block has an owner"]);
    site.edit("rail0", json!({ "spec": { "cooldownSeconds": 0 } }))
        .await;
    for i in 14..17 {
        let ip = other.add_soon("rail0", &pod(i)).await;
        assert!(rest.contains(&ip), "{ip}");
    }
}

/// Counts refusals of an agent that should hold the pod's request.
#[derive(Default)]
struct Refusals {
    /// The agent asked other nodes to share a block, and refused the pod without holding its request.
    not_held: usize,
}

impl Refusals {
    /// Repeats the ADD of a pod until it has an address.
    fn add(&mut self, node: &Member, pod: &Attachment) -> String {
        loop {
            let (log, begun) = (node.log().len(), Instant::now());
            let answer = node.call("ADD", "rail0", pod);
            if answer.status.success() {
                return node.add("rail0", pod).remove(0);
            }
            let refused: serde_json::Value = serde_json::from_str(&answer.stdout).unwrap();
            // 119: on a busy machine the agent had no time left for its request.
            let code = refused["code"].as_u64().unwrap();
            assert!([11, 119].contains(&code), "{refused}");
            let shares = refused["msg"].as_str().unwrap().contains("is asked to share one");
            // An agent that got the request too late does not hold it.
            let late = begun.elapsed() >= Duration::from_secs(1);
            let held = node.log()[log..].contains("waiting for a shared block");
            self.not_held += usize::from(shares && !held && !late);
        }
    }
}

/// The counters of the pool are older than all blocks, and would report the pool as exhausted.
///
/// The agent holds the request of a pod until another node has shared its block. It may refuse one pod for each of its own
/// requests, if that request ends at this moment. An agent that holds nothing refuses many pods for one request.
#[tokio::test(flavor = "multi_thread")]
async fn a_full_pool_is_shared_before_its_counters_are_updated() {
    let flags = ["--report-interval", "5m"];
    let site = Site::with(&flags).await;
    let nodes = members_with(&site, &["a", "b"], &flags).await;
    site.simple("rail0", "10.1.0.0/27").await;
    all_have_a_block(&nodes).await;
    let mut refusals = Refusals::default();
    let given: BTreeSet<String> = (0..30)
        .map(|i| refusals.add(&nodes[0], &Attachment::of(&format!("p{i}"))))
        .collect();
    assert_eq!(given.len(), 30);
    let requests = nodes[0].log().matches("requested a shared block").count();
    assert!(
        refusals.not_held <= requests,
        "{} refusals without a wait, {requests} requests",
        refusals.not_held
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn agents_killed_while_sharing_blocks_allocate_no_address_twice() {
    let site = Site::new().await;
    let nodes = members(&site, &["a", "b"]).await;
    site.simple("rail0", "10.1.0.0/27").await;
    all_have_a_block(&nodes).await;
    let mut given: BTreeSet<String> = (0..4)
        .flat_map(|i| nodes[0].add("rail0", &Attachment::of(&format!("p{i}"))))
        .collect();
    for i in 0..26 {
        let attachment = Attachment::of(&format!("p{i}"));
        for round in 0..600 {
            if round % 3 == 0 {
                let one = (i + round / 3) % 2;
                nodes[one].kill();
                nodes[one].start();
            }
            if nodes[1].call("ADD", "rail0", &attachment).status.success() {
                break;
            }
            tokio::time::sleep(std::time::Duration::from_millis(300)).await;
        }
        let ip = nodes[1].add("rail0", &attachment).remove(0);
        assert!(given.insert(ip.clone()), "{ip} is allocated twice");
    }
    assert_eq!(given.len(), 30);
}

#[tokio::test(flavor = "multi_thread")]
async fn reserved_addresses_allow_block_sharing_and_stay_with_their_pods() {
    let site = Site::new().await;
    let nodes = members(&site, &["a", "b"]).await;
    reserved_addresses_in_use_keep_no_block_from_being_shared(&site, &nodes).await;
    a_pod_keeps_an_address_that_is_no_longer_reserved(&site, &nodes).await;
}

async fn reserved_addresses_in_use_keep_no_block_from_being_shared(site: &Site, nodes: &[Member]) {
    let mut spec = simple("10.2.0.0/28");
    spec["reserved"] = json!(["10.2.0.8-10.2.0.14"]);
    site.pool("half", spec).await;
    let (owner, other) = owner_and_other(site, "half", nodes).await;
    // Requests as many addresses as the node may allocate by itself: seven.
    for last in 8..15 {
        let ip = format!("10.2.0.{last}");
        owner.add_soon("half", &Attachment::of(&ip).asking(&ip)).await;
    }
    let near = owner.add("half", &Attachment::of("near")).remove(0);
    let given = other.add_soon("half", &Attachment::of("far")).await;
    let last: u8 = given.rsplit('.').next().unwrap().parse().unwrap();
    assert!((1..8).contains(&last), "{given}");
    // An address that was allocated before its block was shared is released like any other.
    owner.del("half", &Attachment::of("near"));
    until("it is free", async || {
        site.addresses()
            .await
            .iter()
            .all(|address| address.spec.address != near)
    })
    .await;
    assert!(!owner.log().contains("released an address object without a lease"));
    for last in 8..15 {
        let ip = format!("10.2.0.{last}");
        owner.del("half", &Attachment::of(&ip).asking(&ip));
    }
    other.del("half", &Attachment::of("far"));
    site.delete("half").await;
    until("the pool goes, shared block and all", async || {
        site.pools().get_opt("half").await.unwrap().is_none()
    })
    .await;
}

async fn a_pod_keeps_an_address_that_is_no_longer_reserved(site: &Site, nodes: &[Member]) {
    let mut spec = simple("10.1.0.0/26");
    spec["reserved"] = json!(["10.1.0.16/30", "10.1.0.40"]);
    site.pool("rail0", spec).await;
    all_have_a_block(nodes).await;
    let statics = ["10.1.0.17", "10.1.0.40"];
    for ip in statics {
        let given = nodes[1].add_soon("rail0", &Attachment::of(ip).asking(ip)).await;
        assert_eq!(given, ip);
    }
    site.edit("rail0", json!({ "spec": { "reserved": [] } })).await;
    // Another pod that requests one learns that it is in use, also on the node whose block it lies in.
    for node in nodes {
        for ip in statics {
            let asking = Attachment::of("another").asking(ip);
            until("the address is refused as one in use", async || {
                error_of(&node.call("ADD", "rail0", &asking))["code"] == 111
            })
            .await;
            node.del("rail0", &asking);
        }
    }
    let mut given: BTreeSet<String> = statics.map(str::to_owned).into();
    for i in 0..60 {
        let ip = nodes[0]
            .add_soon("rail0", &Attachment::of(&format!("p{i}")))
            .await;
        assert!(given.insert(ip.clone()), "{ip} is allocated twice");
    }
    assert_eq!(given.len(), 62);
    // After their release they are addresses like any other.
    for ip in statics {
        nodes[1].del("rail0", &Attachment::of(ip).asking(ip));
    }
    for i in 60..62 {
        let ip = nodes[0]
            .add_soon("rail0", &Attachment::of(&format!("p{i}")))
            .await;
        assert!(statics.contains(&ip.as_str()), "{ip}");
    }
}

/// A person deletes the pool and removes its finalizer. Its shared block has no owner that returns it.
#[tokio::test(flavor = "multi_thread")]
async fn the_shared_block_of_a_lost_pool_is_deleted_after_its_pods() {
    let flags = ["--quarantine", "4s"];
    let site = Site::with(&flags).await;
    let nodes = members_with(&site, &["a", "b"], &flags).await;
    site.simple("rail0", "10.1.0.0/27").await;
    all_have_a_block(&nodes).await;
    let pod = |i: i32| Attachment::of(&format!("p{i}"));
    for i in 0..17 {
        nodes[0].add_soon("rail0", &pod(i)).await;
    }
    assert!(shared_blocks(&site).await > 0);
    site.lose_pool("rail0").await;
    assert!(shared_blocks(&site).await > 0, "pods have its addresses");
    (0..17).for_each(|i| nodes[0].del("rail0", &pod(i)));
    until("no block is left", async || site.blocks("rail0").await.is_empty()).await;
    for node in &nodes {
        until("the file is gone", async || node.file("rail0").is_null()).await;
    }
}
