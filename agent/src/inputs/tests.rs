// SPDX-License-Identifier: Apache-2.0

use super::*;

#[test]
fn the_agent_is_ready_once_it_has_read_pools_blocks_and_its_node() {
    let inputs = Inputs::default();
    assert_eq!(inputs.problems().len(), 3);
    inputs.read(Source::Node);
    inputs.read(Source::Blocks);
    inputs.failed(Source::Pools, &"ippools.rdmanet.io is forbidden");
    let problems = inputs.problems();
    assert_eq!(problems.len(), 1);
    assert!(
        problems[0].contains("ippools.rdmanet.io") && problems[0].contains("is forbidden"),
        "{problems:?}"
    );
    inputs.read(Source::Pools);
    assert!(inputs.problems().is_empty());
}

#[test]
fn a_source_counts_as_lost_only_after_repeated_errors() {
    let begun = Instant::now();
    let mut state = State {
        read: true,
        errors: None,
    };
    let lost = |state: &State, at| state.problem(Source::Pools, at).is_some();
    state.add_error("gone".to_owned(), begun);
    assert!(!lost(&state, begun));
    let later = begun + LOST_AFTER;
    state.add_error("gone".to_owned(), later);
    assert!(lost(&state, later));
    assert!(lost(&state, later + RECOVERED_AFTER / 2));
}

#[test]
fn a_lost_source_recovers_after_a_period_without_errors() {
    let begun = Instant::now();
    let mut state = State {
        read: true,
        errors: None,
    };
    state.add_error("gone".to_owned(), begun);
    state.add_error("gone".to_owned(), begun + LOST_AFTER);
    let calm = begun + LOST_AFTER + RECOVERED_AFTER;
    assert!(state.problem(Source::Blocks, calm).is_none());
    // The next error counts as the first one again.
    state.add_error("gone".to_owned(), calm);
    assert!(state.problem(Source::Blocks, calm).is_none());
}
