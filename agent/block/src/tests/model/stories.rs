// SPDX-License-Identifier: Apache-2.0
//! The stories that are explored completely.

use super::{Failure, Story, mishap};

pub(super) fn requests() -> Story {
    Story {
        machines_fail: false,
        keepers: 0,
        ..Story::default()
    }
}

#[test]
fn two_pods_never_share_an_address_after_lost_responses_and_a_crash() {
    let story = Story {
        ends: true,
        ..requests()
    };
    assert_eq!(mishap(story), None);
}

#[test]
#[ignore = "seconds: tests/all runs it"]
fn two_pods_never_share_an_address_of_a_shared_block() {
    let story = Story {
        sharing: true,
        ends: true,
        epochs: 1,
        ..requests()
    };
    assert_eq!(mishap(story), None);
}

#[test]
#[ignore = "seconds: tests/all runs it"]
fn two_pods_never_share_an_address_after_a_machine_failure() {
    let story = Story {
        ends: true,
        ..Story::default()
    };
    assert_eq!(mishap(story), None);
}

#[test]
#[ignore = "seconds: tests/all runs it"]
fn two_pods_never_share_an_address_while_two_controllers_run() {
    let story = Story {
        keepers: 2,
        ends: true,
        ..Story::default()
    };
    assert_eq!(mishap(story), None);
}

/// The response to the swap that takes a block back is lost, and then the Node is lost again.
#[test]
#[ignore = "seconds: tests/all runs it"]
fn two_pods_never_share_an_address_after_a_node_is_deleted_twice() {
    let story = Story {
        faults: 2,
        failures: &[Failure::Registration],
        ends: true,
        ..Story::default()
    };
    assert_eq!(mishap(story), None);
}

pub(super) fn a_block_is_lost() -> Story {
    Story {
        failures: &[Failure::Crash, Failure::Registration, Failure::Erasure],
        faults: 2,
        ..Story::default()
    }
}

/// The API server loses the block of a machine, with and without another failure before or after that.
#[test]
#[ignore = "seconds: tests/all runs it"]
fn two_pods_never_share_an_address_after_the_api_server_loses_a_block() {
    let story = Story {
        ends: true,
        ..a_block_is_lost()
    };
    assert_eq!(mishap(story), None);
}

/// During each step of sharing a block, a node dies, loses its connection or loses its Node, and comes back. The other node takes
/// addresses.
pub(super) fn sharing_while_a_machine_fails() -> Story {
    Story {
        sharing: true,
        one_owner: true,
        failures: &[
            Failure::Crash,
            Failure::Network,
            Failure::Registration,
            Failure::Death,
        ],
        epochs: 1,
        ..Story::default()
    }
}

#[test]
#[ignore = "seconds: tests/all runs it"]
fn two_pods_never_share_an_address_after_a_machine_failure_during_sharing() {
    let story = Story {
        ends: true,
        epochs: 2,
        ..sharing_while_a_machine_fails()
    };
    assert_eq!(mishap(story), None);
}

/// Each of the two machines fails once, in either order, while the other one works, is failing, or has come back.
pub(super) fn both_machines_fail(failures: &'static [Failure]) -> Story {
    Story {
        both_fail: true,
        faults: 2,
        failures,
        ..Story::default()
    }
}

#[test]
#[ignore = "seconds: tests/all runs it"]
fn two_pods_never_share_an_address_after_both_machines_fail() {
    let story = Story {
        ends: true,
        epochs: 1,
        ..both_machines_fail(&[Failure::Crash, Failure::Network, Failure::Registration])
    };
    assert_eq!(mishap(story), None);
}

#[test]
#[ignore = "seconds: tests/all runs it"]
fn two_pods_never_share_an_address_after_both_machines_fail_during_sharing() {
    let story = Story {
        ends: true,
        both_fail: true,
        faults: 2,
        failures: &[Failure::Crash, Failure::Network],
        ..sharing_while_a_machine_fails()
    };
    assert_eq!(mishap(story), None);
}

/// Tests that take minutes: `cargo test -p block --lib -- --ignored --nocapture --test-threads 1 more_faults`.
mod more_faults {
    use super::*;

    fn assert_safe(story: Story) {
        assert_eq!(mishap(story), None);
    }

    #[test]
    #[ignore = "minutes and gigabytes: run it by hand after a change of the transitions"]
    fn two_crashes_with_two_requests_in_flight_never_duplicate_an_address() {
        assert_safe(Story {
            faults: 2,
            wire: 2,
            ..requests()
        });
    }

    #[test]
    #[ignore = "minutes and gigabytes: run it by hand after a change of the transitions"]
    fn two_requests_in_flight_during_sharing_never_duplicate_an_address() {
        assert_safe(Story {
            sharing: true,
            wire: 2,
            ..requests()
        });
    }

    #[test]
    #[ignore = "minutes and gigabytes: run it by hand after a change of the transitions"]
    fn two_failures_of_one_machine_never_duplicate_an_address() {
        assert_safe(Story {
            faults: 2,
            ends: true,
            ..Story::default()
        });
    }

    const ANY: &[Failure] = &[
        Failure::Crash,
        Failure::Power,
        Failure::Network,
        Failure::Registration,
        Failure::Death,
    ];

    #[test]
    #[ignore = "minutes and gigabytes: run it by hand after a change of the transitions"]
    fn any_failures_of_both_machines_never_duplicate_an_address() {
        assert_safe(both_machines_fail(ANY));
    }

    #[test]
    #[ignore = "minutes and gigabytes: run it by hand after a change of the transitions"]
    fn a_machine_failure_while_both_machines_share_never_duplicates_an_address() {
        assert_safe(Story {
            one_owner: false,
            ..sharing_while_a_machine_fails()
        });
    }

    #[test]
    #[ignore = "minutes and gigabytes: run it by hand after a change of the transitions"]
    fn two_failures_of_one_machine_during_sharing_never_duplicate_an_address() {
        assert_safe(Story {
            faults: 2,
            ..sharing_while_a_machine_fails()
        });
    }

    #[test]
    #[ignore = "minutes and gigabytes: run it by hand after a change of the transitions"]
    fn a_lost_node_with_two_requests_in_flight_never_duplicates_a_shared_address() {
        assert_safe(Story {
            wire: 2,
            failures: &[Failure::Registration, Failure::Death],
            ..sharing_while_a_machine_fails()
        });
    }

    #[test]
    #[ignore = "minutes and gigabytes: run it by hand after a change of the transitions"]
    fn any_failures_of_both_machines_during_sharing_never_duplicate_an_address() {
        assert_safe(Story {
            both_fail: true,
            faults: 2,
            failures: ANY,
            ..sharing_while_a_machine_fails()
        });
    }

    /// The machines also take back blocks that were not shared yet.
    #[test]
    #[ignore = "minutes and gigabytes: run it by hand after a change of the transitions"]
    fn two_deleted_nodes_during_sharing_never_duplicate_an_address() {
        assert_safe(Story {
            both_fail: true,
            faults: 2,
            failures: &[Failure::Registration],
            epochs: 2,
            ..sharing_while_a_machine_fails()
        });
    }
}
