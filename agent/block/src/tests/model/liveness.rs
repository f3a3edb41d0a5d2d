// SPDX-License-Identifier: Apache-2.0
//! Whether a block is released in the end.

use super::{Event, Scenario};
use crate::owner::Desired;
use crate::tests::world::{Agent, Lease, MACHINES, World};

impl Scenario {
    /// The sets of machines that may never come back.
    pub(super) fn deaths(&self) -> &'static [[bool; MACHINES]] {
        let all = &[[false, false], [true, false], [false, true], [true, true]];
        match (self.machines_fail, self.both_fail) {
            (false, _) => &all[..1],
            (true, false) => &all[..2],
            (true, true) => all,
        }
    }

    /// Whether the block is released once nothing fails any more and all pods end. The `dead` machines never come back, and their
    /// Nodes are deleted.
    pub(super) fn comes_free(&self, world: &World, dead: [bool; MACHINES]) -> bool {
        let mut world = world.clone();
        for m in (0..MACHINES).filter(|m| dead[*m]) {
            for event in [Event::PowerOff(m), Event::DeleteNode(m), Event::CollectPods(m)] {
                world.fail(&event);
            }
        }
        for _ in 0..12 {
            for m in (0..MACHINES).filter(|m| !dead[*m]) {
                self.work_off(&mut world, m);
            }
            for observer in 0..MACHINES + self.controllers {
                let _ = self.decide(&mut world, observer);
                if observer >= MACHINES {
                    let _ = self.decide_address(&mut world, observer);
                }
                let _ = self.quarantine(&mut world);
            }
            for m in (0..MACHINES).filter(|m| dead[*m]) {
                if !world.machines[m].young {
                    let _ = world.apply(self, &Event::Vouch(m));
                }
            }
            let _ = self.unshare(&mut world);
            while !world.wire.is_empty() {
                self.execute(&mut world, 0, false);
            }
            self.forget(&mut world);
            world.settle_names();
            if world.block.is_none() && world.address.is_none() {
                return true;
            }
        }
        false
    }

    /// A healthy machine runs one round.
    fn work_off(&self, world: &mut World, m: usize) {
        let machine = &world.machines[m];
        if !machine.on {
            world.fail(&Event::PowerOn(m));
        }
        world.fail(&Event::Heal(m));
        if world.nodes[m].is_none() {
            world.fail(&Event::Register(m));
        }
        if world.machines[m].pod {
            let _ = world.apply(self, &Event::Del(m));
        }
        match world.machines[m].agent {
            Agent::Down => world.fail(&Event::Restart(m)),
            Agent::Waiting(..) => drop(world.apply(self, &Event::GiveUp(m))),
            Agent::Writing(_) => drop(world.apply(self, &Event::Write(m))),
            Agent::Checking => drop(world.apply(self, &Event::Check(m))),
            Agent::Idle(_) => {}
        }
        let _ = world.apply(self, &Event::Look(m));
        let lease = world.machines[m].lease;
        let mine = world.address.as_ref().is_some_and(|address| address.machine == m);
        if lease == Lease::Releasing || lease == Lease::None && mine {
            let _ = world.release(m);
        } else {
            let _ = self.act(world, m, Desired::Return);
        }
    }
}
