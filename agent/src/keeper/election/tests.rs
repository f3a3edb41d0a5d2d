// SPDX-License-Identifier: Apache-2.0
//! How often candidates look, and whom they take for dead.

use super::*;

#[test]
fn ten_thousand_candidates_together_look_twenty_times_a_second() {
    let looks: f64 = (0..10_000_u32)
        .map(|i| 1.0 / pause(Found::Kept, 10_000, f64::from(i) / 10_000.0).as_secs_f64())
        .sum();
    assert!((20.0..25.0).contains(&looks), "{looks} a second");
}

#[test]
fn a_few_candidates_look_more_often_than_a_keeper_may_be_silent() {
    for chance in [0.0, 0.5, 1.0] {
        assert!(pause(Found::Kept, 3, chance) < DURATION);
    }
    assert_eq!(pause(Found::Kept, u64::MAX, 0.5), SELDOM);
}

/// Three hundred of ten thousand look while a keeper is silent for so long.
#[test]
fn those_that_find_a_lease_old_come_for_it_one_after_another_and_the_first_one_soon() {
    let mut comes: Vec<Duration> = (1..=300)
        .map(|i| pause(Found::Old(DURATION), 10_000, f64::from(i) / 300.0))
        .collect();
    assert!(comes[0] < DURATION + DURATION / 3);
    comes.dedup_by_key(|comes| comes.as_secs());
    assert_eq!(comes.len(), 300);
    assert_eq!(pause(Found::Old(DURATION), 3, 1.0), DURATION);
}

fn of(holder: &str, version: &str, silent: Duration) -> Lease {
    let renewed = Timestamp::now() - silent;
    Lease {
        metadata: ObjectMeta {
            resource_version: Some(version.to_owned()),
            ..ObjectMeta::default()
        },
        spec: Some(LeaseSpec {
            holder_identity: Some(holder.to_owned()),
            renew_time: Some(MicroTime(renewed)),
            ..LeaseSpec::default()
        }),
    }
}

#[test]
fn a_silent_keeper_is_looked_at_again_soon_and_replaced_only_if_its_lease_has_not_changed() {
    let mut me = Eye {
        me: "me".to_owned(),
        seen: None,
        nodes: 0,
    };
    assert_eq!(me.find(&of("other", "1", Duration::from_secs(1))), Found::Kept);
    assert_eq!(
        me.find(&of("other", "2", DURATION)),
        Found::Old(DURATION),
        "by its clock it is late"
    );
    assert!(
        matches!(me.find(&of("other", "2", DURATION)), Found::Old(left) if left < DURATION),
        "for a moment only"
    );
    me.seen = me
        .seen
        .map(|(version, since)| (version, since.checked_sub(DURATION).unwrap()));
    assert_eq!(
        me.find(&of("other", "3", DURATION)),
        Found::Old(DURATION),
        "it lives, with another clock"
    );
    me.seen = me
        .seen
        .map(|(version, since)| (version, since.checked_sub(DURATION).unwrap()));
    assert_eq!(me.find(&of("other", "3", DURATION)), Found::Mine);
    assert_eq!(
        me.find(&of("", "4", Duration::ZERO)),
        Found::Mine,
        "it has resigned"
    );
    assert_eq!(
        me.find(&of("me", "5", Duration::ZERO)),
        Found::Mine,
        "of this agent's life before"
    );
}

#[test]
fn a_candidate_reads_on_the_lease_how_many_there_are() {
    let mut me = Eye {
        me: "me".to_owned(),
        seen: None,
        nodes: 0,
    };
    let mut lease = of("other", "1", Duration::ZERO);
    me.find(&lease);
    assert_eq!(me.nodes, 0);
    lease.metadata.annotations = Some([(NODES.to_owned(), "10000".to_owned())].into());
    me.find(&lease);
    assert_eq!(me.nodes, 10_000);
    lease.metadata.annotations = None;
    me.find(&lease);
    assert_eq!(me.nodes, 10_000, "an older agent has written over it");
}

/// It counts the nodes itself, and has written the older number.
#[test]
fn a_keeper_does_not_believe_what_it_has_written_itself() {
    let mut me = Eye {
        me: "me".to_owned(),
        seen: None,
        nodes: 300,
    };
    let mut lease = of("me", "1", Duration::ZERO);
    lease.metadata.annotations = Some([(NODES.to_owned(), "0".to_owned())].into());
    assert_eq!(me.find(&lease), Found::Mine);
    assert_eq!(me.nodes, 300);
}
