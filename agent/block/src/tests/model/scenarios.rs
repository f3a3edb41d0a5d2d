// SPDX-License-Identifier: Apache-2.0
//! The stories that are explored completely.

use super::{Fault, Scenario, violation};

pub(super) fn requests() -> Scenario {
    Scenario {
        machines_fail: false,
        controllers: 0,
        ..Scenario::default()
    }
}

#[test]
fn two_pods_never_share_an_address_after_lost_responses_and_a_crash() {
    let scenario = Scenario {
        ends: true,
        ..requests()
    };
    assert_eq!(violation(scenario), None);
}

#[test]
#[ignore = "seconds: tests/all runs it"]
fn two_pods_never_share_an_address_of_a_shared_block() {
    let scenario = Scenario {
        sharing: true,
        ends: true,
        epochs: 1,
        ..requests()
    };
    assert_eq!(violation(scenario), None);
}

#[test]
#[ignore = "seconds: tests/all runs it"]
fn two_pods_never_share_an_address_after_a_machine_failure() {
    let scenario = Scenario {
        ends: true,
        ..Scenario::default()
    };
    assert_eq!(violation(scenario), None);
}

#[test]
#[ignore = "seconds: tests/all runs it"]
fn two_pods_never_share_an_address_while_two_controllers_run() {
    let scenario = Scenario {
        controllers: 2,
        ends: true,
        ..Scenario::default()
    };
    assert_eq!(violation(scenario), None);
}

/// The response to the swap that takes a block back is lost, and then the Node is lost again.
#[test]
#[ignore = "seconds: tests/all runs it"]
fn two_pods_never_share_an_address_after_a_node_is_deleted_twice() {
    let scenario = Scenario {
        faults: 2,
        fault_kinds: &[Fault::Registration],
        ends: true,
        ..Scenario::default()
    };
    assert_eq!(violation(scenario), None);
}

pub(super) fn a_block_is_lost() -> Scenario {
    Scenario {
        fault_kinds: &[Fault::Crash, Fault::Registration, Fault::Erasure],
        faults: 2,
        ..Scenario::default()
    }
}

/// The API server loses the block of a machine, with and without another failure before or after that.
#[test]
#[ignore = "seconds: tests/all runs it"]
fn two_pods_never_share_an_address_after_the_api_server_loses_a_block() {
    let scenario = Scenario {
        ends: true,
        ..a_block_is_lost()
    };
    assert_eq!(violation(scenario), None);
}

pub(super) fn a_block_returns_to_its_earlier_owner() -> Scenario {
    Scenario {
        fault_kinds: &[Fault::Crash, Fault::Registration, Fault::Restore],
        faults: 2,
        ..Scenario::default()
    }
}

/// etcd is restored to any earlier time, with and without another failure before or after that. Another node may have owned the
/// block at that time.
#[test]
#[ignore = "seconds: tests/all runs it"]
fn two_pods_never_share_an_address_after_a_block_returns_to_its_earlier_owner() {
    let scenario = Scenario {
        ends: true,
        epochs: 1,
        ..a_block_returns_to_its_earlier_owner()
    };
    assert_eq!(violation(scenario), None);
}

pub(super) fn a_deleted_node_returns() -> Scenario {
    Scenario {
        fault_kinds: &[Fault::Death, Fault::Restore],
        epochs: 1,
        ..a_block_returns_to_its_earlier_owner()
    }
}

/// A machine dies and its Node is deleted. Before or after that, etcd is restored to any earlier time, so the Node may return.
#[test]
#[ignore = "seconds: tests/all runs it"]
fn two_pods_never_share_an_address_after_a_restore_brings_a_deleted_node_back() {
    let scenario = Scenario {
        ends: true,
        ..a_deleted_node_returns()
    };
    assert_eq!(violation(scenario), None);
}

/// etcd is restored to any earlier time. The block is shared then or now.
pub(super) fn a_shared_block_is_restored() -> Scenario {
    Scenario {
        sharing: true,
        fault_kinds: &[Fault::Restore],
        epochs: 1,
        ..Scenario::default()
    }
}

#[test]
#[ignore = "seconds: tests/all runs it"]
fn two_pods_never_share_an_address_after_a_shared_block_is_restored() {
    let scenario = Scenario {
        one_owner: true,
        ends: true,
        ..a_shared_block_is_restored()
    };
    assert_eq!(violation(scenario), None);
}

/// During each step of sharing a block, a node dies, loses its connection or loses its Node, and comes back. The other node takes
/// addresses.
pub(super) fn sharing_while_a_machine_fails() -> Scenario {
    Scenario {
        sharing: true,
        one_owner: true,
        fault_kinds: &[Fault::Crash, Fault::Network, Fault::Registration, Fault::Death],
        epochs: 1,
        ..Scenario::default()
    }
}

#[test]
#[ignore = "seconds: tests/all runs it"]
fn two_pods_never_share_an_address_after_a_machine_failure_during_sharing() {
    let scenario = Scenario {
        ends: true,
        epochs: 2,
        ..sharing_while_a_machine_fails()
    };
    assert_eq!(violation(scenario), None);
}

/// Each of the two machines fails once, in either order, while the other one works, is failing, or has come back.
pub(super) fn both_machines_fail(fault_kinds: &'static [Fault]) -> Scenario {
    Scenario {
        both_fail: true,
        faults: 2,
        fault_kinds,
        ..Scenario::default()
    }
}

#[test]
#[ignore = "seconds: tests/all runs it"]
fn two_pods_never_share_an_address_after_both_machines_fail() {
    let scenario = Scenario {
        ends: true,
        epochs: 1,
        ..both_machines_fail(&[Fault::Crash, Fault::Network, Fault::Registration])
    };
    assert_eq!(violation(scenario), None);
}

#[test]
#[ignore = "seconds: tests/all runs it"]
fn two_pods_never_share_an_address_after_both_machines_fail_during_sharing() {
    let scenario = Scenario {
        ends: true,
        both_fail: true,
        faults: 2,
        fault_kinds: &[Fault::Crash, Fault::Network],
        ..sharing_while_a_machine_fails()
    };
    assert_eq!(violation(scenario), None);
}

/// Tests that take minutes: `cargo test -p block --lib -- --ignored --nocapture --test-threads 1 more_faults`.
mod more_faults {
    use super::*;

    fn assert_safe(scenario: Scenario) {
        assert_eq!(violation(scenario), None);
    }

    #[test]
    #[ignore = "minutes and gigabytes: run it by hand after a change of the transitions"]
    fn two_crashes_with_two_requests_in_flight_never_duplicate_an_address() {
        assert_safe(Scenario {
            faults: 2,
            wire: 2,
            ..requests()
        });
    }

    #[test]
    #[ignore = "minutes and gigabytes: run it by hand after a change of the transitions"]
    fn two_requests_in_flight_during_sharing_never_duplicate_an_address() {
        assert_safe(Scenario {
            sharing: true,
            wire: 2,
            ..requests()
        });
    }

    #[test]
    #[ignore = "minutes and gigabytes: run it by hand after a change of the transitions"]
    fn a_restore_with_another_failure_never_duplicates_an_address() {
        assert_safe(Scenario {
            fault_kinds: &[
                Fault::Crash,
                Fault::Power,
                Fault::Network,
                Fault::Registration,
                Fault::Death,
                Fault::Restore,
            ],
            ends: true,
            ..a_block_returns_to_its_earlier_owner()
        });
    }

    #[test]
    #[ignore = "minutes and gigabytes: run it by hand after a change of the transitions"]
    fn a_restored_node_that_is_deleted_again_never_duplicates_an_address() {
        assert_safe(Scenario {
            fault_kinds: &[Fault::Death, Fault::Restore, Fault::Registration],
            faults: 3,
            ..a_deleted_node_returns()
        });
    }

    #[test]
    #[ignore = "minutes and gigabytes: run it by hand after a change of the transitions"]
    fn a_restore_while_both_machines_share_never_duplicates_an_address() {
        assert_safe(Scenario {
            ends: true,
            ..a_shared_block_is_restored()
        });
    }

    #[test]
    #[ignore = "minutes and gigabytes: run it by hand after a change of the transitions"]
    fn a_restore_with_another_failure_during_sharing_never_duplicates_an_address() {
        assert_safe(Scenario {
            one_owner: true,
            faults: 2,
            fault_kinds: &[
                Fault::Crash,
                Fault::Network,
                Fault::Registration,
                Fault::Death,
                Fault::Restore,
            ],
            ..a_shared_block_is_restored()
        });
    }

    #[test]
    #[ignore = "minutes and gigabytes: run it by hand after a change of the transitions"]
    fn two_failures_of_one_machine_never_duplicate_an_address() {
        assert_safe(Scenario {
            faults: 2,
            ends: true,
            ..Scenario::default()
        });
    }

    const ANY: &[Fault] = &[
        Fault::Crash,
        Fault::Power,
        Fault::Network,
        Fault::Registration,
        Fault::Death,
    ];

    #[test]
    #[ignore = "minutes and gigabytes: run it by hand after a change of the transitions"]
    fn any_failures_of_both_machines_never_duplicate_an_address() {
        assert_safe(both_machines_fail(ANY));
    }

    #[test]
    #[ignore = "minutes and gigabytes: run it by hand after a change of the transitions"]
    fn a_machine_failure_while_both_machines_share_never_duplicates_an_address() {
        assert_safe(Scenario {
            one_owner: false,
            ..sharing_while_a_machine_fails()
        });
    }

    #[test]
    #[ignore = "minutes and gigabytes: run it by hand after a change of the transitions"]
    fn two_failures_of_one_machine_during_sharing_never_duplicate_an_address() {
        assert_safe(Scenario {
            faults: 2,
            ..sharing_while_a_machine_fails()
        });
    }

    #[test]
    #[ignore = "minutes and gigabytes: run it by hand after a change of the transitions"]
    fn a_lost_node_with_two_requests_in_flight_never_duplicates_a_shared_address() {
        assert_safe(Scenario {
            wire: 2,
            fault_kinds: &[Fault::Registration, Fault::Death],
            ..sharing_while_a_machine_fails()
        });
    }

    #[test]
    #[ignore = "minutes and gigabytes: run it by hand after a change of the transitions"]
    fn any_failures_of_both_machines_during_sharing_never_duplicate_an_address() {
        assert_safe(Scenario {
            both_fail: true,
            faults: 2,
            fault_kinds: ANY,
            ..sharing_while_a_machine_fails()
        });
    }

    /// The machines also take back blocks that were not shared yet.
    #[test]
    #[ignore = "minutes and gigabytes: run it by hand after a change of the transitions"]
    fn two_deleted_nodes_during_sharing_never_duplicate_an_address() {
        assert_safe(Scenario {
            both_fail: true,
            faults: 2,
            fault_kinds: &[Fault::Registration],
            epochs: 2,
            ..sharing_while_a_machine_fails()
        });
    }
}
