// SPDX-License-Identifier: Apache-2.0
use crate::claim::{Order, seed, tries};
use proptest::prelude::*;
use std::collections::BTreeSet;

proptest! {
    #[test]
    fn a_claim_order_contains_each_number_once(size in 0_u128..3000, seed in any::<u64>()) {
        let order = Order::new(size, seed);
        let all: BTreeSet<u128> = (0..size).filter_map(|position| order.at(position)).collect();
        prop_assert_eq!(all, (0..size).collect::<BTreeSet<_>>());
        prop_assert_eq!(order.at(size), None);
    }

    #[test]
    fn a_claim_order_stays_below_its_size(size in 1_u128.., seed in any::<u64>(), position in any::<u128>()) {
        let order = Order::new(size, seed);
        prop_assert!(order.at(position % size).is_some_and(|number| number < size));
    }
}

#[test]
fn nodes_that_start_together_rarely_try_the_same_block() {
    let first = |node: u32| {
        Order::new(10_000, seed(&format!("uid-{node}"), "rail0", 0))
            .at(0)
            .unwrap()
    };
    let wanted: BTreeSet<u128> = (0..1000).map(first).collect();
    // Of 1000 draws out of 10,000, about 952 are different; 900 is ten standard deviations away.
    assert!(wanted.len() > 900, "{}", wanted.len());
}

#[test]
fn each_attempt_and_each_pool_has_its_own_claim_order() {
    let order = |pool, attempt| {
        let order = Order::new(10_000, seed("uid", pool, attempt));
        (0..20)
            .map(|position| order.at(position).unwrap())
            .collect::<Vec<_>>()
    };
    assert_ne!(order("rail0", 0), order("rail0", 1));
    assert_ne!(order("rail0", 0), order("rail1", 0));
    assert_eq!(order("rail0", 0), order("rail0", 0));
}

#[test]
fn a_claim_tries_more_blocks_while_tries_cost_less_than_a_list() {
    // With so few blocks, a list is one page.
    assert_eq!(tries(64, 60, 64), 8);
    // In a pool that is at most half full, eight tries are enough.
    assert_eq!(tries(8192, 4096, 20_000), 8);
    assert_eq!(tries(8192, 0, 20_000), 8);
    assert_eq!(tries(8192, 7372, 20_000), 27);
    assert_eq!(tries(8192, 8110, 100_000), 256);
    for (claimed, all) in [(8110, 20_000), (8190, 100_000)] {
        assert_eq!(tries(8192, claimed, all), 8, "a search costs more than a list");
    }
    assert_eq!(tries(8192, 8192, 20_000), 8, "nothing is left to find");
    assert_eq!(tries(8192, 9000, 20_000), 8, "a wrong counter");
    assert_eq!(tries(u128::MAX, 1_000_000, 1_000_000), 8);
}

/// With the number of tries that [`tries`] returns, nineteen of twenty claims need no list.
#[test]
fn nineteen_of_twenty_claims_find_a_free_block_without_a_list() {
    let (blocks, free) = (8192_u128, 200_u128);
    let most = tries(blocks, blocks - free, 100_000);
    assert!(most < 256);
    let found = |node: &u64| {
        let order = Order::new(blocks, seed(&format!("node-{node}"), "pool", 1));
        // The order looks random, so any set of free blocks gives the same result.
        (0..most)
            .filter_map(|position| order.at(position))
            .any(|index| index < free)
    };
    let found = (0..1000_u64).filter(found).count();
    assert!(found > 920, "{found} of 1000");
}
