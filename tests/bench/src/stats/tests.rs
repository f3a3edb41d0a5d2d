// SPDX-License-Identifier: Apache-2.0
use super::*;

fn cost(millis: u64) -> Cost {
    Cost {
        wall: Duration::from_millis(millis),
        cpu: Duration::from_millis(2 * millis),
        peak_kib: 100 * millis,
        minor_faults: 10 * millis,
    }
}

#[test]
fn a_summary_contains_measured_values_for_samples_in_any_order() {
    let costs: Vec<Cost> = (1..=100).rev().map(cost).collect();
    let expected = Summary {
        samples: 100,
        median: Duration::from_millis(50),
        p95: Duration::from_millis(95),
        min: Duration::from_millis(1),
        cpu: Duration::from_millis(100),
        peak_kib: 10_000,
        minor_faults: 500,
    };
    assert_eq!(Summary::of(&costs), Some(expected));
}

#[test]
fn one_sample_is_its_own_summary() {
    let summary = Summary::of(&[cost(4)]).unwrap();
    assert_eq!(
        (summary.median, summary.p95, summary.min),
        (cost(4).wall, cost(4).wall, cost(4).wall)
    );
}

#[test]
fn the_peak_is_the_largest_sample_and_never_an_average() {
    assert_eq!(Summary::of(&[cost(1), cost(1), cost(9)]).unwrap().peak_kib, 900);
}

#[test]
fn an_empty_list_of_samples_has_no_summary() {
    assert_eq!(Summary::of(&[]), None);
}
