// SPDX-License-Identifier: Apache-2.0
//! A Node object that is deleted while its machine runs: the real pod garbage collector deletes the agent's own Pod, and its token
//! becomes invalid.

use agents::later::until_blocks_freed_later;
use agents::{Attachment, Member, Site};
use api::{BlockState, IpPool};
use apiserver::Identity;
use apiserver::install::until;
use kube::Api;
use kube::api::ListParams;
use std::time::{Duration, Instant};

/// The controllers of kube-controller-manager that handle gone nodes and their pods.
const CONTROLLERS: [&str; 2] = ["pod-garbage-collector-controller", "garbage-collector-controller"];

/// Waits until the API server rejects the token of the node's agent. The garbage collector waits for 40 s and runs
/// every 20 s.
async fn loses_its_token(site: &Site, node: &Member) {
    let pools: Api<IpPool> = Api::all(site.server.with_token(&node.identity.token).await);
    let deadline = Instant::now() + Duration::from_secs(180);
    let is_refused = |answer: &kube::Result<_>| matches!(answer, Err(kube::Error::Api(e)) if e.code == 401);
    loop {
        let answer = pools.list(&ListParams::default()).await.map(drop);
        if is_refused(&answer) {
            return;
        }
        assert!(
            Instant::now() < deadline,
            "the token is good after three minutes: {answer:?}"
        );
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_keeps_a_block_with_pods_after_its_agent_loses_the_token() {
    let flags = ["--quarantine", "4s"];
    let site = Site::with(&flags).await;
    site.server.start_controllers(&CONTROLLERS);
    let mut silent = Member::running(&site.server, "silent", &flags).await;
    site.simple("rail0", "10.1.0.0/28").await;
    silent.wait_active("rail0").await;
    let pod = Attachment::of("one");
    let ip = silent.add("rail0", &pod);
    let heir = Member::running(&site.server, "heir", &flags).await;
    site.remove_node("silent").await;
    loses_its_token(&site, &silent).await;
    until_blocks_freed_later(&site).await;
    heir.refused("rail0", &Attachment::of("two"), &[11, 110, 116], &[]);
    let block = site.blocks("rail0").await.remove(0);
    assert_eq!(block.spec.owner, silent.identity.node, "its pod lives");
    assert_eq!(block.spec.state, BlockState::Orphaned);
    assert_eq!(block.status.map(|status| status.used), Some(1), "the last report");
    // Its kubelet starts: a new registration, and a new Pod for the agent.
    let again = Identity::new(&site.admin, "silent").await;
    silent.kill();
    silent.becomes(&site.server, again.clone());
    silent.start();
    until("the block is the new registration's", async || {
        let block = site.blocks("rail0").await.remove(0);
        block.spec.owner == again.node && block.spec.state == BlockState::Active
    })
    .await;
    assert_eq!(silent.add("rail0", &pod), ip);
}
