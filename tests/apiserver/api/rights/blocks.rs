// SPDX-License-Identifier: Apache-2.0
//! An agent may write the blocks of its own node, and no others.

use super::{Agent, put};
use crate::{block, refusal};
use api::{BlockState, IpBlock};
use apiserver::Server;
use apiserver::identity::controller_token;
use apiserver::objects::try_create;
use kube::Api;
use kube::api::{DeleteParams, Patch, PatchParams};
use serde_json::{Value, json};

fn state(state: &str) -> (&'static str, Value) {
    ("/spec/state", json!(state))
}

#[tokio::test]
async fn an_agent_can_claim_blocks_only_for_its_own_node() {
    let (mine, other) = (Agent::of("claims-1").await, Agent::of("claims-2").await);
    mine.claim("claims-4-0a000000-26", "10.0.0.0/26").await.unwrap();
    let foreign = block("claims-4-0a000040-26", "10.0.0.64/26", "claims-1");
    let status = refusal(try_create(&other.blocks(), foreign).await);
    assert_eq!(status.code, 403);
    assert!(
        status
            .message
            .contains("the agent of node claims-2 may claim a block for that node alone"),
        "{}",
        status.message
    );
}

#[tokio::test]
async fn an_agent_cannot_change_or_delete_a_block_of_another_node() {
    let (mine, other) = (Agent::of("touch-1").await, Agent::of("touch-2").await);
    let name = "touch-4-0a000000-26";
    mine.claim(name, "10.0.0.0/26").await.unwrap();
    mine.swap(name, &[state("Draining")]).await.unwrap();
    mine.swap(name, &[state("Active")]).await.unwrap();

    refusal(other.swap(name, &[state("Draining")]).await);
    refusal(other.swap(name, &[("/spec/epoch", json!(2))]).await);
    refusal(
        other
            .swap(name, &[other.owner(), ("/spec/epoch", json!(2))])
            .await,
    );
    refusal(other.swap(name, &[other.owner(), state("Orphaned")]).await);
    refusal(other.swap(name, &[state("Shared")]).await);
    let message = refusal(other.blocks().delete(name, &DeleteParams::default()).await).message;
    assert!(
        message.contains("block of node touch-1: the agent of node touch-2 may not delete it"),
        "{message}"
    );
    let patch = Patch::Merge(json!({ "status": { "used": 1, "free": 0 } }));
    let message = refusal(
        other
            .blocks()
            .patch_status(name, &PatchParams::default(), &patch)
            .await,
    )
    .message;
    assert!(message.contains("status of a block of node touch-1"), "{message}");
    mine.blocks()
        .patch_status(name, &PatchParams::default(), &patch)
        .await
        .unwrap();
    mine.blocks()
        .delete(name, &DeleteParams::default())
        .await
        .unwrap();
}

#[tokio::test]
async fn only_the_controller_can_orphan_and_delete_blocks_of_other_nodes() {
    let (mine, other) = (Agent::of("ended-1").await, Agent::of("ended-2").await);
    let name = "ended-4-0a000000-26";
    mine.claim(name, "10.0.0.0/26").await.unwrap();
    refusal(other.swap(name, &[state("Orphaned")]).await);
    let server = Server::shared();
    let token = controller_token(&server.admin().await, "ending").await;
    let blocks: Api<IpBlock> = Api::all(server.with_token(&token).await);
    let claimed = mine.blocks().get(name).await.unwrap();
    let mut orphaned = claimed.clone();
    orphaned.spec.state = BlockState::Orphaned;
    put(&blocks, &claimed, &orphaned).await.unwrap();
    refusal(
        other
            .swap(name, &[other.owner(), state("Active"), ("/spec/epoch", json!(2))])
            .await,
    );
    refusal(other.blocks().delete(name, &DeleteParams::default()).await);
    blocks.delete(name, &DeleteParams::default()).await.unwrap();
    other.claim(name, "10.0.0.0/26").await.unwrap();
}

#[tokio::test]
async fn an_agent_can_take_back_an_orphaned_block_of_its_own_node_name() {
    let mine = Agent::of("namesake").await;
    let name = "namesake-4-0a000000-26";
    mine.claim(name, "10.0.0.0/26").await.unwrap();
    mine.swap(name, &[state("Orphaned")]).await.unwrap();
    mine.swap(name, &[mine.owner(), state("Active"), ("/spec/epoch", json!(2))])
        .await
        .unwrap();
}
