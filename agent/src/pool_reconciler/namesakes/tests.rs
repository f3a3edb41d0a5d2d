// SPDX-License-Identifier: Apache-2.0
use super::*;
use crate::pool_reconciler::testing::{node_with, own_block, refusal, registration};
use api::BlockState;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Whether a node without a quarantine of its own deletes an orphaned block of its earlier registration that records this quarantine.
async fn deletes_a_block_with(recorded: Option<i64>) -> bool {
    let is_asked = Arc::new(AtomicBool::new(false));
    let seen = is_asked.clone();
    let (context, target, _dir) = node_with(&["--quarantine", "0s"], move |_, _| {
        seen.store(true, Ordering::SeqCst);
        refusal(404)
    })
    .await;
    let mut block = own_block();
    block.spec.owner.node_uid = "earlier".to_owned();
    block.spec.state = BlockState::Orphaned;
    block.spec.quarantine_seconds = recorded;
    let (owner, mut known) = (registration(&context), KnownBlocks::new(context.clone()));
    let mut namesakes = Namesakes::new(context);
    // The first look notes the version.
    for _ in 0..2 {
        let reviewed = namesakes.review(&target.api, &mut known, &block, &owner);
        reviewed.await.unwrap();
    }
    is_asked.load(Ordering::SeqCst)
}

/// Pods of the earlier registration may run for so long.
#[tokio::test]
async fn a_block_of_an_earlier_registration_waits_for_the_longer_quarantine() {
    assert!(deletes_a_block_with(None).await);
    assert!(!deletes_a_block_with(Some(3600)).await);
}
