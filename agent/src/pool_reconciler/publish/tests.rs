// SPDX-License-Identifier: Apache-2.0
//! The match of objects and leases.

use super::super::testing::{
    block_address, damage_lease, file_of_earlier_boot, registered_node, replace_file,
};
use super::*;
use common::cni::{CniResult, ContainerId, IfName};
use ipam::config::Space;
use ipam::store::Sandbox;
use std::time::Duration;

const IP: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(10, 0, 0, 9));

fn lease(inode: u64, api: Vec<IpAddr>) -> StoredLease {
    StoredLease {
        lease: Lease {
            owner: Attachment {
                container_id: ContainerId::try_from("c1".to_owned()).unwrap(),
                ifname: IfName::try_from("net1".to_owned()).unwrap(),
            },
            network: "rail0".to_owned(),
            sandbox: Sandbox::default(),
            api,
            space: Space::default(),
            since: String::new(),
            since_boot: Duration::ZERO,
            result: CniResult::default(),
        },
        inode,
    }
}

#[test]
fn an_existing_address_object_belongs_to_no_lease_until_it_is_renewed() {
    let mut published = Published::default();
    assert!(!published.has(IP, &lease(1, Vec::new())));
    published.note(IP, &lease(1, Vec::new()));
    assert!(published.has(IP, &lease(1, Vec::new())));
}

#[test]
fn the_object_of_an_earlier_lease_does_not_belong_to_the_next_lease() {
    let mut published = Published::default();
    published.note(IP, &lease(1, Vec::new()));
    assert!(!published.has(IP, &lease(2, Vec::new())));
}

#[test]
fn a_lease_allocated_through_the_api_server_has_an_address_object() {
    assert!(Published::default().has(IP, &lease(1, vec![IP])));
}

/// What a publisher finds in the block 10.1.0.0/28 with a lease that cannot be read, and in the rest of the pool.
#[tokio::test]
async fn an_address_without_a_readable_lease_counts_as_one_without_an_object() {
    let none = serde_json::json!({ "kind": "List", "metadata": {}, "items": [] });
    let (context, target, dir) = registered_node(move |_| (200, none.clone())).await;
    let accepted = target.accepted.clone().unwrap();
    replace_file(&context, &file_of_earlier_boot(&context, &accepted)).await;
    let block = BlockCidr::of("10.1.0.0/28".parse().unwrap());
    let all: IntervalSet = block.map(BlockCidr::interval).into_iter().collect();
    let mut publisher = Publisher::new(context.clone());
    assert!(publisher.can_publish(block).await.unwrap());

    // 10.1.0.40 is in no block of this node.
    damage_lease(&context, &dir, "10.1.0.3").await;
    block_address(&dir, "10.1.0.40");
    assert_eq!(publisher.unpublished(&target.api, block).await.unwrap(), 1);
    assert!(!publisher.can_publish(block).await.unwrap());
    let damaged = Some(Obstacle::Unattributed("10.1.0.3".parse().unwrap()));
    let obstacle = publisher.publish_leases(&target, &accepted, &all).await;
    assert_eq!(obstacle.unwrap(), damaged, "a reservation is not noted");
    assert!(publisher.uncovered().await.unwrap().unattributed.is_empty());
    replace_file(&context, &accepted_without_blocks(&context, &accepted)).await;
    let uncovered = publisher.uncovered().await.unwrap();
    assert_eq!(uncovered.unattributed, ["10.1.0.3".parse::<IpAddr>().unwrap()]);
}

/// The file of [`file_of_earlier_boot`] after the block was shared or lost.
fn accepted_without_blocks(context: &PoolContext, accepted: &AcceptedPool) -> ipam::pool::PoolFile {
    ipam::pool::PoolFile {
        blocks: Vec::new(),
        ..file_of_earlier_boot(context, accepted)
    }
}

#[tokio::test]
async fn a_blocked_address_is_not_shared_but_may_become_reserved() {
    let none = serde_json::json!({ "kind": "List", "metadata": {}, "items": [] });
    let (context, target, dir) = registered_node(move |_| (200, none.clone())).await;
    let accepted = target.accepted.clone().unwrap();
    replace_file(&context, &file_of_earlier_boot(&context, &accepted)).await;
    block_address(&dir, "10.1.0.5");
    let block = BlockCidr::of("10.1.0.0/28".parse().unwrap());
    let all: IntervalSet = block.map(BlockCidr::interval).into_iter().collect();
    let mut publisher = Publisher::new(context);
    assert!(!publisher.can_publish(block).await.unwrap());
    let obstacle = publisher.publish_leases(&target, &accepted, &all).await;
    assert_eq!(obstacle.unwrap(), None);
}
