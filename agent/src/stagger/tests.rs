// SPDX-License-Identifier: Apache-2.0
use super::*;

#[test]
fn the_nodes_of_a_large_cluster_write_one_after_another() {
    let latest = delay(10_000, 200.0, 1.0).as_secs_f64();
    assert!((latest - 50.0).abs() < 1.0, "{latest}");
    let delays: Vec<Duration> = (0..100)
        .map(|i| delay(10_000, 200.0, f64::from(i) / 100.0))
        .collect();
    assert!(delays.is_sorted() && delays[0] < delays[50] && delays[50] < delays[99]);
}

#[test]
fn the_nodes_of_a_small_cluster_write_at_once() {
    assert_eq!(delay(99, 100.0, 1.0), Duration::ZERO);
    assert_ne!(delay(100, 100.0, 1.0), Duration::ZERO);
}
