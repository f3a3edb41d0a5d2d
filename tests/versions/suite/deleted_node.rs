// SPDX-License-Identifier: Apache-2.0
//! A node is deleted while a pod of it has an address. Its agent, the controller and the agents of other nodes have two versions.

use crate::cluster::{KEEPS_BLOCKS, Pods, node_of, site_of};
use agents::Attachment;
use api::BlockState;
use apiserver::install::until;
use tests::Version;
use tests::Version::{Earlier, Today};

#[tokio::test(flavor = "multi_thread")]
async fn todays_controller_holds_what_a_deleted_node_had_in_use() {
    for (dead, heir) in [(Earlier, Today), (Today, Earlier), (Earlier, Earlier)] {
        held(Today, dead, heir).await;
    }
}

/// The deleted node has two blocks, and a pod has an address of one. After the quarantine the node `heir` gets the other block, and
/// no address of the first.
pub(crate) async fn held(controller: Version, dead: Version, heir: Version) {
    let flags = ["--quarantine", "4s"];
    let versions = format!("controller {controller:?}, deleted node {dead:?}, heir {heir:?}");
    let site = site_of(controller, &flags).await;
    let keeps: Vec<&str> = flags.iter().chain(&KEEPS_BLOCKS).copied().collect();
    let node = node_of(dead, &site.server, "dead", &keeps).await;
    site.simple("used", "10.1.0.0/28").await;
    site.simple("unused", "10.2.0.0/28").await;
    for pool in ["used", "unused"] {
        node.wait_active(pool).await;
    }
    let pods = Pods::default();
    pods.add(dead, &node, "used", &Attachment::of("one")).await;
    until("the block's report counts the pod", async || {
        let block = site.blocks("used").await.remove(0);
        block.status.is_some_and(|status| status.used == 1)
    })
    .await;
    node.kill();
    node.identity.leave(&site.admin).await;
    let node = node_of(heir, &site.server, "heir", &keeps).await;
    // Both blocks have the same quarantine, and that of the unused one has ended.
    node.wait_active("unused").await;
    let held = site.blocks("used").await.remove(0);
    assert_eq!(
        (held.spec.owner.node.as_str(), held.spec.state),
        ("dead", BlockState::Orphaned),
        "{versions}"
    );
    for i in 0..5 {
        let attachment = Attachment::of(&format!("p{i}"));
        assert_eq!(pods.try_add(heir, &node, "used", &attachment), None, "{versions}");
    }
}
