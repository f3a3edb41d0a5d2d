// SPDX-License-Identifier: Apache-2.0
//! State reduction: which states are merged.
//!
//! Invariant: merged states are bisimilar. So exploring one representative is enough.

use super::explore::explore;
use super::mutations::trusting;
use super::scenarios::{requests, sharing_while_a_machine_fails};
use super::{Fault, Scenario};
use crate::owner::next;
use crate::tests::world::{Agent, Lease, MACHINES, Object, Op, PAST, Rules, Sender, Snapshot, World, owner};
use crate::{BlockRecord, Phase, address};

impl Scenario {
    /// Removes details that make no difference any more.
    pub(super) fn forget(&self, world: &mut World) {
        if self.rules.preconditions {
            // These requests miss their preconditions whenever they arrive, and their senders may time out before that.
            let (block, address) = world.versions();
            world.wire.retain(|(_, op)| match op {
                Op::Report { .. } if !self.rules.report_versions => true,
                Op::Swap { version, .. } | Op::Delete { version } | Op::Report { version, .. } => {
                    Some(*version) == block
                }
                Op::TouchAddress { uid } | Op::SwapAddress { uid, .. } | Op::DeleteAddress { uid } => {
                    Some(*uid) == address
                }
                Op::Create { .. } | Op::CreateAddress { .. } => true,
            });
        }
        let (block, address) = world.versions();
        for observer in &mut world.observers {
            observer.watched = observer.watched.filter(|(version, _)| Some(*version) == block);
            observer.address = observer.address.filter(|(version, _)| Some(*version) == address);
        }
        if !self.may_restore(world) {
            world.snapshot = Snapshot::Used;
        }
        for m in 0..MACHINES {
            self.forget_of(world, m);
            Self::forget_read(world, m);
        }
    }

    fn forget_of(&self, world: &mut World, m: usize) {
        let loses = |how: &[Fault]| how.iter().any(|how| self.may_still(world, m, *how));
        let starts_again = loses(&[Fault::Power, Fault::Death]);
        let goes = loses(&[Fault::Registration, Fault::Death]);
        let machine = &mut world.machines[m];
        // The answer is lost, so the agent can only time out.
        if let Agent::Waiting(op, _) = &machine.agent
            && !world.wire.contains(&(Sender::Agent(m), op.clone()))
        {
            machine.agent = Agent::Idle(None);
        }
        // It matters only at the next start, and the machine does not start again.
        if machine.confirmed && machine.on && !starts_again {
            machine.young = false;
        }
        // The next start resets both.
        if !machine.on {
            (machine.lease, machine.confirmed) = (Lease::None, false);
        }
        // It matters only for a lease from a block that becomes shared.
        machine.published &= machine.lease == Lease::Local;
        // It matters only while the machine has no Node.
        machine.silenced &= world.nodes[m].is_none();
        if world.nodes[m].is_some() && !goes {
            world.bound[m] = false;
        }
    }

    /// Of the objects that it has read, an agent uses the content of its own, and of others only that they exist.
    fn forget_read(world: &mut World, m: usize) {
        let (block, address) = world.versions();
        let machine = &mut world.machines[m];
        let Agent::Idle(Some(view)) = &mut machine.agent else {
            return;
        };
        let others = |theirs: &Object| theirs.record.machine() != m && machine.file.is_none();
        if let Some(read) = view.block.as_mut().filter(|read| others(read)) {
            let shared = read.record.phase == Phase::Shared;
            let phase = if shared { Phase::Shared } else { Phase::Active };
            read.record = BlockRecord::claimed(&owner(1 - m, 0)).with_phase(phase);
            (read.version, read.used) = (PAST, false);
            let mine = view.address.as_ref().is_some_and(|address| address.machine == m);
            // The view leads neither to a claim nor to an address, and contains no object of the machine.
            if !shared && !mine && machine.lease == Lease::None {
                machine.agent = Agent::Idle(None);
                return;
            }
        }
        if let Some(read) = view.block.as_mut().filter(|read| Some(read.version) != block) {
            read.version = PAST;
        }
        match &mut view.address {
            Some(read) if read.machine != m => {
                (read.registration, read.orphaned, read.uid) = (0, false, PAST);
            }
            Some(read) if Some(read.uid) != address => read.uid = PAST,
            _ => {}
        }
    }
}

/// Compares a story with and without merged states. Returns whether an address has two pods in some state.
fn assert_nothing_is_left_out(scenario: Scenario) -> bool {
    let few = explore(&scenario);
    let all = explore(&Scenario {
        forgets: false,
        ..scenario
    });
    assert!(all.states == few.states);
    assert_eq!(all.two_pods, few.two_pods);
    all.two_pods
}

/// Four stories with one failure of a machine each while a block is shared. Together they cover the whole story, since nothing
/// fails twice in it.
fn one_failure_while_a_block_is_shared() -> [Scenario; 4] {
    const EACH: [&[Fault]; 4] = [
        &[Fault::Crash],
        &[Fault::Network],
        &[Fault::Registration],
        &[Fault::Death],
    ];
    EACH.map(|fault_kinds| Scenario {
        fault_kinds,
        ..sharing_while_a_machine_fails()
    })
}

#[test]
fn merging_request_states_keeps_the_result_of_the_model() {
    assert!(!assert_nothing_is_left_out(requests()));
}

#[test]
#[ignore = "minutes: run it by hand with more_faults"]
fn more_faults_merging_states_during_sharing_keeps_the_result_of_the_model() {
    for scenario in one_failure_while_a_block_is_shared() {
        assert!(!assert_nothing_is_left_out(scenario));
    }
}

#[test]
#[ignore = "half a minute: run it by hand with more_faults"]
fn more_faults_merging_states_during_sharing_hides_no_duplicate_address() {
    let rules = Rules {
        next: |me, record, local, mut usage, desired| {
            usage.unpublished = 0;
            next(me, record, local, usage, desired)
        },
        ..Rules::default()
    };
    let [crash, network, ..] = one_failure_while_a_block_is_shared();
    for scenario in [crash, network] {
        let rules = rules.clone();
        assert!(assert_nothing_is_left_out(Scenario { rules, ..scenario }));
    }
}

#[test]
#[ignore = "minutes: run it by hand with more_faults"]
fn more_faults_merging_states_after_a_node_deletion_hides_no_duplicate_address() {
    let rules = Rules {
        next_address: |_, _, _| address::Step::None,
        ..trusting()
    };
    let [_, _, registration, _] = one_failure_while_a_block_is_shared();
    assert!(assert_nothing_is_left_out(Scenario {
        rules,
        ..registration
    }));
}

#[test]
#[ignore = "minutes: run it by hand with more_faults"]
fn more_faults_merging_machine_states_keeps_the_result_of_the_model() {
    let twice = Scenario {
        epochs: 1,
        faults: 2,
        ..Scenario::default()
    };
    for scenario in [Scenario::default(), twice] {
        assert!(!assert_nothing_is_left_out(scenario));
    }
}
