// SPDX-License-Identifier: Apache-2.0
use super::*;

fn sets(numbers: std::ops::Range<usize>) -> BTreeSet<SetKey> {
    let name = |i| ("train".to_owned(), format!("db-{i:04}"));
    numbers.map(name).collect()
}

#[test]
fn every_stateful_set_has_its_turn_however_many_there_are() {
    let all = sets(0..3 * SETS_PER_ROUND - 1);
    let mut last = None;
    let mut checked = BTreeSet::new();
    for _ in 0..3 {
        let round = next_sets(&all, last.as_ref());
        assert_eq!(round.len(), SETS_PER_ROUND);
        last = round.last().cloned();
        checked.extend(round);
    }
    assert_eq!(checked, all);
}

#[test]
fn a_few_stateful_sets_are_checked_in_each_round() {
    let all = sets(0..3);
    let gone = ("train".to_owned(), "db-0001-gone".to_owned());
    for last in [None, all.first(), all.last(), Some(&gone)] {
        let round: BTreeSet<SetKey> = next_sets(&all, last).into_iter().collect();
        assert_eq!(round, all);
    }
    assert!(next_sets(&BTreeSet::new(), None).is_empty());
}
