// SPDX-License-Identifier: Apache-2.0
//! Blocks: an agent has those of its own node, and one that nobody has any more.

use super::Agent;
use crate::{block, refusal};
use api::IpBlock;
use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use serde_json::{Value, json};

fn state(state: &str) -> (&'static str, Value) {
    ("/spec/state", json!(state))
}

#[tokio::test]
async fn an_agent_claims_blocks_for_its_own_node_alone() {
    let (mine, other) = (Agent::of("claims-1").await, Agent::of("claims-2").await);
    mine.claim("claims-4-0a000000-26", "10.0.0.0/26").await.unwrap();
    let foreign: IpBlock =
        serde_json::from_value(block("claims-4-0a000040-26", "10.0.0.64/26", "claims-1")).unwrap();
    let status = refusal(other.blocks().create(&PostParams::default(), &foreign).await);
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
async fn an_agent_cannot_touch_a_block_of_another_node() {
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
    let said = refusal(other.blocks().delete(name, &DeleteParams::default()).await).message;
    assert!(
        said.contains("block of node touch-1 is not Orphaned or Shared"),
        "{said}"
    );
    let patch = Patch::Merge(json!({ "status": { "used": 1, "free": 0 } }));
    let said = refusal(
        other
            .blocks()
            .patch_status(name, &PatchParams::default(), &patch)
            .await,
    )
    .message;
    assert!(said.contains("status of a block of node touch-1"), "{said}");
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
async fn an_agent_may_orphan_a_block_and_afterwards_take_or_end_it() {
    let (mine, other, third) = (
        Agent::of("orphan-1").await,
        Agent::of("orphan-2").await,
        Agent::of("orphan-3").await,
    );
    let name = "orphan-4-0a000000-26";
    mine.claim(name, "10.0.0.0/26").await.unwrap();
    other
        .swap(
            name,
            &[
                state("Orphaned"),
                (
                    "/spec/orphaned",
                    json!({ "by": "orphan-2", "since": "2026-01-01T00:00:00Z" }),
                ),
            ],
        )
        .await
        .unwrap();
    refusal(
        other
            .swap(name, &[third.owner(), state("Active"), ("/spec/epoch", json!(2))])
            .await,
    );
    let taken = other
        .swap(name, &[other.owner(), state("Active"), ("/spec/epoch", json!(2))])
        .await
        .unwrap();
    assert_eq!(taken.spec.owner, other.identity.node);
    refusal(mine.swap(name, &[state("Draining")]).await);
    mine.swap(name, &[state("Orphaned")]).await.unwrap();
    third
        .blocks()
        .delete(name, &DeleteParams::default())
        .await
        .unwrap();
}

#[tokio::test]
async fn a_block_of_an_earlier_node_of_the_same_name_can_be_taken_back() {
    let mine = Agent::of("namesake").await;
    let name = "namesake-4-0a000000-26";
    mine.claim(name, "10.0.0.0/26").await.unwrap();
    mine.swap(name, &[state("Orphaned")]).await.unwrap();
    mine.swap(name, &[mine.owner(), state("Active"), ("/spec/epoch", json!(2))])
        .await
        .unwrap();
}
