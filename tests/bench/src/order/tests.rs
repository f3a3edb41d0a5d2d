// SPDX-License-Identifier: Apache-2.0
use super::*;

#[test]
fn the_same_seed_repeats_an_order_and_another_seed_does_not() {
    let shuffled = |seed| Order::new(seed).interleave(&['a', 'b'], 50);
    assert_eq!(shuffled(7), shuffled(7));
    assert_ne!(shuffled(7), shuffled(8));
}

#[test]
fn each_kind_of_trial_appears_as_often_as_requested_and_interleaved() {
    let trials = Order::new(1).interleave(&['a', 'b'], 100);
    assert_eq!(trials.len(), 200);
    assert_eq!(trials.iter().filter(|&&kind| kind == 'a').count(), 100);
    let changes = trials.windows(2).filter(|pair| pair[0] != pair[1]).count();
    assert!(changes > 60, "{changes} changes of side in 200 trials");
}

#[test]
fn container_ids_have_64_digits_and_differ() {
    let mut order = Order::new(3);
    let (one, other) = (order.container_id(), order.container_id());
    assert_eq!(one.len(), 64);
    assert_ne!(one, other);
}
