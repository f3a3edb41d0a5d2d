// SPDX-License-Identifier: Apache-2.0
//! Which owners are asked to share a block, and the end of a shared block.

use super::super::tests::{caches, in_force, leader, leader_of, recording_clients};
use super::*;
use api::IpPool;
use api::block_layout::address_name;
use api::testing::{accepted_pool, pool};
use serde_json::json;

/// A block of node a, whose report shows `free` addresses.
fn block(free: u64) -> IpBlock {
    let block = json!({
        "metadata": { "name": "default-4-0a4f0008-30" },
        "spec": {
            "pool": "small", "cidr": "10.79.0.8/30", "state": "Active", "epoch": 1, "quarantineSeconds": 600,
            "owner": { "node": "a", "nodeUID": "a" },
        },
        "status": { "used": 4 - free, "free": free },
    });
    serde_json::from_value(block).unwrap()
}

#[test]
fn an_owner_without_a_free_address_is_asked_again_once_it_has_one() {
    let mut requests = ShareRequests::default();
    requests.blocks.insert(block(4).name_any(), Instant::now());
    let timeout = Duration::from_secs(60);
    let asked = requests.candidate(&block(4), &[]);
    assert!(asked.is_awaited(timeout));
    assert_eq!(batch::next(&[asked], None, timeout), Vec::<&Candidate>::new());
    // Pods of the owner took all addresses before it could share the block. Later, one of them was deleted.
    let declined = requests.candidate(&block(0), &[block(0).name_any()]);
    assert_eq!(batch::next(&[declined], None, timeout), Vec::<&Candidate>::new());
    let freed = requests.candidate(&block(1), &[]);
    assert_eq!(batch::next(std::slice::from_ref(&freed), None, timeout), [&freed]);
}

fn shared(pool: &str) -> IpBlock {
    let mut shared = block(4);
    shared.spec.pool = pool.to_owned();
    shared.spec.state = BlockState::Shared;
    shared.metadata.resource_version = Some("5".to_owned());
    shared
}

/// The writes of a round with a shared block that has been empty for longer than the cooldown of its pool. The API server answers a
/// write of the address space with `code`.
async fn writes_for_an_empty_block(code: u16) -> Vec<String> {
    let (clients, writes) = recording_clients(code);
    let (mut leader, _supervisor) = leader(clients);
    let shared = shared("rail0");
    leader.caches = Some(caches(vec![shared.clone()]));
    let since = Instant::now().checked_sub(Duration::from_secs(60));
    leader.empty.insert(shared.name_any(), since.unwrap());
    let accepted = accepted_pool(
        "rail0",
        &json!({ "ranges": [{ "subnet": "10.79.0.0/24" }], "blockSize": { "v4": 4 }, "cooldownSeconds": 0 }),
    );
    let blocks = [Arc::new(shared)];
    leader
        .reconcile_shared(&accepted.unwrap(), &blocks)
        .await
        .unwrap();
    std::mem::take(&mut writes.lock().unwrap())
}

/// A machine whose address was freed may still use it.
#[tokio::test]
async fn a_shared_block_is_freed_only_after_its_address_space_requests_probes() {
    let written = writes_for_an_empty_block(200).await;
    assert_eq!(written, ["PATCH addressspaces", "DELETE ipblocks"]);
    assert_eq!(writes_for_an_empty_block(409).await, ["PATCH addressspaces"]);
}

/// The writes of a round with a shared block whose pool is one of `pools` or gone. It has been empty for this time; `held` is an
/// address of it that has an object.
async fn writes_for_a_lost_block(pools: Vec<IpPool>, empty: Duration, held: Option<&str>) -> Vec<String> {
    let (clients, writes) = recording_clients(200);
    let (mut leader, _supervisor) = leader_of(clients, pools);
    leader.caches = Some(caches(vec![shared("rail0")]));
    leader
        .empty
        .insert(block(4).name_any(), Instant::now().checked_sub(empty).unwrap());
    let object = |ip: &str| {
        let object = json!({
            "metadata": { "name": address_name("default", ip.parse().unwrap()) },
            "spec": {
                "pool": "rail0", "address": ip, "block": "10.79.0.8/30", "state": "Bound",
                "node": { "node": "a", "nodeUID": "a" }, "containerID": "c", "interface": "net1", "network": "n",
            },
        });
        Arc::new(serde_json::from_value(object).unwrap())
    };
    leader.addresses = held.map(object).into_iter().collect();
    leader.reconcile_lost_shared().await.unwrap();
    std::mem::take(&mut writes.lock().unwrap())
}

/// No owner returns such a block, and a new pool with other blocks would stay in conflict with it.
#[tokio::test]
async fn the_shared_block_of_a_lost_pool_is_freed_a_quarantine_after_its_last_address() {
    const LONG: Duration = Duration::from_secs(660);
    let spec = json!({ "ranges": [{ "subnet": "10.79.0.0/24" }], "blockSize": { "v4": 16 } });
    let in_conflict = pool("rail0", &spec);
    let accepted = in_force("rail0", &spec);

    let freed = ["PATCH addressspaces", "DELETE ipblocks"];
    assert_eq!(writes_for_a_lost_block(vec![], LONG, None).await, freed);
    assert_eq!(
        writes_for_a_lost_block(vec![in_conflict], LONG, None).await,
        freed
    );
    let mut elsewhere = accepted.clone();
    elsewhere
        .status
        .as_mut()
        .and_then(|status| status.accepted.as_mut())
        .unwrap()
        .address_space = "other".to_owned();
    assert_eq!(writes_for_a_lost_block(vec![elsewhere], LONG, None).await, freed);
    let none = Vec::<String>::new();
    assert_eq!(writes_for_a_lost_block(vec![accepted], LONG, None).await, none);
    assert_eq!(
        writes_for_a_lost_block(vec![], LONG, Some("10.79.0.9")).await,
        none
    );
    let short = Duration::from_secs(60);
    assert_eq!(writes_for_a_lost_block(vec![], short, None).await, none);
}
