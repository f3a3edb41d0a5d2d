// SPDX-License-Identifier: Apache-2.0
//! Blocks that the API server loses while pods have addresses of them: an administrator deletes them, or etcd is restored.

use agents::{Attachment, Member, Site};
use api::{BlockState, IpBlock};
use apiserver::install::until;
use kube::api::{DeleteParams, Patch, PatchParams};
use kube::{Api, ResourceExt};
use serde_json::json;
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

/// docs/operate.md, "Restore of etcd": in the snapshot `lost` owns the block, since then `heir` got it.
#[tokio::test(flavor = "multi_thread")]
async fn the_node_that_got_a_block_after_the_snapshot_names_it_and_no_address_is_allocated_twice() {
    let flags = ["--quarantine", "4s", "--quarantine-in-use", "4s"];
    let site = Site::with(&flags).await;
    let lost = Member::running(&site.server, "lost", &flags).await;
    site.simple("rail0", "10.1.0.0/28").await;
    lost.wait_active("rail0").await;
    let heir = Member::new(&site.server, "heir", &flags).await;
    let before = site.server.snapshot();
    lost.kill();
    lost.identity.leave(&site.admin).await;
    heir.start();
    heir.wait_active("rail0").await;
    let living = Attachment::of("living");
    let ip = heir.add("rail0", &living);
    assert!(heir.stop() && site.controller.stop());
    site.server.restore(&before);
    let nowhere = json!({ "matchLabels": { "rdmanet.io/restored": "yes" } });
    site.edit("rail0", json!({ "spec": { "nodeSelector": nowhere } }))
        .await;
    site.controller.start(&site.server, &flags);
    lost.start();
    heir.start();
    heir.wait_log("removed a block that this node does not own any more");
    assert!(heir.log().contains("\"leased\":1"), "{}", heir.log());
    for node in [&lost, &heir] {
        node.refused("rail0", &Attachment::of("new"), &[116], &["nodeSelector"]);
    }
    heir.del("rail0", &living);
    site.edit("rail0", json!({ "spec": { "nodeSelector": null } }))
        .await;
    let mut given = BTreeSet::new();
    for i in 0..14 {
        let node = [&lost, &heir][i % 2];
        let new = node.add_soon("rail0", &Attachment::of(&format!("p{i}"))).await;
        assert!(given.insert(new.clone()), "{new} is allocated twice");
    }
    assert!(given.contains(&ip[0]), "{given:?}");
}
