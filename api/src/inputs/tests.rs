// SPDX-License-Identifier: Apache-2.0

use super::*;

#[test]
fn a_daemon_is_ready_once_it_has_read_all_required_sources() {
    let inputs = Inputs::new("agent", &[Source::Node, Source::Pools, Source::BlocksOfNode]);
    assert_eq!(inputs.problems().len(), 3);
    inputs.read(Source::Node);
    inputs.read(Source::BlocksOfNode);
    inputs.failed(Source::Pools, &"ippools.rdmanet.io is forbidden");
    let problems = inputs.problems();
    assert_eq!(problems.len(), 1);
    assert!(
        problems[0].starts_with("the agent has not read the pools (ippools.rdmanet.io)")
            && problems[0].contains("is forbidden"),
        "{problems:?}"
    );
    inputs.read(Source::Pools);
    assert!(inputs.problems().is_empty());
}

fn state() -> State {
    State {
        read: true,
        errors: None,
    }
}

#[test]
fn a_source_counts_as_lost_only_after_repeated_errors() {
    let (begun, mut state) = (Instant::now(), state());
    state.add_error("gone".to_owned(), begun);
    assert!(state.lost(begun).is_none());
    let later = begun + LOST_AFTER;
    state.add_error("gone".to_owned(), later);
    assert_eq!(state.lost(later), Some((15, "gone")));
    assert!(state.lost(later + RECOVERED_AFTER / 2).is_some());
}

#[test]
fn a_lost_source_recovers_after_a_period_without_errors() {
    let (begun, mut state) = (Instant::now(), state());
    state.add_error("gone".to_owned(), begun);
    state.add_error("gone".to_owned(), begun + LOST_AFTER);
    let calm = begun + LOST_AFTER + RECOVERED_AFTER;
    assert!(state.lost(calm).is_none());
    // The next error counts as the first one again.
    state.add_error("gone".to_owned(), calm);
    assert!(state.lost(calm).is_none());
}

/// The replicas that do not lead never read the sources of the leader.
#[test]
fn a_source_that_is_not_required_makes_a_daemon_unready_only_while_it_is_lost() {
    let inputs = Inputs::new("controller", &[Source::Pools]);
    inputs.read(Source::Pools);
    assert!(inputs.problems().is_empty());
    let begun = Instant::now().checked_sub(LOST_AFTER).unwrap();
    let mut unread = State::default();
    unread.add_error("a field is missing".to_owned(), begun);
    inputs.states().insert(Source::Spaces, unread);
    assert!(inputs.problems().is_empty());
    inputs.failed(Source::Spaces, &"a field is missing");
    let problems = inputs.problems();
    assert_eq!(
        problems,
        [
            "the controller has failed to read the address spaces (addressspaces.rdmanet.io) from the API server for 15 s: a field is missing"
        ]
    );
    inputs.read(Source::Spaces);
    assert!(inputs.problems().is_empty());
}
