// SPDX-License-Identifier: Apache-2.0
//! Which states are one.
//!
//! Holds always: a state can do all that the one which it is taken for can do, and the other way round. So fewer states show the same.

use super::stories::{requests, sharing_while_a_machine_fails};
use super::{Failure, Story};
use crate::owner::next;
use crate::tests::world::{Agent, MACHINES, Op, Rules, Sender, World};
use stateright::{Checker, Model, StateRecorder};
use std::collections::HashSet;

impl Story {
    /// Forgets what makes no difference any more.
    pub(super) fn forget(&self, world: &mut World) {
        if self.rules.preconditions {
            // They miss whenever they arrive, and their senders need not wait for that.
            let (block, address) = world.versions();
            world.wire.retain(|(_, op)| match op {
                Op::Swap { version, .. } | Op::Delete { version } => Some(*version) == block,
                Op::TouchAddress { uid } | Op::SwapAddress { uid, .. } | Op::DeleteAddress { uid } => {
                    Some(*uid) == address
                }
                Op::Create(_) | Op::CreateAddress { .. } => true,
            });
        }
        for m in 0..MACHINES {
            self.forget_of(world, m);
        }
        let (block, address) = world.versions();
        for keeper in &mut world.keepers {
            keeper.watched = keeper.watched.filter(|(version, _)| Some(*version) == block);
            keeper.address = keeper.address.filter(|(version, _)| Some(*version) == address);
        }
    }

    fn forget_of(&self, world: &mut World, m: usize) {
        let loses = |how: &[Failure]| how.iter().any(|how| self.may_still(world, m, *how));
        let starts_again = loses(&[Failure::Power, Failure::Death]);
        let goes = loses(&[Failure::Registration, Failure::Death]);
        let machine = &mut world.machines[m];
        // The answer is lost: all that is left is to give up.
        if let Agent::Waiting(op, _) = &machine.agent
            && !world.wire.contains(&(Sender::Agent(m), op.clone()))
        {
            machine.agent = Agent::Idle(None);
        }
        // For the next start, of which there is none.
        if machine.confirmed && machine.on && !starts_again {
            machine.young = false;
        }
        // For whoever finds no Node of it.
        if world.nodes[m].is_some() && !goes {
            world.bound[m] = false;
        }
    }
}

/// All states of `story`, without what makes no difference.
fn states(story: Story) -> HashSet<World> {
    let (recorder, states) = StateRecorder::new_with_accessor();
    let like = story.clone();
    story.checker().visitor(recorder).spawn_bfs().join();
    let settled = states().into_iter().map(|mut world| {
        like.forget(&mut world);
        world.settle_names();
        world
    });
    settled.collect()
}

/// Returns whether an address has two pods in one of them.
fn assert_nothing_is_left_out(story: Story) -> bool {
    let all = states(Story {
        forgets: false,
        ..story.clone()
    });
    assert!(all == states(story));
    all.iter().any(|world| world.pods() > 1)
}

fn sharing_while_a_machine_crashes_or_is_cut_off() -> Story {
    Story {
        failures: &[Failure::Crash, Failure::Network],
        ..sharing_while_a_machine_fails()
    }
}

#[test]
#[ignore = "ten seconds: run it by hand with more_faults"]
fn more_faults_what_is_forgotten_while_a_block_is_shared_makes_no_difference() {
    assert!(!assert_nothing_is_left_out(
        sharing_while_a_machine_crashes_or_is_cut_off()
    ));
}

#[test]
#[ignore = "ten seconds: run it by hand with more_faults"]
fn more_faults_what_is_forgotten_hides_nothing_that_goes_wrong_while_a_block_is_shared() {
    let rules = Rules {
        next: |me, seen, held, mut usage, wish| {
            usage.unpublished = 0;
            next(me, seen, held, usage, wish)
        },
        ..Rules::default()
    };
    assert!(assert_nothing_is_left_out(Story {
        rules,
        ..sharing_while_a_machine_crashes_or_is_cut_off()
    }));
}

#[test]
fn what_is_forgotten_of_requests_makes_no_difference() {
    assert_nothing_is_left_out(requests());
}

#[test]
#[ignore = "minutes and gigabytes: run it by hand after a change of the model"]
fn more_faults_what_is_forgotten_of_machines_makes_no_difference() {
    assert_nothing_is_left_out(Story::default());
    assert_nothing_is_left_out(Story {
        heirs: true,
        ..Story::default()
    });
    assert_nothing_is_left_out(Story {
        epochs: 1,
        faults: 2,
        ..Story::default()
    });
    assert_nothing_is_left_out(sharing_while_a_machine_fails());
}
