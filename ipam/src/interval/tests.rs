// SPDX-License-Identifier: Apache-2.0
use super::*;
use proptest::prelude::*;
use std::collections::BTreeSet;

/// The offset of a test's small numbers: at the start, in the middle, or at the end of all numbers.
const BASES: [u128; 3] = [0, 1 << 100, u128::MAX - 255];

fn set(base: u128, pairs: &[(u8, u8)]) -> IntervalSet {
    pairs
        .iter()
        .filter_map(|(a, b)| Interval::new(base + u128::from(*a), base + u128::from(*b)))
        .collect()
}

fn oracle(base: u128, pairs: &[(u8, u8)]) -> BTreeSet<u128> {
    pairs
        .iter()
        .flat_map(|(a, b)| (*a..=*b).map(|n| base + u128::from(n)))
        .collect()
}

fn pairs() -> impl Strategy<Value = Vec<(u8, u8)>> {
    prop::collection::vec(
        (any::<u8>(), 0_u8..20).prop_map(|(a, length)| (a, a.saturating_add(length))),
        0..12,
    )
}

proptest! {
    #[test]
    fn a_window_shows_the_members_that_lie_in_it(base in prop::sample::select(&BASES[..]), pairs in pairs(), a in any::<u8>(), b in any::<u8>()) {
        let (a, b) = (a.min(b), a.max(b));
        let window = Interval::new(base + u128::from(a), base + u128::from(b)).unwrap();
        let inside = set(base, &pairs).within(window);
        let all = oracle(base, &pairs);
        let expected: IntervalSet = all.into_iter().filter(|n| window.contains(*n)).map(|n| Interval { first: n, last: n }).collect();
        prop_assert_eq!(inside, expected);
    }

    #[test]
    fn a_set_has_the_members_a_list_of_numbers_has(base in prop::sample::select(&BASES[..]), pairs in pairs()) {
        let (set, oracle) = (set(base, &pairs), oracle(base, &pairs));
        prop_assert_eq!(set.count(), oracle.len() as u128);
        prop_assert_eq!(set.is_empty(), oracle.is_empty());
        for n in (0..=255).map(|n| base + n) {
            prop_assert_eq!(set.contains(n), oracle.contains(&n), "{}", n);
            prop_assert_eq!(set.first_from(n), oracle.range(n..).next().copied(), "{}", n);
        }
    }

    #[test]
    fn intervals_stay_sorted_with_gaps_between(base in prop::sample::select(&BASES[..]), pairs in pairs()) {
        let set = set(base, &pairs);
        prop_assert!(set.0.windows(2).all(|w| w[0].last < w[1].first - 1), "{:?}", set);
        prop_assert!(set.0.iter().all(|i| i.first <= i.last), "{:?}", set);
    }

    #[test]
    fn minus_takes_away_what_a_list_of_numbers_loses(
        base in prop::sample::select(&BASES[..]), whole in pairs(), gaps in pairs()
    ) {
        let rest = set(base, &whole).minus(&set(base, &gaps));
        let oracle: BTreeSet<u128> = oracle(base, &whole).difference(&oracle(base, &gaps)).copied().collect();
        prop_assert!(rest.0.windows(2).all(|w| w[0].last < w[1].first - 1), "{:?}", rest);
        let members: BTreeSet<u128> = (0..=255).map(|n| base + n).filter(|n| rest.contains(*n)).collect();
        prop_assert_eq!(members, oracle);
    }

    #[test]
    fn both_keeps_what_two_lists_of_numbers_share(
        base in prop::sample::select(&BASES[..]), one in pairs(), other in pairs()
    ) {
        let shared = set(base, &one).both(&set(base, &other));
        let oracle: BTreeSet<u128> = oracle(base, &one).intersection(&oracle(base, &other)).copied().collect();
        let members: BTreeSet<u128> = (0..=255).map(|n| base + n).filter(|n| shared.contains(*n)).collect();
        prop_assert_eq!(members, oracle);
    }
}

#[test]
fn the_whole_of_ipv6_can_be_counted_and_split() {
    let all: IntervalSet = Interval::new(0, u128::MAX).into_iter().collect();
    assert_eq!(all.count(), u128::MAX);
    assert_eq!(all.minus(&all), IntervalSet::default());
    let half: IntervalSet = Interval::new(0, u128::MAX / 2).into_iter().collect();
    assert_eq!(all.minus(&half).first_from(0), Some(u128::MAX / 2 + 1));
    assert_eq!(all.minus(&half).count(), 1 << 127);
}

#[test]
fn a_million_single_numbers_are_one_set() {
    let odd: IntervalSet = (0..1_000_000_u128)
        .map(|n| Interval {
            first: 2 * n + 1,
            last: 2 * n + 1,
        })
        .collect();
    let all: IntervalSet = Interval::new(0, 2_000_000).into_iter().collect();
    let even = all.minus(&odd);
    assert_eq!(even.count(), 1_000_001);
    assert_eq!(even.first_from(1_999_999), Some(2_000_000));
}
