// SPDX-License-Identifier: Apache-2.0
//! Which blocks a node returns.

use super::super::allocatable::free_local;
use super::super::testing::{file_of_earlier_boot, refusal, registered_node};
use super::*;
use block::Usage;
use ipam::range::Family;
use std::collections::BTreeMap;

fn spare(name: &str, free: u64) -> Spare<'_> {
    Spare {
        name,
        free,
        rested: true,
    }
}

#[test]
fn a_node_returns_only_blocks_that_leave_it_enough_free_addresses() {
    let blocks = [spare("a", 16), spare("b", 16), spare("c", 16)];
    assert_eq!(without(&blocks, 16), ["a", "b"]);
    assert_eq!(without(&blocks, 17), ["a"]);
    assert_eq!(without(&blocks, 33), [""; 0]);
    assert_eq!(without(&blocks, 0), ["a", "b", "c"]);
}

#[test]
fn a_block_in_use_is_kept_and_its_free_addresses_count() {
    let in_use = Spare {
        rested: false,
        ..spare("a", 10)
    };
    let blocks = [in_use, spare("b", 16), spare("c", 16)];
    assert_eq!(without(&blocks, 10), ["b", "c"]);
    assert_eq!(without(&blocks, 11), ["b"]);
}

/// Otherwise the node would return a block and then claim one, again and again.
#[tokio::test]
async fn a_node_keeps_a_block_that_it_would_claim_again_for_its_free_addresses() {
    let (context, target, _dir) = registered_node(|_| refusal(404)).await;
    let accepted = target.accepted.as_ref().unwrap();
    let mut file = file_of_earlier_boot(&context, accepted);
    let cidr = BlockCidr::of("10.1.0.16/28".parse().unwrap()).unwrap();
    let mut second = file.blocks[0].clone();
    (second.name, second.cidr) = (cidr.name("default"), cidr.network());
    file.blocks.push(second);
    let usage: BTreeMap<String, Usage> = file
        .blocks
        .iter()
        .map(|block| (block.name.clone(), Usage::default()))
        .collect();
    let wanted = accepted.free_target(Family::V4);
    for reserved in [Vec::new(), vec!["10.1.0.16-10.1.0.24".to_owned()]] {
        file.reserved = reserved;
        let surplus = IdleBlocks::default().surplus(
            Duration::ZERO,
            &target,
            Some(&file),
            &Allocatable::of(Some(&file), &usage),
        );
        assert_eq!(surplus.len(), 1, "{surplus:?}");
        let mut left = usage.clone();
        left.retain(|name, _| !surplus.contains(name));
        let mut kept = file.clone();
        kept.blocks.retain(|block| left.contains_key(&block.name));
        assert!(free_local(accepted, Family::V4, Some(&kept), &left) >= wanted);
    }
}
