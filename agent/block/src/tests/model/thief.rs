// SPDX-License-Identifier: Apache-2.0
//! A stolen token: every request that it allows, in each state of an honest node, its pods and the controller.
//!
//! Invariant: a request of the thief carries the newest version, so no precondition stops it. Only the policies do.

use super::scenarios::requests;
use super::{Event, Op, Rules, World};
use super::{Fault, KEPT, Scenario, violation};
use crate::tests::world::{Lease, owner};
use crate::{BlockRecord, Mode, Phase};

/// The machine whose token is stolen.
pub(super) const THIEF: usize = 1;

/// The honest machine.
const VICTIM: usize = 0;

const PHASES: [Phase; 4] = [Phase::Active, Phase::Draining, Phase::Shared, Phase::Orphaned];

impl Scenario {
    /// Each request that the thief can send now and that the policies admit.
    pub(super) fn thefts(&self, world: &World) -> Vec<Event> {
        let mut all = world.of_block();
        all.extend(world.of_address());
        let admitted = all.into_iter().filter(|op| (self.rules.admits)(world, op));
        admitted.map(Event::Steal).collect()
    }
}

impl World {
    fn registrations(&self) -> Vec<(usize, u8)> {
        let both = [VICTIM, THIEF].into_iter();
        both.filter_map(|machine| Some((machine, self.nodes[machine]?)))
            .collect()
    }

    fn of_block(&self) -> Vec<Op> {
        let Some(block) = &self.block else {
            let all = self.registrations().into_iter();
            return all
                .map(|(machine, registration)| Op::Create {
                    record: BlockRecord::claimed(&owner(machine, registration)),
                    used: false,
                })
                .collect();
        };
        let version = block.version;
        let mut all = vec![Op::Delete { version }];
        all.extend([true, false].map(|used| Op::Report { version, used }));
        for (machine, registration) in self.registrations() {
            for phase in PHASES {
                for epoch in [block.record.epoch, block.record.epoch + 1] {
                    let owner = owner(machine, registration);
                    let to = BlockRecord { owner, epoch, phase };
                    all.push(Op::Swap { version, to });
                }
            }
        }
        all
    }

    fn of_address(&self) -> Vec<Op> {
        let registrations = self.registrations().into_iter();
        let Some(address) = &self.address else {
            return registrations
                .map(|(machine, registration)| Op::CreateAddress {
                    machine,
                    registration,
                })
                .collect();
        };
        let (uid, machine) = (address.uid, address.machine);
        let mut all = vec![Op::DeleteAddress { uid }, Op::TouchAddress { uid }];
        for (_, registration) in registrations {
            all.extend([true, false].map(|orphaned| Op::SwapAddress {
                uid,
                machine,
                registration,
                orphaned,
            }));
        }
        all
    }

    /// Whether the policies admit a request with the thief's token.
    pub(in crate::tests) fn admits(&self, op: &Op) -> bool {
        let block = self.block.as_ref();
        let is_own =
            block.is_some_and(|block| block.record.machine() == THIEF && block.record.phase != Phase::Shared);
        let address = self.address.as_ref();
        match op {
            Op::Create { record, .. } => {
                record.machine() == THIEF && record.phase == Phase::Active && record.epoch == 1
            }
            Op::Swap { to, .. } => is_own && to.machine() == THIEF,
            Op::Delete { .. } | Op::Report { .. } => is_own,
            Op::CreateAddress { machine, .. } => *machine == THIEF,
            Op::TouchAddress { .. } | Op::SwapAddress { .. } | Op::DeleteAddress { .. } => {
                address.is_some_and(|address| address.machine == THIEF)
            }
        }
    }

    /// Whether the thief has the block or the address.
    pub(super) fn is_stolen(&self) -> bool {
        let block = self.block.as_ref();
        let address = self.address.as_ref();
        block.is_some_and(|block| block.record.machine() == THIEF)
            || address.is_some_and(|address| address.machine == THIEF)
    }

    /// Whether the API server still has the block of the honest node's file and the address of its pod as that node's.
    pub(super) fn keeps_its_own(&self) -> bool {
        let machine = &self.machines[VICTIM];
        let is_shared = || self.is_shared();
        let is_owner = || {
            self.block
                .as_ref()
                .is_some_and(|block| block.record.machine() == VICTIM)
        };
        let block = match machine.file.map(|file| file.mode) {
            None => true,
            // The controller deletes a shared block without address objects. The node's file may still list the block.
            Some(Mode::Sharing | Mode::Shared) => !machine.pod || is_owner() || is_shared(),
            Some(_) => is_owner() || is_shared(),
        };
        let has_object = || {
            self.address
                .as_ref()
                .is_some_and(|address| address.machine == VICTIM)
        };
        block && (!machine.pod || machine.lease != Lease::Published || has_object())
    }
}

fn theft() -> Scenario {
    Scenario {
        thief: true,
        controllers: 1,
        machines_fail: true,
        fault_kinds: &[Fault::Crash],
        ..requests()
    }
}

#[test]
fn a_stolen_token_takes_nothing_from_another_node() {
    assert_eq!(violation(theft()), None);
}

#[test]
#[ignore = "seconds: tests/all runs it"]
fn a_stolen_token_takes_nothing_from_another_node_while_blocks_are_shared() {
    let scenario = Scenario {
        sharing: true,
        epochs: 1,
        ..theft()
    };
    assert_eq!(violation(scenario), None);
}

/// The policies of 4c1f4ba: any node's agent can orphan a block, and then any node can take it.
#[test]
fn the_model_detects_policies_that_let_any_agent_orphan_a_block() {
    let rules = Rules {
        admits: |world, op| {
            let was = world
                .block
                .as_ref()
                .map(|block| (&block.record, block.record.phase));
            world.admits(op)
                || match (op, was) {
                    (Op::Swap { to, .. }, Some((record, _))) if to.phase == Phase::Orphaned => {
                        to.owner == record.owner
                    }
                    (Op::Swap { to, .. }, Some((_, Phase::Orphaned))) => to.machine() == THIEF,
                    (Op::Delete { .. }, Some((_, Phase::Orphaned))) => true,
                    _ => false,
                }
        },
        ..Rules::default()
    };
    let violation = violation(Scenario { rules, ..theft() });
    assert!(violation.is_some_and(|violation| violation.contains(KEPT)));
}
