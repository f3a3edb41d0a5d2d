// SPDX-License-Identifier: Apache-2.0
use crate::claim::{Order, seed};
use proptest::prelude::*;
use std::collections::BTreeSet;

proptest! {
    #[test]
    fn an_order_has_every_number_once(size in 0_u128..3000, seed in any::<u64>()) {
        let order = Order::new(size, seed);
        let all: BTreeSet<u128> = (0..size).filter_map(|position| order.at(position)).collect();
        prop_assert_eq!(all, (0..size).collect::<BTreeSet<_>>());
        prop_assert_eq!(order.at(size), None);
    }

    #[test]
    fn an_order_of_any_size_stays_below_it(size in 1_u128.., seed in any::<u64>(), position in any::<u128>()) {
        let order = Order::new(size, seed);
        prop_assert!(order.at(position % size).is_some_and(|number| number < size));
    }
}

#[test]
fn nodes_that_start_together_rarely_want_the_same_block() {
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
fn another_attempt_and_another_pool_have_another_order() {
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
