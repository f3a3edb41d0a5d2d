// SPDX-License-Identifier: Apache-2.0
//! Blocks and addresses that the API server loses while pods use them: an administrator deletes them, or etcd is restored.

use agents::pools::{per_address, simple};
use agents::{Attachment, Member, Site};
use api::convert::IN_USE;
use api::{AddressState, BlockState, IpAddress, IpBlock};
use apiserver::install::until;
use k8s_openapi::api::core::v1::Node;
use kube::api::{DeleteParams, Patch, PatchParams};
use kube::{Api, ResourceExt};
use serde_json::{Value, json};
use std::collections::BTreeSet;

async fn delete(site: &Site, name: &str) {
    let blocks: Api<IpBlock> = Api::all(site.admin.clone());
    blocks.delete(name, &DeleteParams::default()).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_block_that_a_person_deletes_stays_until_its_pods_have_ended() {
    let (site, node) = Site::with_node().await;
    site.simple("rail0", "10.1.0.0/26").await;
    node.wait_active("rail0").await;
    let one = Attachment::of("one");
    let ip = node.add("rail0", &one);
    let block = site.blocks("rail0").await.remove(0);
    delete(&site, &block.name_any()).await;
    until("the block drains", async || {
        node.blocks("rail0", "draining") == [block.name_any()]
    })
    .await;
    let two = node.add_soon("rail0", &Attachment::of("two")).await;
    assert_ne!(ip, [two], "from another block");
    assert_eq!(node.add("rail0", &one), ip, "the pod keeps its address");
    let there = site.blocks("rail0").await;
    let same = there
        .iter()
        .find(|there| there.name_any() == block.name_any())
        .unwrap();
    assert_eq!(same.metadata.uid, block.metadata.uid);
    node.del("rail0", &one);
    until("the block is gone", async || {
        let there = site.blocks("rail0").await;
        there.iter().all(|there| there.metadata.uid != block.metadata.uid)
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_block_that_vanishes_with_living_pods_is_claimed_again() {
    let (site, node) = Site::with_node().await;
    site.simple("rail0", "10.1.0.0/28").await;
    node.wait_active("rail0").await;
    let one = Attachment::of("one");
    let ip = node.add("rail0", &one);
    let block = site.blocks("rail0").await.remove(0);
    delete(&site, &block.name_any()).await;
    // Removes the finalizer that protects the block.
    let blocks: Api<IpBlock> = Api::all(site.admin.clone());
    let bare = Patch::Merge(json!({ "metadata": { "finalizers": null } }));
    blocks
        .patch(&block.name_any(), &PatchParams::default(), &bare)
        .await
        .unwrap();
    claimed_again(&site, &node, &block).await;
    assert_eq!(node.add("rail0", &one), ip);
    let others: Vec<String> = (0..13)
        .flat_map(|i| node.add("rail0", &Attachment::of(&format!("p{i}"))))
        .collect();
    assert!(!others.contains(&ip[0]), "{others:?}");
}

/// Waits until the node has claimed `block` again, as another object.
async fn claimed_again(site: &Site, node: &Member, block: &IpBlock) {
    until("the block is claimed again", async || {
        let there = site.blocks("rail0").await.into_iter();
        let mut again = there.filter(|there| there.metadata.uid != block.metadata.uid);
        let is_again =
            again.any(|there| there.name_any() == block.name_any() && there.spec.state == BlockState::Active);
        is_again && node.blocks("rail0", "active").contains(&block.name_any())
    })
    .await;
    node.wait_log("claimed a block again");
    let there = site.blocks("rail0").await;
    let again = there.iter().find(|there| there.name_any() == block.name_any());
    assert!(again.unwrap().annotations().contains_key(IN_USE));
}

#[tokio::test(flavor = "multi_thread")]
async fn pods_keep_their_addresses_after_etcd_is_restored_from_an_older_snapshot() {
    let site = Site::new().await;
    let node = Member::new(&site.server, "a", &[]).await;
    site.simple("rail0", "10.1.0.0/28").await;
    let before = site.server.snapshot();
    node.start();
    node.wait_active("rail0").await;
    let one = Attachment::of("one");
    let ip = node.add("rail0", &one);
    let block = site.blocks("rail0").await.remove(0);
    site.server.restore(&before);
    assert_eq!(node.add("rail0", &one), ip, "while the API server starts, too");
    // See docs/operate.md: the versions went backwards, so caches contain another history.
    assert!(node.stop() && site.controller.stop());
    site.controller.start(&site.server, &[]);
    node.start();
    claimed_again(&site, &node, &block).await;
    let others: Vec<String> = (0..13)
        .flat_map(|i| node.add("rail0", &Attachment::of(&format!("p{i}"))))
        .collect();
    assert!(!others.contains(&ip[0]), "{others:?}");
}

/// docs/operate.md, "Restore of etcd". In the snapshot `earlier` owns the block, and `later` got it since.
#[tokio::test(flavor = "multi_thread")]
async fn after_a_restore_the_later_owner_of_a_block_keeps_the_addresses_of_its_pods() {
    let site = Site::new().await;
    let earlier = Member::running(&site.server, "earlier", &[]).await;
    site.simple("rail0", "10.1.0.0/28").await;
    earlier.wait_active("rail0").await;
    let later = Member::new(&site.server, "later", &[]).await;
    label(&site, "later", json!({ "rail": "later" })).await;
    let before = site.server.snapshot();
    site.edit("rail0", select(&json!({ "rail": "later" }))).await;
    until("the block is returned", async || {
        earlier.blocks("rail0", "active").is_empty()
    })
    .await;
    later.start();
    later.wait_active("rail0").await;
    let living = Attachment::of("living");
    let ip = later.add("rail0", &living);
    assert!(earlier.stop() && later.stop() && site.controller.stop());

    site.server.restore(&before);
    site.edit("rail0", select(&json!({ "rdmanet.io/restored": "yes" })))
        .await;
    later.start();
    until("the agent is ready", async || later.is_ready()).await;
    assert_eq!(addresses(&site).await, BTreeSet::from_iter(ip.clone()));
    // No controller has accepted the edit yet.
    earlier.start();
    for node in [&earlier, &later] {
        until("the node is deselected", async || {
            node.error("rail0", &Attachment::of("new"))["code"] == 116
        })
        .await;
    }
    until("the agent is ready", async || earlier.is_ready()).await;
    site.controller.start(&site.server, &[]);
    select_all(&site).await;
    assert_eq!(later.add("rail0", &living), ip);
    let mut given = BTreeSet::from_iter(ip.clone());
    for i in 0..13 {
        let node = [&earlier, &later][i % 2];
        let new = node.add_soon("rail0", &Attachment::of(&format!("p{i}"))).await;
        assert!(given.insert(new.clone()), "{new} is allocated twice");
    }
    later.del("rail0", &living);
    until("the address is released", async || {
        addresses(&site)
            .await
            .is_disjoint(&BTreeSet::from_iter(ip.clone()))
    })
    .await;
}

/// docs/operate.md, "Restore of etcd", up to the step that selects nodes again. Agents and the controller do not run.
async fn restore_deselected(site: &Site, before: &tempfile::TempDir, nodes: &[&Member]) {
    site.server.restore(before);
    site.edit("rail0", select(&json!({ "rdmanet.io/restored": "yes" })))
        .await;
    for node in nodes {
        node.start();
    }
    site.controller.start(&site.server, &[]);
    for node in nodes {
        until("the agent is ready", async || node.is_ready()).await;
    }
}

async fn select_all(site: &Site) {
    site.edit("rail0", json!({ "spec": { "nodeSelector": null } }))
        .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn after_a_restore_the_lost_object_of_a_reserved_address_is_created_again() {
    let site = Site::new().await;
    let nodes = site.two_nodes().await;
    site.pool_with_reserved("rail0", &nodes).await;
    let before = site.server.snapshot();
    let living = Attachment::of("living").asking("10.1.0.205");
    assert_eq!(nodes[0].add("rail0", &living), ["10.1.0.205"]);
    assert!(nodes.iter().all(|node| node.stop()) && site.controller.stop());

    restore_deselected(&site, &before, &[&nodes[0], &nodes[1]]).await;
    let there = site.addresses().await;
    assert_eq!(there.len(), 1, "a ready agent has created the object again");
    assert_eq!(there[0].spec.node.node, "a");
    select_all(&site).await;
    nodes[1].wait_active("rail0").await;
    let other = Attachment::of("other").asking("10.1.0.205");
    nodes[1].refused("rail0", &other, &[111], &["default/living"]);
    nodes[0].del("rail0", &living);
    until("the address is released", async || {
        site.addresses().await.is_empty()
    })
    .await;
    assert_eq!(nodes[1].add("rail0", &other), ["10.1.0.205"]);
}

/// Creates a pool whose last sixteen addresses are sticky, and a `StatefulSet` of one.
async fn sticky_pool(site: &Site) {
    let mut spec = simple("10.1.0.0/24");
    spec["reserved"] = json!(["10.1.0.240/28"]);
    spec["sticky"] = json!("StatefulSet");
    site.pool("rail0", spec).await;
    site.stateful_set("db", 1).await;
}

/// Creates the pod of the `StatefulSet` on `node`, with this sandbox.
async fn replica(site: &Site, node: &str, sandbox: &str) -> Attachment {
    Attachment {
        pod: "default/db-0".to_owned(),
        uid: site.replica("db", 0, node).await,
        ..Attachment::of(sandbox)
    }
}

/// Ends the pod of the `StatefulSet`, and waits until its address is kept.
async fn end_replica(site: &Site, node: &Member, pod: &Attachment) {
    node.del("rail0", pod);
    until("the address is kept", async || {
        let there = site.addresses().await;
        there.len() == 1 && there[0].spec.state == AddressState::Kept
    })
    .await;
    site.remove_pod("db-0").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn after_a_restore_the_pod_of_a_stateful_set_keeps_its_address() {
    let site = Site::new().await;
    let nodes = site.two_nodes().await;
    sticky_pool(&site).await;
    let pod = replica(&site, "a", "first").await;
    for node in &nodes {
        node.wait_active("rail0").await;
    }
    let before = site.server.snapshot();
    let ip = nodes[0].add_soon("rail0", &pod).await;
    assert!(nodes.iter().all(|node| node.stop()) && site.controller.stop());

    restore_deselected(&site, &before, &[&nodes[0], &nodes[1]]).await;
    select_all(&site).await;
    end_replica(&site, &nodes[0], &pod).await;
    let replacement = replica(&site, "b", "second").await;
    assert_eq!(nodes[1].add_soon("rail0", &replacement).await, ip);
}

/// In the snapshot the address is kept: the first pod of the name has ended on node a, and the second one has not started.
#[tokio::test(flavor = "multi_thread")]
async fn after_a_restore_a_kept_address_is_bound_to_the_pod_that_has_it() {
    for (i, name) in ["a", "b"].into_iter().enumerate() {
        let site = Site::new().await;
        let nodes = site.two_nodes().await;
        sticky_pool(&site).await;
        let first = replica(&site, "a", "first").await;
        let ip = nodes[0].add_soon("rail0", &first).await;
        end_replica(&site, &nodes[0], &first).await;
        let second = replica(&site, name, "second").await;
        let before = site.server.snapshot();
        assert_eq!(nodes[i].add_soon("rail0", &second).await, ip);
        assert!(nodes.iter().all(|node| node.stop()) && site.controller.stop());

        restore_deselected(&site, &before, &[&nodes[0], &nodes[1]]).await;
        let there = site.addresses().await.remove(0).spec;
        let user = there.attachment.map(|attachment| attachment.container_id);
        let bound = (there.state, there.node.node, user);
        let expected = (AddressState::Bound, name.to_owned(), Some(second.container));
        assert_eq!(bound, expected, "a ready agent has bound the address");
    }
}

/// In the snapshot each node owns one block of two. Since then one of them was shared.
#[tokio::test(flavor = "multi_thread")]
async fn after_a_restore_pods_keep_the_addresses_of_a_block_that_was_shared_since() {
    let site = Site::new().await;
    let nodes = site.two_nodes().await;
    site.simple("rail0", "10.1.0.0/27").await;
    for node in &nodes {
        node.wait_active("rail0").await;
    }
    let mut given = BTreeSet::from_iter(nodes[1].add("rail0", &Attachment::of("own")));
    let before = site.server.snapshot();
    for i in 0..19 {
        let pod = Attachment::of(&format!("p{i}"));
        assert!(given.insert(nodes[0].add_soon("rail0", &pod).await));
    }
    let shared = site.blocks("rail0").await;
    assert!(shared.iter().any(|block| block.spec.state == BlockState::Shared));
    assert!(nodes.iter().all(|node| node.stop()) && site.controller.stop());

    restore_deselected(&site, &before, &[&nodes[0], &nodes[1]]).await;
    let there: BTreeSet<String> = addresses(&site).await;
    assert!(there.is_subset(&given) && there.len() >= 5, "{there:?}");
    select_all(&site).await;
    assert_all_different(&nodes, given, 30).await;
}

/// In the snapshot a block is shared. Since then it was released, and a node claimed it for itself.
#[tokio::test(flavor = "multi_thread")]
async fn after_a_restore_pods_keep_the_addresses_of_a_block_that_was_shared_before() {
    let site = Site::new().await;
    let nodes = site.two_nodes().await;
    site.simple("rail0", "10.1.0.0/27").await;
    for node in &nodes {
        node.wait_active("rail0").await;
    }
    for i in 0..15 {
        nodes[0]
            .add_soon("rail0", &Attachment::of(&format!("p{i}")))
            .await;
    }
    let before = site.server.snapshot();
    (0..15).for_each(|i| nodes[0].del("rail0", &Attachment::of(&format!("p{i}"))));
    until("no block is shared any more", async || {
        let blocks = site.blocks("rail0").await;
        site.addresses().await.is_empty() && blocks.iter().all(|block| block.spec.state == BlockState::Active)
    })
    .await;
    let mut given = BTreeSet::new();
    for i in 0..10 {
        for node in &nodes {
            let ip = node.add_soon("rail0", &Attachment::of(&format!("q{i}"))).await;
            assert!(given.insert(ip.clone()), "{ip} is allocated twice");
        }
    }
    assert!(nodes.iter().all(|node| node.stop()) && site.controller.stop());

    restore_deselected(&site, &before, &[&nodes[0], &nodes[1]]).await;
    select_all(&site).await;
    assert_all_different(&nodes, given, 30).await;
}

/// In the snapshot the node `gone` owns a block. Since then its machine was switched off, its Node was deleted, and the block
/// passed to the node `heir`. The restore brings Node and block back, and at last the machine is switched on.
#[tokio::test(flavor = "multi_thread")]
async fn after_a_restore_a_machine_that_was_off_allocates_no_address_of_its_heir() {
    let flags = ["--quarantine", "4s", "--quarantine-in-use", "4s"];
    let site = Site::with(&flags).await;
    let gone = Member::running(&site.server, "gone", &flags).await;
    let heir = Member::new(&site.server, "heir", &flags).await;
    site.simple("rail0", "10.1.0.0/28").await;
    gone.wait_active("rail0").await;
    let before = site.server.snapshot();
    gone.kill();
    gone.identity.leave(&site.admin).await;
    heir.start();
    heir.wait_active("rail0").await;
    let mut given = BTreeSet::new();
    for i in 0..7 {
        given.extend(heir.add("rail0", &Attachment::of(&format!("p{i}"))));
    }
    assert!(heir.stop() && site.controller.stop());

    restore_deselected(&site, &before, &[&heir]).await;
    select_all(&site).await;
    until("the controller has accepted the last edit", async || {
        let pool = site.pools().get("rail0").await.unwrap();
        let status = pool.status.unwrap_or_default();
        // The controller may have missed the first edit. Then the spec has been in force all the time, and keeps its number.
        status.observed_generation == pool.metadata.generation && status.accepted.as_ref() == Some(&pool.spec)
    })
    .await;
    gone.reboot("rail0");
    gone.start();
    gone.wait_active("rail0").await;
    assert_all_different(&[gone, heir], given, 14).await;
}

async fn addresses(site: &Site) -> BTreeSet<String> {
    let there = site.addresses().await.into_iter();
    there.map(|address: IpAddress| address.spec.address).collect()
}

/// Allocates the rest of the pool's `all` addresses on both nodes. None may be one of `given`.
async fn assert_all_different(nodes: &[Member; 2], mut given: BTreeSet<String>, all: usize) {
    for i in 0..all - given.len() {
        let node = &nodes[i % 2];
        let new = node.add_soon("rail0", &Attachment::of(&format!("new{i}"))).await;
        assert!(given.insert(new.clone()), "{new} is allocated twice");
    }
}

fn select(labels: &Value) -> Value {
    json!({ "spec": { "nodeSelector": { "matchLabels": labels } } })
}

async fn label(site: &Site, node: &str, labels: Value) {
    let nodes: Api<Node> = Api::all(site.admin.clone());
    let patch = Patch::Merge(json!({ "metadata": { "labels": labels } }));
    nodes.patch(node, &PatchParams::default(), &patch).await.unwrap();
}

/// A person removes the finalizer of a pool whose deletion waits for a pod, and creates the pool again with this spec.
async fn create_again(site: &Site, spec: Value) {
    let uid = site.pools().get("rail0").await.unwrap().uid();
    site.lose_pool("rail0").await;
    site.pool("rail0", spec).await;
    assert_ne!(site.pools().get("rail0").await.unwrap().uid(), uid);
    until("the pool is judged", async || {
        ["True", "False"].contains(&site.condition("rail0", "Ready").await.0.as_str())
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pool_created_again_with_other_blocks_waits_for_the_pods_of_the_earlier_one() {
    let (site, a) = Site::with_node().await;
    site.simple("rail0", "10.1.0.0/28").await;
    a.wait_active("rail0").await;
    let living = Attachment::of("living");
    let ip = a.add("rail0", &living).remove(0);
    let mut halves = simple("10.1.0.0/28");
    halves["blockSize"] = json!({ "v4": 8 });
    create_again(&site, halves).await;
    let (ready, reason, message) = site.condition("rail0", "Ready").await;
    assert!(
        ready == "False" && reason == "Conflict" && message.contains("earlier pool of this name"),
        "{ip} lives: {ready}, {reason}, {message}"
    );
    a.del("rail0", &living);
    site.wait_condition("rail0", "Ready", "True").await;
    a.add_soon("rail0", &Attachment::of("later")).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pool_created_again_in_another_address_space_uses_no_block_of_the_earlier_one() {
    let (site, a) = Site::with_node().await;
    site.simple("rail0", "10.1.0.0/28").await;
    a.wait_active("rail0").await;
    let living = Attachment::of("living");
    let ip = a.add("rail0", &living).remove(0);
    let earlier = site.blocks("rail0").await.remove(0).name_any();
    let mut elsewhere = simple("10.1.0.0/28");
    elsewhere["addressSpace"] = json!("fab");
    create_again(&site, elsewhere).await;
    site.wait_condition("rail0", "Ready", "True").await;
    let b = Member::running(&site.server, "b", &[]).await;
    until("a node has the block of the new address space", async || {
        let has = |node: &Member| {
            node.blocks("rail0", "active")
                .contains(&"fab-4-0a010000-28".to_owned())
        };
        has(&a) || has(&b)
    })
    .await;
    assert_eq!(a.blocks("rail0", "draining"), [earlier], "{ip} lives");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_object_of_an_address_of_a_lost_pool_is_deleted_after_del() {
    let (site, node) = Site::with_node().await;
    let mut spec = per_address("10.1.0.0/28");
    spec["cooldownSeconds"] = json!(2);
    site.pool("rail0", spec).await;
    until("the pool is here", async || !node.file("rail0").is_null()).await;
    let one = Attachment::of("one");
    node.add("rail0", &one);
    site.lose_pool("rail0").await;
    node.wait_refused("rail0", &[115, 116]).await;
    node.del("rail0", &one);
    until("the object is deleted", async || {
        site.addresses().await.is_empty()
    })
    .await;
    until("the file is gone", async || node.file("rail0").is_null()).await;
}

/// An earlier agent removed the file of such a pool although the node had objects of it.
#[tokio::test(flavor = "multi_thread")]
async fn an_address_object_without_a_lease_is_deleted_though_its_pool_is_lost() {
    for has_file in [true, false] {
        let (site, node) = Site::with_node().await;
        site.pool("rail0", per_address("10.1.0.0/28")).await;
        until("the pool is here", async || !node.file("rail0").is_null()).await;
        node.add("rail0", &Attachment::of("one"));
        node.kill();
        node.forget_leases("rail0");
        if !has_file {
            std::fs::remove_file(node.data().join("pools/rail0/pool.json")).unwrap();
        }
        site.lose_pool("rail0").await;
        assert!(!site.addresses().await.is_empty());
        node.start();
        until("the object is deleted", async || {
            site.addresses().await.is_empty()
        })
        .await;
        until("the agent is ready", async || node.is_ready()).await;
    }
}

/// The agent may create a block just after the controller has found none and released the pool. The answer to the CREATE is lost.
#[tokio::test(flavor = "multi_thread")]
async fn a_block_of_a_lost_pool_is_deleted_by_a_node_without_a_file_of_the_pool() {
    let (site, node) = Site::with_node().await;
    site.pool("rail0", json!({ "ranges": [{ "subnet": "10.1.0.0/24" }] }))
        .await;
    until("the node has a block", async || {
        !site.blocks("rail0").await.is_empty()
    })
    .await;
    node.kill();
    std::fs::remove_file(node.data().join("pools/rail0/pool.json")).unwrap();
    site.lose_pool("rail0").await;
    assert!(!site.blocks("rail0").await.is_empty());
    node.start();
    until("the block is deleted", async || {
        site.blocks("rail0").await.is_empty()
    })
    .await;
}
