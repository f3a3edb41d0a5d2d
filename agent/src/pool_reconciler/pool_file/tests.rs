// SPDX-License-Identifier: Apache-2.0
//! The file of a pool after a reboot.

use super::super::reconcile_block::BlockReconciler;
use super::super::testing::{
    boot_directory, commit_lease, damage_lease, file_of_earlier_boot, own_block, registered_node,
    replace_file,
};
use super::*;
use api::testing::small_pool;
use kube::ResourceExt;
use serde_json::json;
use tempfile::TempDir;

/// A node whose API server answers each request about a block with the status `code`.
async fn node(code: u16) -> (PoolContext, Target, TempDir) {
    let error = json!({ "kind": "Status", "status": "Failure", "message": "on purpose", "code": code });
    registered_node(move |_| (code, error.clone())).await
}

/// The file of an earlier boot for the pool of the target.
fn of_earlier_boot(context: &PoolContext) -> PoolFile {
    file_of_earlier_boot(context, &small_pool())
}

#[tokio::test]
async fn a_pool_file_gets_the_id_of_this_boot_only_after_its_blocks_were_compared() {
    let (context, target, _dir) = node(500).await;
    let before = of_earlier_boot(&context);
    replace_file(&context, &before).await;
    let mut known = KnownBlocks::new(context.clone());
    let mut block = own_block();
    block.spec.quarantine_seconds = Some(300);
    known.note(&block.name_any(), Some(block));
    let mut writer = PoolFileWriter::new(context.clone());

    writer.write(&known, &target, false).await.unwrap();
    let admitted = PoolFile {
        namespaces: None,
        ..before
    };
    assert_eq!(context.file().await.unwrap(), Some(admitted.clone()));

    writer.write(&known, &target, true).await.unwrap();
    let confirmed = PoolFile {
        boot_id: KernelClock.boot_id().unwrap(),
        // The block was claimed with a shorter quarantine than the agent has.
        quarantine_seconds: 300,
        ..admitted
    };
    assert_eq!(context.file().await.unwrap(), Some(confirmed));
}

/// The quarantine ends between two attempts to compare the block.
#[tokio::test]
async fn blocks_that_become_unproven_before_they_are_compared_are_closed() {
    let (context, target, _dir) = node(500).await;
    let unproven = of_earlier_boot(&context);
    let proven = PoolFile {
        boot_id: KernelClock.boot_id().unwrap(),
        ..unproven.clone()
    };
    let mut blocks = BlockReconciler::new(context.clone());
    replace_file(&context, &proven).await;
    assert!(blocks.reconcile(&target).await.unwrap_err().is_unanswered());
    assert_eq!(context.file().await.unwrap(), Some(proven));

    replace_file(&context, &unproven).await;
    assert!(blocks.reconcile(&target).await.unwrap_err().is_unanswered());
    let file = context.file().await.unwrap().unwrap();
    assert_eq!(file.blocks[0].state, BlockState::Draining);

    // They open one by one when they are compared, so they are closed once only.
    replace_file(&context, &unproven).await;
    assert!(blocks.reconcile(&target).await.unwrap_err().is_unanswered());
    assert_eq!(context.file().await.unwrap(), Some(unproven));
}

/// A rejection lasts until a person acts. Pods of the node get addresses of its other blocks meanwhile.
#[tokio::test]
async fn a_rejected_block_of_a_rebooted_node_is_closed_and_delays_no_other_block() {
    let (context, target, _dir) = node(403).await;
    let mut blocks = BlockReconciler::new(context.clone());
    replace_file(&context, &of_earlier_boot(&context)).await;
    assert!(!blocks.reconcile(&target).await.unwrap_err().is_unanswered());
    assert!(!blocks.is_proven());
    blocks.write_file(&target).await.unwrap();
    let file = context.file().await.unwrap().unwrap();
    assert_eq!(file.blocks[0].state, BlockState::Draining);
    assert_eq!(file.boot_id, KernelClock.boot_id().unwrap());
}

/// A node that has no part of the pool any more, with the file of the pool and without blocks.
async fn deselected_node() -> (PoolContext, Target, TempDir) {
    let (context, mut target, dir) = node(404).await;
    target.open = false;
    let mut file = of_earlier_boot(&context);
    file.blocks.clear();
    replace_file(&context, &file).await;
    (context, target, dir)
}

#[tokio::test]
async fn a_pool_file_without_blocks_stays_while_the_node_has_a_lease_that_cannot_be_read() {
    for has_lease in [false, true] {
        let (context, target, dir) = deselected_node().await;
        if has_lease {
            damage_lease(&context, &dir, "10.1.0.3").await;
        }
        let mut writer = PoolFileWriter::new(context.clone());
        writer.remove_file(&target).await.unwrap();
        assert_eq!(context.file().await.unwrap().is_some(), has_lease);
    }
}

/// No ADD has begun the store of this boot.
#[tokio::test]
async fn a_pool_file_without_blocks_is_removed_after_a_reboot() {
    let (context, target, dir) = deselected_node().await;
    std::fs::remove_dir_all(boot_directory(&dir)).unwrap();
    let mut writer = PoolFileWriter::new(context.clone());
    writer.remove_file(&target).await.unwrap();
    assert!(context.file().await.unwrap().is_none());
    writer.remove_file(&target).await.unwrap();
}

/// The cooldown of the address is in the file.
#[tokio::test]
async fn a_pool_file_stays_while_an_address_of_the_pool_rests() {
    let (context, target, _dir) = deselected_node().await;
    let stores = &context.agent.stores;
    let released = stores.with(&context.pool, |store| {
        commit_lease(store, "c1", "10.1.0.3", true);
        let owner = store.leases()?.intact.remove(0).lease.owner;
        store.enter()?.release(&owner)
    });
    released.await.unwrap().unwrap();
    let mut writer = PoolFileWriter::new(context.clone());
    writer.remove_file(&target).await.unwrap();
    assert!(context.file().await.unwrap().is_some());
    let ended = stores.with(&context.pool, |store| {
        let released = store.releases()?.remove(0);
        store.enter()?.end_release(&released)
    });
    ended.await.unwrap();
    writer.remove_file(&target).await.unwrap();
    assert!(context.file().await.unwrap().is_none());
}
