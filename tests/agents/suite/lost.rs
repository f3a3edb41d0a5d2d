// SPDX-License-Identifier: Apache-2.0
//! Blocks that the API server loses while pods have addresses of them: an administrator deletes them, or etcd is restored.

use agents::{Attachment, Member, Site};
use api::convert::IN_USE;
use api::{BlockState, IpBlock};
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
    later.wait_log("another node owns a block that pods of this node have addresses of");
    assert!(later.log().contains("\"leased\":1"), "{}", later.log());
    // No controller has accepted the edit yet.
    earlier.start();
    for node in [&earlier, &later] {
        until("the node is deselected", async || {
            node.error("rail0", &Attachment::of("new"))["code"] == 116
        })
        .await;
    }
    later.wait_log("claimed a block again");
    site.controller.start(&site.server, &[]);
    site.edit("rail0", json!({ "spec": { "nodeSelector": null } }))
        .await;
    until("addresses are allocated again", async || {
        later.blocks("rail0", "active").len() == 1
    })
    .await;
    assert_eq!(later.add("rail0", &living), ip);
    let mut given = BTreeSet::from_iter(ip);
    for i in 0..13 {
        let node = [&earlier, &later][i % 2];
        let new = node.add_soon("rail0", &Attachment::of(&format!("p{i}"))).await;
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
