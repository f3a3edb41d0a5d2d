// SPDX-License-Identifier: Apache-2.0
//! The blocks that a node keeps.

use super::super::testing::{
    answer_with_block, damage_lease, file_of_earlier_boot, own_block, registered_node, replace_file,
    touch_address,
};
use super::*;
use api::deadline::Deadline;
use api::testing::{silent_clients, small_pool};
use ipam::pool::{BlockState, Counters};
use kube::ResourceExt;
use tempfile::TempDir;

fn target(open: bool, sharing: &[&str]) -> Target {
    Target {
        api: silent_clients().requests(Deadline::background()),
        accepted: Some(small_pool()),
        open,
        counters: Counters::default(),
        blocks: 0,
        sharing: sharing.iter().map(|&name| name.to_owned()).collect(),
        has_shortage: false,
    }
}

fn cell_of(cidr: &str) -> Option<BlockCidr> {
    BlockCidr::of(cidr.parse().unwrap())
}

#[tokio::test]
async fn the_pool_decides_whether_a_block_is_kept_returned_shared_or_drained() {
    let name = "default-4-0a010010-28";
    let desired =
        |target: &Target, cidr, surplus| desired_use(target, name, cell_of(cidr), Usage::default(), surplus);
    let inside = "10.1.0.16/28";
    assert_eq!(desired(&target(true, &[]), inside, false), Desired::Keep);
    assert_eq!(desired(&target(true, &[]), inside, true), Desired::Return);
    assert_eq!(desired(&target(true, &[name]), inside, true), Desired::Share);
    assert_eq!(desired(&target(true, &["another"]), inside, false), Desired::Keep);
    // Nothing new is allocated from it, even if other nodes want to share it.
    assert_eq!(desired(&target(false, &[name]), inside, false), Desired::Drain);
    assert_eq!(
        desired(&target(true, &[name]), "10.2.0.0/28", false),
        Desired::Drain
    );
    assert_eq!(
        desired(&target(true, &[]), "10.1.0.0/27", false),
        Desired::Drain,
        "of another size"
    );
    let elsewhere = desired_use(
        &target(true, &[]),
        "fab-4-0a010010-28",
        cell_of(inside),
        Usage::default(),
        false,
    );
    assert_eq!(elsewhere, Desired::Drain, "of another address space");
    // All 16 addresses are in use, so the block has nothing to share.
    let full = Usage {
        leased: 16,
        ..Usage::default()
    };
    let shared = target(true, &[name]);
    assert_eq!(
        desired_use(&shared, name, cell_of(inside), full, false),
        Desired::Keep
    );
    let gone = Target {
        accepted: None,
        ..target(true, &[])
    };
    assert_eq!(desired(&gone, inside, false), Desired::Drain);
}

#[test]
fn the_round_after_an_interruption_starts_behind_the_interrupted_block() {
    let names = || {
        ["a", "b", "c"]
            .map(str::to_owned)
            .into_iter()
            .collect::<BTreeSet<_>>()
    };
    assert_eq!(behind(names(), None), ["a", "b", "c"]);
    assert_eq!(behind(names(), Some("a".to_owned())), ["b", "c", "a"]);
    // After the last name, and after a name that no longer exists.
    assert_eq!(behind(names(), Some("c".to_owned())), ["a", "b", "c"]);
    assert_eq!(behind(names(), Some("bb".to_owned())), ["c", "a", "b"]);
}

/// The state of this node's only block after a round in which the controller asks for it. `before` changes the store.
async fn after_a_request_to_share(before: impl AsyncFnOnce(&PoolContext, &TempDir)) -> BlockState {
    let block = own_block();
    let (name, object) = (block.name_any(), block.clone());
    let (context, mut target, dir) = registered_node(move |uri| answer_with_block(&object, uri)).await;
    let file = file_of_earlier_boot(&context, target.accepted.as_ref().unwrap());
    replace_file(&context, &file).await;
    before(&context, &dir).await;
    target.sharing = vec![name.clone()];
    let mut reconciler = BlockReconciler::new(context.clone());
    reconciler.proven = true;
    reconciler.known.note(&name, Some(block));
    reconciler.reconcile(&target).await.unwrap();
    context.file().await.unwrap().unwrap().blocks[0].state
}

#[tokio::test]
async fn a_block_is_shared_only_if_each_taken_address_can_get_an_object() {
    let nothing = after_a_request_to_share(async |_, _| {}).await;
    assert_ne!(nothing, BlockState::Active, "the request is answered");
    let damaged = after_a_request_to_share(async |context, dir| {
        damage_lease(context, dir, "10.1.0.3").await;
    });
    assert_eq!(damaged.await, BlockState::Active);
    let blocked = after_a_request_to_share(async |_, dir| touch_address(dir, "10.1.0.5"));
    assert_eq!(blocked.await, BlockState::Active);
}
