// SPDX-License-Identifier: Apache-2.0
//! Backoff of agents whose requests fail at the same time.

use super::*;

const TICK: Duration = Duration::from_secs(2);

#[test]
fn a_successful_round_is_followed_by_the_next_after_one_tick() {
    let mut backoff = Backoff::new(TICK);
    assert_eq!(backoff.after(Round::Succeeded, 0.7), TICK);
    backoff.after(Round::Failed, 1.0);
    assert_eq!(backoff.after(Round::Succeeded, 0.7), TICK);
}

#[test]
fn pauses_after_repeated_failures_grow_up_to_half_a_minute() {
    let mut backoff = Backoff::new(TICK);
    let pauses: Vec<u64> = (0..70)
        .map(|_| backoff.after(Round::Failed, 0.5).as_secs())
        .collect();
    assert_eq!(pauses[..5], [4, 8, 16, 30, 30]);
    assert_eq!(pauses[69], 30);
}

#[test]
fn a_hundred_agents_that_fail_together_retry_one_after_another() {
    let mut pauses: Vec<Duration> = (0..100)
        .map(|i| Backoff::new(TICK).after(Round::Failed, f64::from(i) / 100.0))
        .collect();
    pauses.dedup();
    assert_eq!(pauses.len(), 100);
    assert!(pauses[0] >= TICK && pauses[99] < TICK * 3);
}

#[test]
fn a_change_ends_a_pause_but_not_after_a_failed_round() {
    let mut backoff = Backoff::new(TICK);
    assert!(backoff.may_wake());
    backoff.after(Round::Failed, 0.5);
    assert!(!backoff.may_wake());
    backoff.after(Round::Succeeded, 0.5);
    assert!(backoff.may_wake());
}

/// One refused object must not delay the work for others, such as a block that another process has just orphaned.
#[test]
fn a_change_ends_a_pause_after_a_refusal() {
    let mut backoff = Backoff::new(TICK);
    assert_eq!(backoff.after(Round::Refused, 0.5), TICK * 2);
    assert_eq!(backoff.after(Round::Refused, 0.5), TICK * 4);
    assert!(backoff.may_wake());
    backoff.after(Round::Failed, 0.5);
    assert!(!backoff.may_wake());
}

#[test]
fn a_round_cut_short_for_a_plugin_runs_again_soon() {
    let mut backoff = Backoff::new(TICK);
    assert_eq!(backoff.after(Round::Interrupted, 0.5), INTERRUPTED_PAUSE);
    assert!(backoff.may_wake());
    assert_eq!(
        Backoff::new(Duration::from_millis(200))
            .after(Round::Interrupted, 0.5)
            .as_millis(),
        200
    );
}

#[test]
fn a_round_cut_short_for_a_plugin_does_not_change_the_failure_count() {
    let mut backoff = Backoff::new(TICK);
    assert_eq!(backoff.after(Round::Failed, 0.5).as_secs(), 4);
    assert_eq!(backoff.after(Round::Interrupted, 0.5).as_secs(), 4);
    assert!(!backoff.may_wake());
    assert_eq!(backoff.after(Round::Failed, 0.5).as_secs(), 8);
}
