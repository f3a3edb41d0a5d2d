// SPDX-License-Identifier: Apache-2.0
//! When a suspicion begins and ends.

use super::*;

const SECOND: Duration = Duration::from_secs(1);

#[test]
fn a_suspicion_grows_while_each_round_confirms_it() {
    let (mut suspects, start) = (Suspects::default(), Instant::now());
    for round in 0..4 {
        suspects.begin_round();
        assert_eq!(suspects.observe(&"a", start + SECOND * round), SECOND * round);
    }
}

#[test]
fn a_suspicion_ends_with_a_round_that_does_not_confirm_it() {
    let (mut suspects, start) = (Suspects::default(), Instant::now());
    suspects.begin_round();
    suspects.observe(&"a", start);
    suspects.observe(&"b", start);
    suspects.begin_round();
    suspects.observe(&"b", start + SECOND);
    suspects.begin_round();
    assert_eq!(suspects.observe(&"a", start + SECOND * 2), Duration::ZERO);
    assert_eq!(suspects.observe(&"b", start + SECOND * 2), SECOND * 2);
    suspects.begin_round();
    suspects.begin_round();
    assert!(suspects.is_empty());
}

#[test]
fn a_reason_is_news_once_for_each_suspicion() {
    let mut suspects = Suspects::default();
    suspects.begin_round();
    suspects.observe(&"a", Instant::now());
    assert!(suspects.is_news(&"a", "the link did not return"));
    assert!(!suspects.is_news(&"a", "the link did not return"));
    assert!(suspects.is_news(&"a", "another call works on it"));
    suspects.begin_round();
    suspects.begin_round();
    suspects.observe(&"a", Instant::now());
    assert!(suspects.is_news(&"a", "another call works on it"));
}
