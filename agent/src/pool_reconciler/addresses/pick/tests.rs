// SPDX-License-Identifier: Apache-2.0

use super::*;
use ipam::interval::Interval;

fn addresses(count: u128) -> IntervalSet {
    let all = Interval {
        first: 0x0a00_0001,
        last: 0x0a00_0000 + count,
    };
    [all].into_iter().collect()
}

#[test]
fn a_pool_that_was_found_full_is_not_searched_again_at_once() {
    let (all, now) = (addresses(6), Instant::now());
    let mut exhausted = Exhausted::default();
    assert!(!exhausted.is_known(Family::V4, &all, now));
    exhausted.note(Family::V4, &all, now, 0.0);
    assert!(exhausted.is_known(Family::V4, &all, now));
    assert!(!exhausted.is_known(Family::V6, &all, now));
    assert!(!exhausted.is_known(Family::V4, &all, now + FULL.0 * 2));
}

#[test]
fn a_pool_that_stays_full_is_searched_less_and_less_often() {
    let (all, mut now) = (addresses(6), Instant::now());
    let mut exhausted = Exhausted::default();
    let mut pauses = Vec::new();
    for _ in 0..8 {
        exhausted.note(Family::V4, &all, now, 0.5);
        let until = exhausted.0[&Family::V4].until;
        pauses.push(until - now);
        now = until;
    }
    assert!(pauses.is_sorted() && pauses[0] == FULL.0, "{pauses:?}");
    assert_eq!(pauses.last(), Some(&FULL.1));
}

#[test]
fn a_full_pool_is_searched_at_once_after_an_edit_or_a_release() {
    let (all, now) = (addresses(6), Instant::now());
    let mut exhausted = Exhausted::default();
    exhausted.note(Family::V4, &all, now, 0.0);
    assert!(!exhausted.is_known(Family::V4, &addresses(7), now));
    exhausted.clear();
    assert!(!exhausted.is_known(Family::V4, &all, now));
}
