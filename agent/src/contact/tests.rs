// SPDX-License-Identifier: Apache-2.0

use super::*;

#[test]
fn the_agent_is_ready_once_it_has_read_pools_blocks_and_its_node() {
    let contact = Contact::default();
    assert_eq!(contact.complaints().len(), 3);
    contact.read(Source::Node);
    contact.read(Source::Blocks);
    contact.failed(Source::Pools, &"ippools.rdmanet.io is forbidden");
    let complaints = contact.complaints();
    assert_eq!(complaints.len(), 1);
    assert!(
        complaints[0].contains("ippools.rdmanet.io") && complaints[0].contains("is forbidden"),
        "{complaints:?}"
    );
    contact.read(Source::Pools);
    assert!(contact.complaints().is_empty());
}

#[test]
fn a_source_counts_as_lost_only_after_repeated_errors() {
    let begun = Instant::now();
    let mut state = State {
        read: true,
        errors: None,
    };
    let lost = |state: &State, at| state.complaint(Source::Pools, at).is_some();
    state.fails("gone".to_owned(), begun);
    assert!(!lost(&state, begun));
    let later = begun + TROUBLE;
    state.fails("gone".to_owned(), later);
    assert!(lost(&state, later));
    assert!(lost(&state, later + CALM / 2));
}

#[test]
fn a_lost_source_recovers_after_a_period_without_errors() {
    let begun = Instant::now();
    let mut state = State {
        read: true,
        errors: None,
    };
    state.fails("gone".to_owned(), begun);
    state.fails("gone".to_owned(), begun + TROUBLE);
    let calm = begun + TROUBLE + CALM;
    assert!(state.complaint(Source::Blocks, calm).is_none());
    // The next error counts as the first one again.
    state.fails("gone".to_owned(), calm);
    assert!(state.complaint(Source::Blocks, calm).is_none());
}
