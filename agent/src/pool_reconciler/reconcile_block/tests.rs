// SPDX-License-Identifier: Apache-2.0
//! The blocks that a node keeps.

use super::super::addresses::Addresses;
use super::super::gc::GarbageCollector;
use super::super::testing::{
    answer_with_block, commit_lease, damage_lease, file_of_earlier_boot, node_with, own_block, refusal,
    registered_node, replace_file, touch_address,
};
use super::*;
use api::deadline::Deadline;
use api::testing::{silent_clients, small_pool};
use common::cni::Attachment;
use ipam::clock::KernelClock;
use ipam::config::Place;
use ipam::pool::{BlockState, Counters, PoolFile};
use ipam::store::{LOCK_WAIT, Node, NodeDisk, Store};
use kube::ResourceExt;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::{Arc, Mutex};
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
    let desired = |target: &Target, cidr, surplus| desired_use(target, name, cell_of(cidr), true, surplus);
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
        true,
        false,
    );
    assert_eq!(elsewhere, Desired::Drain, "of another address space");
    let shared = target(true, &[name]);
    assert_eq!(
        desired_use(&shared, name, cell_of(inside), false, false),
        Desired::Keep,
        "it has no free address"
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
    let object = block.clone();
    let (context, mut target, dir) = registered_node(move |uri| answer_with_block(&object, uri)).await;
    let file = file_of_earlier_boot(&context, target.accepted.as_ref().unwrap());
    replace_file(&context, &file).await;
    before(&context, &dir).await;
    share(&context, &mut target, block).await.unwrap();
    state(&context).await
}

/// A round in which the controller asks for `block`.
async fn share(context: &PoolContext, target: &mut Target, block: IpBlock) -> Result<(), ReconcileError> {
    let name = block.name_any();
    target.sharing = vec![name.clone()];
    let mut reconciler = BlockReconciler::new(context.clone());
    reconciler.proven = true;
    reconciler.known.note(&name, Some(block));
    Box::pin(reconciler.reconcile(target)).await
}

/// The state of this node's only block.
async fn state(context: &PoolContext) -> BlockState {
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

/// The `IPAddress` objects of an API server.
#[derive(Default)]
struct Objects {
    by_name: BTreeMap<String, Value>,
    /// What happens before the first write.
    before_first: Option<Box<dyn FnOnce() + Send>>,
    /// What happens before the block is written as shared.
    before_shared: Option<Box<dyn FnOnce() + Send>>,
}

/// An API server that has `block` and these objects, and accepts each write.
fn answer_with_objects(
    block: &IpBlock,
    objects: &Mutex<Objects>,
    (uri, body): (&str, &Value),
) -> (u16, Value) {
    let mut objects = objects.lock().unwrap();
    if body["kind"] == "IPAddress" {
        if let Some(before) = objects.before_first.take() {
            before();
        }
        let mut object = body.clone();
        object["metadata"]["resourceVersion"] = "10".into();
        let name = object["metadata"]["name"].as_str().unwrap().to_owned();
        objects.by_name.insert(name, object.clone());
        return (200, object);
    }
    if let Some(before) = objects
        .before_shared
        .take_if(|_| body["spec"]["state"] == "Shared")
    {
        before();
    }
    if body["kind"] == "IPBlock" {
        return (200, body.clone());
    }
    if uri.contains("/ipaddresses?") {
        let items: Vec<&Value> = objects.by_name.values().collect();
        return (200, json!({ "kind": "List", "metadata": {}, "items": items }));
    }
    answer_with_block(block, uri)
}

/// Works on the store of the pool `rail0` below `dir`, as the plugin does.
fn with_store(dir: &Path, work: impl FnOnce(&Store<'_>)) {
    let node = Node {
        disk: &NodeDisk,
        clock: &KernelClock,
        lock_wait: LOCK_WAIT,
    };
    let place = Place::of_pool(dir, &"rail0".to_owned().try_into().unwrap());
    work(&Store::new(&place, &node).unwrap());
}

/// Writes the file of the block, with a cooldown that is longer than the test.
async fn with_long_cooldown(context: &PoolContext, target: &Target) {
    let mut file = file_of_earlier_boot(context, target.accepted.as_ref().unwrap());
    file.cooldown_seconds = 3600;
    replace_file(context, &file).await;
}

/// A node that has `block`, with a long cooldown, and an API server with these objects.
async fn node_beside(block: &IpBlock, objects: &Arc<Mutex<Objects>>) -> (PoolContext, Target, TempDir) {
    let (object, there) = (block.clone(), objects.clone());
    let node = node_with(&[], move |uri, body| {
        answer_with_objects(&object, &there, (uri, body))
    })
    .await;
    with_long_cooldown(&node.0, &node.1).await;
    node
}

fn del(store: &Store<'_>, container: &str) {
    let owner = Attachment {
        container_id: container.to_owned().try_into().unwrap(),
        ifname: "net1".to_owned().try_into().unwrap(),
    };
    store.enter().unwrap().release(&owner).unwrap();
}

/// Before the block is shared, the pod of 10.1.0.3 has ended. The pod of 10.1.0.4 ends while the objects are written.
#[tokio::test]
async fn a_block_is_shared_while_addresses_of_it_rest() {
    let (block, objects) = (own_block(), Arc::<Mutex<Objects>>::default());
    let (context, mut target, dir) = node_beside(&block, &objects).await;
    with_store(dir.path(), |store| {
        for (container, ip) in [("c3", "10.1.0.3"), ("c4", "10.1.0.4"), ("c5", "10.1.0.5")] {
            commit_lease(store, container, ip, false);
        }
        del(store, "c3");
    });
    let data = dir.path().to_owned();
    objects.lock().unwrap().before_first =
        Some(Box::new(move || with_store(&data, |store| del(store, "c4"))));
    share(&context, &mut target, block).await.unwrap();

    assert_eq!(state(&context).await, BlockState::Shared);
    let names: Vec<String> = objects.lock().unwrap().by_name.keys().cloned().collect();
    assert_eq!(
        names,
        ["default-0a010003", "default-0a010004", "default-0a010005"]
    );
}

/// Then no other node can take the address before its cooldown has ended.
#[tokio::test]
async fn an_address_rests_whose_pod_ends_while_its_block_becomes_shared() {
    let (block, objects) = (own_block(), Arc::<Mutex<Objects>>::default());
    let (context, mut target, dir) = node_beside(&block, &objects).await;
    with_store(dir.path(), |store| commit_lease(store, "c3", "10.1.0.3", false));
    let data = dir.path().to_owned();
    objects.lock().unwrap().before_shared =
        Some(Box::new(move || with_store(&data, |store| del(store, "c3"))));
    share(&context, &mut target, block).await.unwrap();

    assert!(
        objects.lock().unwrap().before_shared.is_none(),
        "the pod has ended"
    );
    assert_eq!(state(&context).await, BlockState::Shared);
    let released = context.agent.stores.releases(&context.pool).await.unwrap();
    let ips: Vec<String> = released.iter().map(|released| released.ip.to_string()).collect();
    assert_eq!(ips, ["10.1.0.3"]);
}

/// The record of a release keeps an address until the address has its object.
#[tokio::test]
async fn an_address_rests_although_the_api_server_refuses_its_object() {
    let block = own_block();
    let object = block.clone();
    let (context, mut target, dir) = node_with(&[], move |uri, body| {
        if body["kind"] == "IPAddress" {
            return refusal(403);
        }
        answer_with_block(&object, uri)
    })
    .await;
    with_long_cooldown(&context, &target).await;
    with_store(dir.path(), |store| {
        commit_lease(store, "c3", "10.1.0.3", false);
        del(store, "c3");
    });
    share(&context, &mut target, block).await.unwrap_err();
    let mut collector = GarbageCollector::new(context.clone());
    let mut addresses = Addresses::new(context.clone());
    let accepted = target.accepted.as_ref();
    let ended = collector.release_ended(&target.api, accepted, &mut addresses);
    ended.await.unwrap();
    assert_eq!(state(&context).await, BlockState::Sharing);
    assert_eq!(
        context.agent.stores.releases(&context.pool).await.unwrap().len(),
        1
    );
}

/// The file of the node has the block, and the API server has lost it. ADD waits for the lock of the store while the agent finds the
/// block idle.
#[tokio::test]
async fn a_lost_block_stays_in_the_file_if_it_gets_a_lease_before_it_is_removed() {
    for has_lease in [false, true] {
        let (context, target, _dir) = registered_node(|_| refusal(404)).await;
        let file = file_of_earlier_boot(&context, target.accepted.as_ref().unwrap());
        replace_file(&context, &file).await;
        let name = file.blocks[0].name.clone();
        let in_file = local_block(Some(&file), &name);
        let me = context.agent.identity().unwrap();
        let step = next(&me, None, in_file, Usage::default(), Desired::Keep);
        if has_lease {
            let made = context.agent.stores.with(&context.pool, |store| {
                commit_lease(store, "c1", "10.1.0.3", false);
                Ok(())
            });
            made.await.unwrap();
        }
        let about = BlockStep {
            name: &name,
            cidr: cell_of("10.1.0.0/28"),
            asked: KernelClock.since_boot().unwrap(),
            target: &target,
            entry: Entry::of(in_file),
        };
        let mut reconciler = BlockReconciler::new(context.clone());
        reconciler.take(about, None, step).await.unwrap();
        let left = context.file().await.unwrap().unwrap().blocks.len();
        assert_eq!(left, usize::from(has_lease));
    }
}

/// The addresses of its leases need objects then.
#[tokio::test]
async fn the_removal_of_a_block_of_another_node_is_noted() {
    let (context, target, _dir) = registered_node(|_| refusal(404)).await;
    let file = file_of_earlier_boot(&context, target.accepted.as_ref().unwrap());
    replace_file(&context, &file).await;
    let name = file.blocks[0].name.clone();
    let about = BlockStep {
        name: &name,
        cidr: cell_of("10.1.0.0/28"),
        asked: KernelClock.since_boot().unwrap(),
        target: &target,
        entry: Entry::of(local_block(Some(&file), &name)),
    };
    let mut reconciler = BlockReconciler::new(context.clone());
    assert!(!reconciler.take_removed());
    reconciler
        .take(about, Some(own_block()), Step::Remove)
        .await
        .unwrap();
    assert!(context.file().await.unwrap().unwrap().blocks.is_empty());
    assert_eq!(
        [reconciler.take_removed(), reconciler.take_removed()],
        [true, false]
    );
}

/// Lets a node with a quarantine of 20 minutes claim the block of its file again. Returns the file, and the quarantines that the
/// agent has written.
async fn claim_again() -> (PoolFile, Vec<Value>) {
    let recorded = Arc::new(Mutex::new(Vec::new()));
    let seen = recorded.clone();
    let (context, target, dir) = node_with(&["--quarantine", "20m"], move |uri, body| {
        if body["spec"].is_object() {
            seen.lock()
                .unwrap()
                .push(body["spec"]["quarantineSeconds"].clone());
            let mut block = serde_json::to_value(own_block()).unwrap();
            block["spec"] = body["spec"].clone();
            (200, block)
        } else if uri.contains("/ipblocks/") {
            refusal(404)
        } else {
            (200, json!({ "kind": "List", "metadata": {}, "items": [] }))
        }
    })
    .await;
    let mut file = file_of_earlier_boot(&context, target.accepted.as_ref().unwrap());
    file.blocks[0].state = BlockState::Draining;
    replace_file(&context, &file).await;
    with_store(dir.path(), |store| commit_lease(store, "c1", "10.1.0.3", false));
    let mut reconciler = BlockReconciler::new(context.clone());
    Box::pin(reconciler.reconcile(&target)).await.unwrap();
    let recorded = std::mem::take(&mut *recorded.lock().unwrap());
    (context.file().await.unwrap().unwrap(), recorded)
}

/// Another node may have had the block since the restored state of etcd.
#[tokio::test]
async fn addresses_of_a_block_that_is_claimed_again_are_probed() {
    let block = &claim_again().await.0.blocks[0];
    // The plugin probes addresses of blocks whose epoch is not the first.
    assert!(block.epoch > 1, "{block:?}");
}

/// The controller, and other agents, may have a shorter quarantine.
#[tokio::test]
async fn a_block_that_is_claimed_again_records_the_quarantine_of_its_agent() {
    let (_, recorded) = claim_again().await;
    assert!(
        !recorded.is_empty() && recorded.iter().all(|seconds| *seconds == json!(1200)),
        "{recorded:?}"
    );
}
