// SPDX-License-Identifier: Apache-2.0
//! What is explored to its end.

use super::{Story, mishap};

pub(super) fn requests() -> Story {
    Story {
        machines_fail: false,
        keepers: 0,
        ..Story::default()
    }
}

#[test]
fn lost_and_late_answers_and_a_crash_leave_an_address_with_one_pod() {
    assert_eq!(mishap(requests()), None);
}

#[test]
#[ignore = "a minute: tests/all runs it"]
fn sharing_a_block_leaves_an_address_with_one_pod() {
    let story = Story {
        sharing: true,
        epochs: 1,
        ..requests()
    };
    assert_eq!(mishap(story), None);
}

#[test]
#[ignore = "a minute: tests/all runs it"]
fn a_machine_that_fails_leaves_an_address_with_one_pod() {
    assert_eq!(mishap(Story::default()), None);
}

#[test]
#[ignore = "a minute: tests/all runs it"]
fn a_block_that_is_taken_over_leaves_an_address_with_one_pod() {
    let story = Story {
        heirs: true,
        ..Story::default()
    };
    assert_eq!(mishap(story), None);
}

#[test]
#[ignore = "a minute: tests/all runs it"]
fn two_keepers_leave_an_address_with_one_pod() {
    let story = Story {
        keepers: 2,
        epochs: 1,
        ..Story::default()
    };
    assert_eq!(mishap(story), None);
}

#[test]
#[ignore = "a minute: tests/all runs it"]
fn from_every_state_the_block_comes_free() {
    let story = Story {
        ends: true,
        ..requests()
    };
    assert_eq!(mishap(story), None);
    let story = Story {
        ends: true,
        epochs: 1,
        ..Story::default()
    };
    assert_eq!(mishap(story), None);
    let story = Story {
        ends: true,
        sharing: true,
        epochs: 1,
        ..requests()
    };
    assert_eq!(mishap(story), None);
}

/// Ten million states: `cargo test --release -p agent --lib -- --ignored more_faults`.
#[test]
#[ignore = "minutes and gigabytes: run it by hand after a change of the transitions"]
fn more_faults_and_requests_leave_an_address_with_one_pod() {
    let requests = || Story {
        wire: 2,
        ..requests()
    };
    assert_eq!(
        mishap(Story {
            faults: 2,
            ..requests()
        }),
        None
    );
    assert_eq!(
        mishap(Story {
            sharing: true,
            ..requests()
        }),
        None
    );
    assert_eq!(
        mishap(Story {
            heirs: true,
            epochs: 3,
            ..Story::default()
        }),
        None
    );
    assert_eq!(
        mishap(Story {
            faults: 2,
            ..Story::default()
        }),
        None
    );
}
