// SPDX-License-Identifier: Apache-2.0
//! Shows that the model notices each missing guard.

use super::scenarios::{
    a_block_is_lost, a_block_returns_to_its_earlier_owner, a_deleted_node_returns,
    a_shared_block_is_restored, requests, sharing_while_a_machine_fails,
};
use super::{Fault, Rules, Scenario, UNIQUE, violation};
use crate::orphan::{OwnerState, Quarantine, decide};
use crate::owner::{Step, next};
use crate::tests::world::QUARANTINES;
use crate::{LocalBlock, Mode, Phase, Usage, address};
use std::time::Duration;

fn assert_noticed(rules: Rules, mut scenario: Scenario) {
    scenario.rules = rules;
    let violation = violation(scenario);
    assert!(violation.is_some_and(|violation| violation.contains(UNIQUE)));
}

/// The rules if the administrator allows blocks that were in use to be released after a quarantine (`--quarantine-in-use`).
pub(super) fn trusting() -> Rules {
    Rules {
        decide: |record, _, node, watched| decide(record, false, "v", node, watched, QUARANTINES),
        ..Rules::default()
    }
}

/// No quarantine at all.
const NONE: Quarantine = Quarantine {
    unused: Duration::ZERO,
    in_use: Some(Duration::ZERO),
};

#[test]
fn the_model_detects_a_block_restored_to_the_file_without_a_swap() {
    let rules = Rules {
        next: |me, record, local, usage, desired| match next(me, record, local, usage, desired) {
            Step::Replace { then: Some(_), .. } if local.is_none() => {
                Step::WriteFile(record.unwrap().local(Mode::Active))
            }
            step => step,
        },
        ..Rules::default()
    };
    assert_noticed(rules, requests());
}

#[test]
fn the_model_detects_requests_without_preconditions() {
    assert_noticed(
        Rules {
            preconditions: false,
            ..Rules::default()
        },
        requests(),
    );
}

#[test]
fn the_model_detects_a_block_returned_without_a_check_of_its_leases() {
    let rules = Rules {
        idle_check: false,
        next: |me, record, local, _, desired| next(me, record, local, Usage::default(), desired),
        ..Rules::default()
    };
    assert_noticed(rules, requests());
}

#[test]
fn the_model_detects_a_claim_that_ignores_the_owner_of_an_existing_block() {
    assert_noticed(
        Rules {
            claim_check: false,
            ..Rules::default()
        },
        requests(),
    );
}

#[test]
fn the_model_detects_a_block_shared_before_its_addresses_have_objects() {
    let rules = Rules {
        next: |me, record, local, mut usage, desired| {
            usage.unpublished = 0;
            next(me, record, local, usage, desired)
        },
        ..Rules::default()
    };
    assert_noticed(
        rules,
        Scenario {
            sharing: true,
            ..requests()
        },
    );
}

#[test]
fn the_model_detects_a_block_shared_while_its_owner_still_allocates() {
    let rules = Rules {
        next: |me, record, local, usage, desired| match next(me, record, local, usage, desired) {
            Step::WriteFile(LocalBlock {
                mode: Mode::Sharing, ..
            }) => Step::Replace {
                to: record.unwrap().with_phase(Phase::Shared),
                then: Some(record.unwrap().local(Mode::Shared)),
            },
            step => step,
        },
        ..Rules::default()
    };
    assert_noticed(
        rules,
        Scenario {
            sharing: true,
            ..requests()
        },
    );
}

fn sharing() -> Scenario {
    Scenario {
        sharing: true,
        ..requests()
    }
}

#[test]
fn the_model_detects_a_claim_without_a_list_of_address_objects() {
    let rules = Rules {
        list_after_claim: false,
        ..Rules::default()
    };
    let scenario = Scenario { wire: 2, ..sharing() };
    assert_noticed(rules, scenario);
}

#[test]
fn the_model_detects_a_block_not_read_again_after_an_address_is_created() {
    let rules = Rules {
        check_shared: false,
        ..Rules::default()
    };
    assert_noticed(rules, sharing());
}

#[test]
fn the_model_detects_an_existing_address_object_used_without_renewal() {
    let rules = Rules {
        touch_found: false,
        ..Rules::default()
    };
    let scenario = Scenario {
        faults: 2,
        wire: 2,
        ..sharing()
    };
    assert_noticed(rules, scenario);
}

#[test]
#[ignore = "a million states: run it by hand with more_faults"]
fn more_faults_the_model_detects_a_lease_published_without_renewal() {
    let rules = Rules {
        renew_published: false,
        ..Rules::default()
    };
    let scenario = Scenario {
        one_owner: true,
        faults: 0,
        wire: 2,
        ..sharing()
    };
    assert_noticed(rules, scenario);
}

#[test]
fn the_model_detects_a_missing_quarantine() {
    let rules = Rules {
        decide: |record, in_use, node, watched| {
            let watched = watched.cloned().map(|mut watched| {
                watched.unchanged = Duration::MAX;
                watched
            });
            decide(record, in_use, "v", node, watched.as_ref(), NONE)
        },
        ..Rules::default()
    };
    assert_noticed(
        rules,
        Scenario {
            faults: 2,
            ..Scenario::default()
        },
    );
}

#[test]
fn the_model_detects_an_add_after_a_reboot_without_a_check_by_the_agent() {
    assert_noticed(
        Rules {
            reboot_guard: false,
            ..Rules::default()
        },
        Scenario {
            faults: 2,
            ..Scenario::default()
        },
    );
}

#[test]
fn the_model_detects_an_agent_that_acts_on_an_outdated_response() {
    assert_noticed(
        Rules {
            fresh_answers: false,
            ..Rules::default()
        },
        Scenario::default(),
    );
}

#[test]
fn the_model_detects_a_block_deleted_while_its_node_has_pods() {
    let rules = Rules {
        decide: |record, _, node, watched| {
            let node = OwnerState {
                registered: None,
                has_pods: false,
                ..node.clone()
            };
            let watched = watched.cloned().map(|mut watched| {
                watched.unchanged = Duration::MAX;
                watched
            });
            decide(record, false, "v", &node, watched.as_ref(), NONE)
        },
        ..Rules::default()
    };
    assert_noticed(rules, Scenario::default());
}

#[test]
fn the_model_detects_a_live_node_that_never_rebinds_its_orphaned_addresses() {
    let rules = Rules {
        next_address: |_, _, _| address::Step::None,
        ..trusting()
    };
    assert_noticed(rules, sharing_while_a_machine_fails());
}

#[test]
fn the_model_detects_a_deleted_node_that_does_not_renew_its_used_blocks() {
    let rules = Rules {
        next: |me, record, local, usage, desired| match next(me, record, local, usage, desired) {
            Step::Report => Step::None,
            step => step,
        },
        ..Rules::default()
    };
    assert_noticed(rules, Scenario::default());
}

/// The pod garbage collector deletes the agent's Pod, and its token becomes invalid, while the node's pods continue to run.
#[test]
fn the_model_detects_an_ignored_last_report_of_an_agent_without_a_token() {
    assert_noticed(
        trusting(),
        Scenario {
            fault_kinds: &[Fault::Registration],
            ..Scenario::default()
        },
    );
}

#[test]
fn the_model_detects_a_report_without_a_resource_version() {
    let rules = Rules {
        report_versions: false,
        ..Rules::default()
    };
    assert_noticed(
        rules,
        Scenario {
            fault_kinds: &[Fault::Registration],
            wire: 2,
            ..Scenario::default()
        },
    );
}

#[test]
fn the_model_detects_a_lost_block_that_its_owner_does_not_claim_again() {
    let rules = Rules {
        next: |me, record, local, usage, desired| match next(me, record, local, usage, desired) {
            Step::Claim { .. } => Step::Remove,
            step => step,
        },
        ..Rules::default()
    };
    assert_noticed(rules, a_block_is_lost());
}

/// After a restore of etcd, no node may claim a block that another node's pods use until that node has claimed it again.
#[test]
fn the_model_detects_a_foreign_claim_of_a_used_block_after_a_restore() {
    let scenario = Scenario {
        orderly: false,
        ..a_block_is_lost()
    };
    assert_noticed(Rules::default(), scenario);
}

/// After a restore of etcd to a time when another node owned a used block, the pool selects no node until that one has returned it.
#[test]
fn the_model_detects_a_pool_that_selects_nodes_too_early_after_a_restore() {
    let scenario = Scenario {
        orderly: false,
        ..a_block_returns_to_its_earlier_owner()
    };
    assert_noticed(Rules::default(), scenario);
}

/// After a restore of etcd, the object of a pod's address is missing.
#[test]
fn the_model_detects_a_lost_address_object_that_no_agent_creates_again() {
    let rules = Rules {
        publish_uncovered: false,
        ..Rules::default()
    };
    assert_noticed(rules, a_shared_block_is_restored());
}

/// After a restore of etcd, a block drains while another node creates the missing object of an address in it.
#[test]
#[ignore = "six million states: run it by hand with more_faults"]
fn more_faults_the_model_detects_a_drained_block_used_without_listing_objects() {
    let rules = Rules {
        list_after_draining: false,
        ..Rules::default()
    };
    let scenario = Scenario {
        epochs: 2,
        ..a_shared_block_is_restored()
    };
    assert_noticed(rules, scenario);
}

/// A restore of etcd brings back the Node and the block of a machine that was off while another node had the block.
#[test]
#[ignore = "seconds: tests/all runs it"]
fn the_model_detects_a_block_that_stays_open_after_a_long_time_off() {
    let rules = Rules {
        close_after_reboot: false,
        ..Rules::default()
    };
    assert_noticed(rules, a_deleted_node_returns());
}

/// A node whose Node is deleted while it claims a block again cannot report that pods use the block.
#[test]
fn the_model_detects_a_block_that_is_claimed_again_and_counts_as_unused() {
    let rules = Rules {
        claims_used: false,
        ..Rules::default()
    };
    assert_noticed(rules, a_block_is_lost());
}

/// The one failure that no agent can guard against (`crate::orphan`).
#[test]
fn the_model_detects_a_deleted_node_that_still_runs_pods() {
    assert_noticed(
        Rules::default(),
        Scenario {
            fenced: false,
            faults: 2,
            ..Scenario::default()
        },
    );
}
