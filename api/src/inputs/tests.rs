// SPDX-License-Identifier: Apache-2.0

use super::*;

#[test]
fn a_daemon_is_ready_once_it_has_read_all_its_sources() {
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

fn read() -> State {
    State {
        read: true,
        errors: None,
    }
}

fn is_lost(state: &State, now: Instant) -> bool {
    state.problem("agent", Source::Pools, now).is_some()
}

#[test]
fn a_source_counts_as_lost_only_after_repeated_errors() {
    let (begun, mut state) = (Instant::now(), read());
    state.add_error("gone".to_owned(), begun);
    assert!(!is_lost(&state, begun));
    let later = begun + LOST_AFTER;
    state.add_error("gone".to_owned(), later);
    assert!(is_lost(&state, later));
    assert!(is_lost(&state, later + RECOVERED_AFTER / 2));
}

#[test]
fn a_lost_source_recovers_after_a_period_without_errors() {
    let (begun, mut state) = (Instant::now(), read());
    state.add_error("gone".to_owned(), begun);
    state.add_error("gone".to_owned(), begun + LOST_AFTER);
    let calm = begun + LOST_AFTER + RECOVERED_AFTER;
    assert!(!is_lost(&state, calm));
    // The next error counts as the first one again.
    state.add_error("gone".to_owned(), calm);
    assert!(!is_lost(&state, calm));
}

/// Only the leader reads more than pools.
#[test]
fn a_source_that_a_replica_needs_for_a_term_counts_only_during_the_term() {
    let inputs = Inputs::new("controller", &[Source::Pools]);
    inputs.read(Source::Pools);
    for _term in 0..2 {
        assert!(inputs.problems().is_empty());
        inputs.need(&[Source::Spaces]);
        let unread = "the controller has not read the address spaces (addressspaces.rdmanet.io) from the API server yet: ";
        assert_eq!(inputs.problems(), [format!("{unread}no answer yet")]);
        inputs.failed(Source::Spaces, &"a field is missing");
        assert_eq!(inputs.problems(), [format!("{unread}a field is missing")]);
        inputs.read(Source::Spaces);
        assert!(inputs.problems().is_empty());
        inputs.release(&[Source::Spaces]);
        // An event of a watch that ends.
        inputs.failed(Source::Spaces, &"gone");
    }
}
