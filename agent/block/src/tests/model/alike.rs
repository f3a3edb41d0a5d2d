// SPDX-License-Identifier: Apache-2.0
//! Which states are one.
//!
//! Holds always: a state can do all that the one which it is taken for can do, and the other way round. So fewer states show the same.

use super::stories::{requests, sharing_while_a_machine_fails};
use super::{Failure, Story};
use crate::tests::world::{Agent, MACHINES, Op, Sender, World};
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
        let machine = &mut world.machines[m];
        // The answer is lost: all that is left is to give up.
        if let Agent::Waiting(op, _) = &machine.agent
            && !world.wire.contains(&(Sender::Agent(m), op.clone()))
        {
            machine.agent = Agent::Idle(None);
        }
        let safe = m != 0 || !self.machines_fail || world.faults >= self.faults;
        let loses = |how: &[Failure]| !safe && self.failures.iter().any(|failure| how.contains(failure));
        // For the next start, of which there is none.
        if machine.confirmed && machine.on && !loses(&[Failure::Power, Failure::Death]) {
            machine.young = false;
        }
        // For whoever finds no Node of it.
        if world.nodes[m].is_some() && !loses(&[Failure::Registration, Failure::Death]) {
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

fn assert_nothing_is_left_out(story: Story) {
    let all = Story {
        forgets: false,
        ..story.clone()
    };
    assert!(states(all) == states(story));
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
