// SPDX-License-Identifier: Apache-2.0
use super::*;
use crate::pool_reconciler::testing::{node_with, refusal, registered_node, registration};
use api::listing::entry;
use api::testing::accepted_pool;
use api::{AddressSpace, AddressSpaceSpec};
use serde_json::{Value, json};
use std::sync::{Arc, Mutex};

/// The response of an API server on which other nodes have each block that this node tries to claim.
fn others_have_all(uri: &str) -> (u16, Value) {
    if uri.contains("limit=") {
        return (200, json!({ "kind": "List", "metadata": {}, "items": [] }));
    }
    refusal(if uri.contains("/ipblocks/") { 404 } else { 409 })
}

/// The result of a claim on a node whose only block, of a pool with `maxBlocksPerNode` 1, has this state. Other nodes have the rest.
async fn claim_beside(state: BlockState) -> Claimed {
    let (context, target, _dir) = registered_node(others_have_all).await;
    let mut accepted = target.accepted.clone().unwrap();
    accepted.spec.max_blocks_per_node = 1;
    let cidr = accepted.layout(Family::V4).unwrap().block(0).unwrap();
    let name = cidr.name("default");
    let mut block = new_block(&name, "rail0", cidr, &registration(&context), Duration::ZERO);
    block.spec.state = state;
    let mut blocks = BlockReconciler::new(context.clone());
    blocks.known_mut().note(&name, Some(block));
    let mut claims = Claims::new(context);
    let claimed = Box::pin(claims.claim(&mut blocks, &target, &accepted, Family::V4));
    claimed.await.unwrap()
}

#[tokio::test]
async fn a_block_that_the_node_has_shared_does_not_count_as_its_own() {
    assert_eq!(claim_beside(BlockState::Active).await, Claimed::Limit);
    assert_eq!(claim_beside(BlockState::Draining).await, Claimed::Limit);
    // The agent then looks for a shared address.
    assert_eq!(claim_beside(BlockState::Shared).await, Claimed::Full);
}

/// A pod needs an address of each family.
#[tokio::test]
async fn a_block_of_one_family_does_not_count_for_the_limit_of_the_other() {
    let spec = json!({
        "ranges": [{ "subnet": "10.1.0.0/24" }, { "subnet": "fd00::/112" }], "blockSize": { "v4": 16, "v6": 16 },
        "maxBlocksPerNode": 1,
    });
    let accepted = accepted_pool("rail0", &spec).unwrap();
    let (context, target, _dir) = registered_node(others_have_all).await;
    let (mut blocks, mut claims) = (
        BlockReconciler::new(context.clone()),
        Claims::new(context.clone()),
    );
    for [own, other] in [[Family::V4, Family::V6], [Family::V6, Family::V4]] {
        let cidr = accepted.layout(own).unwrap().block(0).unwrap();
        let name = cidr.name("default");
        let block = new_block(&name, "rail0", cidr, &registration(&context), Duration::ZERO);
        blocks.known_mut().note(&name, Some(block));
        let of_own = Box::pin(claims.claim(&mut blocks, &target, &accepted, own)).await;
        assert_eq!(of_own.unwrap(), Claimed::Limit);
        let of_other = Box::pin(claims.claim(&mut blocks, &target, &accepted, other)).await;
        assert_eq!(of_other.unwrap(), Claimed::Full, "the other nodes have the rest");
        blocks.known_mut().note(&name, None);
    }
}

#[tokio::test]
async fn a_family_without_a_free_block_does_not_end_the_claims_of_the_other() {
    let spec = json!({
        "ranges": [{ "subnet": "10.1.0.0/28" }, { "subnet": "fd00::/112" }], "blockSize": { "v4": 16, "v6": 16 },
    });
    let accepted = accepted_pool("rail0", &spec).unwrap();
    let only = accepted.layout(Family::V4).unwrap().block(0).unwrap();
    let taken = only.name("default");
    let (context, target, _dir) = registered_node(move |uri| {
        if uri.contains("limit=") {
            let block = json!({ "metadata": { "name": taken } });
            return (200, json!({ "kind": "List", "metadata": {}, "items": [block] }));
        }
        others_have_all(uri)
    })
    .await;
    let mut blocks = BlockReconciler::new(context.clone());
    let mut claims = Claims::new(context);
    let claimed = Box::pin(claims.claim(&mut blocks, &target, &accepted, Family::V4));
    assert_eq!(claimed.await.unwrap(), Claimed::Full);
    let is_full = |family| claims.is_known_full(family);
    assert!(is_full(Family::V4) && !is_full(Family::V6));
    assert_eq!(claims.families[&Family::V4].full_lists, 1);
}

#[test]
fn a_node_lists_the_blocks_of_a_full_pool_ever_less_often() {
    let pause = |full_lists| {
        let claims = FamilyClaims {
            full_lists,
            ..FamilyClaims::default()
        };
        claims.pause_ahead().as_secs()
    };
    assert_eq!(
        [0, 1, 2, 3, 4, 5, 6, 99].map(pause),
        [10, 10, 20, 40, 80, 160, 160, 160]
    );
}

/// The other pool had the block, and a machine may still use an address of it.
#[tokio::test]
async fn a_claimed_block_is_probed_if_another_pool_of_the_space_requests_probes() {
    for (probe, epoch) in [(true, 2), (false, 1)] {
        let accepted = accepted_pool("rail0", &json!({ "ranges": [{ "subnet": "10.1.0.0/28" }] })).unwrap();
        let mut other = entry(&accepted);
        other.name = "other".to_owned();
        other.probe = probe;
        let space = AddressSpaceSpec {
            pools: vec![other, entry(&accepted)],
            ..AddressSpaceSpec::default()
        };
        let mut object = Value::Null;
        let (context, target, _dir) = node_with(&[], move |uri, body| {
            if uri.contains("/addressspaces/") {
                let space = AddressSpace::new("default", space.clone());
                return (200, serde_json::to_value(space).unwrap());
            }
            if uri.contains("/ipaddresses") {
                return others_have_all("limit=");
            }
            if object.is_null() {
                object = body.clone();
                object["metadata"]["resourceVersion"] = json!("1");
            }
            (200, object.clone())
        })
        .await;
        let (mut blocks, mut claims) = (
            BlockReconciler::new(context.clone()),
            Claims::new(context.clone()),
        );
        let claimed = Box::pin(claims.claim(&mut blocks, &target, &accepted, Family::V4));
        assert_eq!(claimed.await.unwrap(), Claimed::Yes);
        let file = context.file().await.unwrap().unwrap();
        assert_eq!(file.blocks[0].epoch, epoch);
    }
}

/// The controller, and other agents, may have a shorter quarantine.
#[tokio::test]
async fn a_claimed_block_records_the_quarantine_of_its_agent() {
    let recorded = Arc::new(Mutex::new(Vec::new()));
    let seen = recorded.clone();
    let (context, target, _dir) = node_with(&["--quarantine", "20m"], move |uri, body| {
        if body["spec"].is_object() {
            seen.lock()
                .unwrap()
                .push(body["spec"]["quarantineSeconds"].clone());
        }
        others_have_all(uri)
    })
    .await;
    let accepted = accepted_pool("rail0", &json!({ "ranges": [{ "subnet": "10.1.0.0/28" }] })).unwrap();
    let (mut blocks, mut claims) = (BlockReconciler::new(context.clone()), Claims::new(context));
    let claimed = Box::pin(claims.claim(&mut blocks, &target, &accepted, Family::V4));
    assert_eq!(claimed.await.unwrap(), Claimed::Full);
    let recorded = recorded.lock().unwrap();
    assert!(
        !recorded.is_empty() && recorded.iter().all(|seconds| *seconds == json!(1200)),
        "{recorded:?}"
    );
}
