// SPDX-License-Identifier: Apache-2.0
//! The events that may happen next.

use super::{Event, Fault, Scenario};
use crate::Phase;
use crate::owner::{Desired, NodeIdentity};
use crate::tests::world::{Agent, Lease, MACHINES, Snapshot, View, World};

impl Scenario {
    /// Whether machine `m` may fail in this way, now or later. If only one machine fails, it is the first: the machines are
    /// interchangeable.
    pub(super) fn may_still(&self, world: &World, m: usize, how: Fault) -> bool {
        let whose = match (self.machines_fail, self.both_fail) {
            (false, _) => how == Fault::Crash,
            (true, false) => m == 0,
            (true, true) => !world.failed[m],
        };
        whose && world.faults < self.faults && self.fault_kinds.contains(&how)
    }

    /// Whether machine `m` may fail in this way now. If both machines fail, the first one fails first, unless only that one
    /// claims blocks.
    fn may_fail(&self, world: &World, m: usize, how: Fault) -> bool {
        let turn = m == 0 || !self.both_fail || self.one_owner || world.failed[0];
        turn && self.may_still(world, m, how)
    }

    pub(super) fn agent_events(&self, world: &World, m: usize, events: &mut Vec<Event>) {
        let machine = &world.machines[m];
        let room = world.wire.len() < self.wire;
        match &machine.agent {
            Agent::Down => events.push(Event::Restart(m)),
            Agent::Idle(_) if world.must_close(&self.rules, m) => events.push(Event::Close(m)),
            Agent::Idle(view) => {
                if !machine.is_mute() {
                    events.push(Event::Look(m));
                }
                if let Some(view) = view {
                    let desired_uses: &[Desired] = if world.deselected {
                        &[Desired::Drain]
                    } else if self.one_owner {
                        &[Desired::Keep, Desired::Share]
                    } else if self.sharing {
                        &[Desired::Keep, Desired::Return, Desired::Share]
                    } else {
                        &[Desired::Keep, Desired::Drain, Desired::Return]
                    };
                    events.extend(desired_uses.iter().map(|desired| Event::Act(m, *desired)));
                    if room && !machine.is_mute() {
                        self.request_events(world, view, m, events);
                    }
                }
            }
            Agent::Waiting(..) => events.push(Event::GiveUp(m)),
            Agent::Writing(_) => events.push(Event::Write(m)),
            Agent::Checking if !machine.is_mute() => events.push(Event::Check(m)),
            Agent::Checking => {}
        }
        if machine.agent != Agent::Down && self.may_fail(world, m, Fault::Crash) {
            events.push(Event::Crash(m));
        }
    }

    fn request_events(&self, world: &World, view: &View, m: usize, events: &mut Vec<Event>) {
        let machine = &world.machines[m];
        let (lease, file) = (machine.lease, machine.file);
        let mine = view.address.as_ref().is_some_and(|address| address.machine == m);
        match (&view.block, &view.me) {
            (None, NodeIdentity::Registered(_))
                if file.is_none() && !world.deselected && (m == 0 || !self.one_owner) =>
            {
                let other = &world.machines[1 - m];
                let claims_again = other.file.is_some() || matches!(other.agent, Agent::Writing(_));
                if !(world.erased && self.orderly && claims_again) {
                    events.push(Event::Claim(m));
                }
            }
            (Some(block), NodeIdentity::Registered(_))
                if block.record.phase == Phase::Shared
                    && lease == Lease::None
                    && self.sharing
                    && !world.deselected
                    && (mine || view.address.is_none()) =>
            {
                events.push(Event::TakeShared(m));
            }
            (Some(block), NodeIdentity::Registered(me))
                if file.is_some_and(|f| f.epoch == block.record.epoch) && block.record.owner == *me =>
            {
                events.push(Event::Confirm(m));
            }
            _ => {}
        }
        if mine && matches!(lease, Lease::Local | Lease::Published) && self.machines_fail {
            events.push(Event::Keep(m));
        }
        let others = view.address.is_some() && !mine;
        if !others && world.lacks_object(&self.rules, m, view.address.as_ref()) {
            events.push(Event::Publish(m));
        }
        if self.machines_fail && file.is_some() {
            events.push(Event::Report(m));
        }
        if mine && matches!(lease, Lease::None | Lease::Releasing) || lease == Lease::Releasing {
            events.push(Event::Release(m));
        }
    }

    /// A snapshot of etcd, its restore, and the end of what follows the restore.
    pub(super) fn restore_events(&self, world: &World, events: &mut Vec<Event>) {
        if self.may_restore(world) {
            match world.snapshot {
                Snapshot::None => events.push(Event::TakeSnapshot),
                Snapshot::Taken { .. } => events.push(Event::Restore),
                Snapshot::Used => {}
            }
        }
        if world.deselected && (!self.orderly || (0..MACHINES).all(|m| world.is_settled(&self.rules, m))) {
            events.push(Event::Select);
        }
    }

    /// Whether etcd may be restored, now or later.
    pub(super) fn may_restore(&self, world: &World) -> bool {
        world.faults < self.faults && self.fault_kinds.contains(&Fault::Restore)
    }

    pub(super) fn machine_events(&self, world: &World, m: usize, events: &mut Vec<Event>) {
        let machine = &world.machines[m];
        if !machine.on {
            events.push(Event::PowerOn(m));
        }
        if machine.on && self.may_fail(world, m, Fault::Power) {
            events.push(Event::PowerOff(m));
        }
        if machine.on && !machine.cut && self.may_fail(world, m, Fault::Network) {
            events.push(Event::Cut(m));
        }
        let fenced = !machine.on || !machine.cut || !self.fenced;
        if world.nodes[m].is_some() && fenced && self.may_fail(world, m, Fault::Registration) {
            events.push(Event::DeleteNode(m));
        }
        let is_mine = world
            .block
            .as_ref()
            .is_some_and(|block| block.record.machine() == m);
        if is_mine && !world.is_shared() && self.may_fail(world, m, Fault::Erasure) {
            events.push(Event::Erase);
        }
        if machine.on && world.nodes[m].is_some() && self.may_fail(world, m, Fault::Death) {
            events.push(Event::Die(m));
        }
        if machine.cut {
            events.push(Event::Heal(m));
        }
        if world.nodes[m].is_none() {
            events.push(Event::Register(m));
            let collects = world.bound[m] || machine.on && !machine.silenced;
            if collects && (world.has_spoken(&self.rules, m) || !self.fenced) {
                events.push(Event::CollectPods(m));
            }
            if !machine.on && !machine.young {
                events.push(Event::Vouch(m));
            }
        }
    }
}
