// SPDX-License-Identifier: Apache-2.0
//! The match of objects and leases.

use super::super::testing::{
    damage_lease, file_of_earlier_boot, registered_node, replace_file, touch_address,
};
use super::*;
use common::cni::{CniResult, ContainerId, IfName};
use ipam::config::Space;
use ipam::store::Sandbox;
use std::time::Duration;
use tempfile::TempDir;

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

/// A publisher of a node with the block 10.1.0.0/28, and the addresses of the block. No object exists.
async fn publisher() -> (Publisher, Target, TempDir, IntervalSet) {
    let none = serde_json::json!({ "kind": "List", "metadata": {}, "items": [] });
    let (context, target, dir) = registered_node(move |_| (200, none.clone())).await;
    let file = file_of_earlier_boot(&context, target.accepted.as_ref().unwrap());
    replace_file(&context, &file).await;
    let block = BlockCidr::of("10.1.0.0/28".parse().unwrap());
    let all = block.map(BlockCidr::interval).into_iter().collect();
    (Publisher::new(context), target, dir, all)
}

#[tokio::test]
async fn an_address_without_a_readable_lease_counts_as_one_without_an_object() {
    let (mut publisher, target, dir, all) = publisher().await;
    let block = BlockCidr::of("10.1.0.0/28".parse().unwrap());
    assert!(publisher.can_share(block).await.unwrap());
    assert!(publisher.can_reserve(&all).await.unwrap());

    damage_lease(&publisher.context, &dir, "10.1.0.3").await;
    // In no block of this node.
    touch_address(&dir, "10.1.0.40");
    assert_eq!(publisher.unpublished(&target.api, block).await.unwrap(), 1);
    assert!(!publisher.can_share(block).await.unwrap());
    assert!(!publisher.can_reserve(&all).await.unwrap());
}

#[tokio::test]
async fn an_unreadable_lease_needs_an_object_if_it_is_reserved_or_in_no_block_of_the_node() {
    let (mut publisher, target, dir, _) = publisher().await;
    damage_lease(&publisher.context, &dir, "10.1.0.3").await;
    touch_address(&dir, "10.1.0.40");
    let ip: IpAddr = "10.1.0.3".parse().unwrap();
    let context = publisher.context.clone();
    let own = file_of_earlier_boot(&context, target.accepted.as_ref().unwrap());
    let (mut reserved, mut lost) = (own.clone(), own);
    reserved.reserved = vec![ip.to_string()];
    lost.blocks.clear();
    assert!(publisher.uncovered().await.unwrap().unattributed.is_empty());
    for file in [reserved, lost] {
        replace_file(&context, &file).await;
        assert_eq!(publisher.uncovered().await.unwrap().unattributed, [ip]);
    }
}

#[tokio::test]
async fn a_blocked_address_is_not_shared_but_may_become_reserved() {
    let (mut publisher, _, dir, all) = publisher().await;
    touch_address(&dir, "10.1.0.5");
    let block = BlockCidr::of("10.1.0.0/28".parse().unwrap());
    assert!(!publisher.can_share(block).await.unwrap());
    assert!(publisher.can_reserve(&all).await.unwrap());
}
