// SPDX-License-Identifier: Apache-2.0

use super::*;
use api::{BlockState, IpBlockSpec, NodeRef};

fn block(node: &str) -> IpBlock {
    let spec = IpBlockSpec {
        pool: "p".to_owned(),
        cidr: "10.0.0.0/29".to_owned(),
        owner: NodeRef {
            node: node.to_owned(),
            node_uid: "u".to_owned(),
        },
        epoch: 1,
        state: BlockState::Active,
        quarantine_seconds: None,
        orphaned: None,
    };
    IpBlock::new("default-4-0a000000-29", spec)
}

fn watch() -> Watch {
    Watch {
        since: Instant::now(),
        there: false,
        gone: false,
        connection: Connection::Requests,
        stop: AbortHandle::new_pair().0,
    }
}

/// The meanings of `events` for node `n`, one after another.
fn meanings(events: &[Event<IpBlock>]) -> Vec<Meaning> {
    let mut watch = watch();
    events.iter().map(|event| watch.meaning(event, "n")).collect()
}

#[test]
fn a_block_missing_at_the_start_of_its_watch_is_gone() {
    assert_eq!(
        meanings(&[Event::Init, Event::InitDone]),
        [Meaning::Nothing, Meaning::Gone]
    );
}

#[test]
fn a_block_is_gone_once_deleted_and_exists_again_once_recreated() {
    let (init, done) = (Event::Init, Event::InitDone);
    let events = [
        init,
        Event::InitApply(block("n")),
        done,
        Event::Apply(block("n")),
        Event::Delete(block("n")),
        Event::Apply(block("n")),
    ];
    assert_eq!(
        meanings(&events),
        [
            Meaning::Nothing,
            Meaning::Current,
            Meaning::Nothing,
            Meaning::Current,
            Meaning::Gone,
            Meaning::Current
        ]
    );
}

#[test]
fn a_block_missing_after_a_restart_of_its_watch_is_gone() {
    let events = [
        Event::Init,
        Event::InitApply(block("n")),
        Event::InitDone,
        Event::Init,
        Event::InitDone,
    ];
    assert_eq!(meanings(&events).last(), Some(&Meaning::Gone));
}

#[test]
fn a_block_of_another_node_is_gone_for_this_node() {
    assert_eq!(
        meanings(&[
            Event::Init,
            Event::InitApply(block("n")),
            Event::InitDone,
            Event::Apply(block("m"))
        ])
        .last(),
        Some(&Meaning::Gone)
    );
}

#[test]
fn the_pause_between_lists_grows_with_the_cluster() {
    let (small, large) = (Duration::from_secs(600), Duration::from_secs(2000));
    let due = Due::after_period();
    let wait = |period| due.at(period).duration_since(due.last);
    assert!(wait(small) >= small / 2 && wait(small) <= small * 3 / 2);
    assert_eq!(
        wait(large).as_millis() / 100,
        (wait(small) * 10 / 3).as_millis() / 100
    );
}

#[test]
fn a_failed_list_is_retried_soon_in_a_cluster_of_any_size() {
    let due = Due::in_about(Duration::from_secs(2));
    let wait = due.at(Duration::from_secs(3600)).duration_since(due.last);
    assert!(wait >= Duration::from_secs(1) && wait <= Duration::from_secs(3));
}

#[test]
fn watches_leave_room_for_requests_on_their_connection() {
    let mut watches: Vec<Watch> = Vec::new();
    while let Some(connection) = free_connection(watches.iter()) {
        watches.push(Watch {
            connection,
            ..watch()
        });
    }
    assert_eq!(watches.len(), MAX_WATCHES);
    let on = |connection| {
        watches
            .iter()
            .filter(|watch| watch.connection == connection)
            .count()
    };
    // 100 is the default of the API server. Pools and namespaces each have one watch.
    let (streams, others) = (100, 2);
    assert!(
        on(Connection::Requests) + others <= streams / 2,
        "{}",
        on(Connection::Requests)
    );
    assert!(on(Connection::Watches) < streams, "{}", on(Connection::Watches));
}

#[test]
fn the_watch_of_a_deleted_block_ends_once_no_claim_can_be_in_flight() {
    let mut watch = watch();
    let later = Instant::now() + MISSING_FOR;
    watch.meaning(&Event::Apply(block("n")), "n");
    assert!(!watch.is_over(later));
    watch.meaning(&Event::Delete(block("n")), "n");
    assert!(!watch.is_over(Instant::now()));
    assert!(watch.is_over(later));
    // The block was created again.
    watch.meaning(&Event::Apply(block("n")), "n");
    assert!(!watch.is_over(later));
}
