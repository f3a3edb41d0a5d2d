// SPDX-License-Identifier: Apache-2.0
//! Applies events to the world.

use super::{Event, Scenario};
use crate::orphan::OrphanAction;
use crate::owner::{Desired, NodeIdentity, Step};
use crate::tests::world::{
    Address, Agent, Lease, NEW, Object, Observer, Op, Rules, Sender, View, World, registration,
};
use crate::{BlockRecord, LocalBlock, Mode, Phase, address};

impl Scenario {
    /// An agent decides and takes its step.
    pub(super) fn act(&self, world: &mut World, m: usize, desired: Desired) -> Option<()> {
        let (view, step) = world.decide(&self.rules, m, desired)?;
        let sends = matches!(
            step,
            Step::Replace { .. } | Step::Claim { .. } | Step::Report | Step::Delete | Step::Publish
        );
        let room = world.wire.len() < self.wire;
        if sends && (world.machines[m].is_mute() || !room) || step == Step::None {
            return None;
        }
        let version = view.block.as_ref().map_or(0, |block| block.version);
        let idle = world.usage(&self.rules, m, None).is_idle();
        let objects = self.rules.list_after_draining && world.address.is_some();
        let machine = &mut world.machines[m];
        machine.agent = Agent::Idle(None);
        match step {
            Step::None => return None,
            Step::Replace { to, then } => world.send(m, Op::Swap { version, to }, then),
            Step::Claim { to, then } => world.send(
                m,
                Op::Create {
                    record: to,
                    used: true,
                },
                Some(then),
            ),
            Step::Report => {
                world.send(m, Op::Report { version, used: true }, None);
            }
            // The node lists the objects in a block before it allocates from it again. The block has no other address. A block
            // with leases stays in the file.
            Step::WriteFile(local) if local.mode == Mode::Active && objects && idle => machine.file = None,
            Step::WriteFile(local) if local.mode == Mode::Active && objects => {}
            Step::WriteFile(local) => machine.file = Some(local),
            Step::RemoveIfIdle if idle || !self.rules.idle_check => machine.file = None,
            Step::RemoveIfIdle => {}
            Step::Remove => machine.file = None,
            Step::Delete => world.send(m, Op::Delete { version }, None),
            Step::Publish => world.publish(m, &view)?,
        }
        Some(())
    }

    /// A request reaches the API server. Its answer, if not lost, reaches the waiting sender.
    pub(super) fn execute(&self, world: &mut World, index: usize, lost: bool) {
        let (sender, op) = world.wire.remove(index);
        let done = world.execute(&self.rules, &op);
        let Sender::Agent(m) = sender else { return };
        let Agent::Waiting(waiting, then) = world.machines[m].agent.clone() else {
            return;
        };
        if lost || waiting != op {
            return;
        }
        let exists = matches!(op, Op::Create { .. }) && !self.rules.claim_check;
        let machine = &mut world.machines[m];
        machine.agent = match (&op, then) {
            (_, Some(local)) if done || exists => Agent::Writing(local),
            (Op::CreateAddress { .. } | Op::TouchAddress { .. }, None)
                if done && matches!(machine.lease, Lease::Local | Lease::Published) =>
            {
                machine.published = true;
                Agent::Idle(None)
            }
            (Op::CreateAddress { .. } | Op::TouchAddress { .. }, None) if done => Agent::Checking,
            (Op::DeleteAddress { .. }, None) if done && machine.lease == Lease::Releasing => {
                machine.lease = Lease::None;
                Agent::Idle(None)
            }
            _ => Agent::Idle(None),
        };
    }

    pub(super) fn decide(&self, world: &mut World, observer: usize) -> Option<()> {
        let (block, decision) = world.decision(&self.rules, observer)?;
        let op = match decision {
            OrphanAction::Leave | OrphanAction::Hold => return None,
            OrphanAction::Observe => {
                world.observers[observer].watched = Some((block.version, false));
                return Some(());
            }
            OrphanAction::Orphan => Op::Swap {
                version: block.version,
                to: block.record.with_phase(Phase::Orphaned),
            },
            OrphanAction::Delete => Op::Delete {
                version: block.version,
            },
        };
        self.send_of_controller(world, observer, op)
    }

    /// The same about the address.
    pub(super) fn decide_address(&self, world: &mut World, observer: usize) -> Option<()> {
        let (address, decision) = world.address_decision(&self.rules, observer)?;
        let uid = address.uid;
        let op = match decision {
            OrphanAction::Leave | OrphanAction::Hold => return None,
            OrphanAction::Observe => {
                world.observers[observer].address = Some((uid, false));
                return Some(());
            }
            OrphanAction::Orphan => Op::SwapAddress {
                uid,
                machine: address.machine,
                registration: address.registration,
                orphaned: true,
            },
            OrphanAction::Delete => Op::DeleteAddress { uid },
        };
        self.send_of_controller(world, observer, op)
    }

    fn send_of_controller(&self, world: &mut World, observer: usize, op: Op) -> Option<()> {
        let sent = (Sender::Controller(observer), op);
        if world.wire.len() >= self.wire || world.wire.contains(&sent) {
            return None;
        }
        world.wire.push(sent);
        Some(())
    }

    /// The controller deletes a shared block without address objects.
    pub(super) fn unshare(&self, world: &mut World) -> Option<()> {
        let version = world.block.as_ref().map(|block| block.version)?;
        if !world.is_shared() || world.address.is_some() {
            return None;
        }
        self.send_of_controller(world, 0, Op::Delete { version })
    }

    pub(super) fn quarantine(&self, world: &mut World) -> Option<()> {
        let (block, address) = world.versions();
        let block = block.filter(|_| !self.fenced || world.block_stays(&self.rules));
        let address = address.filter(|_| !self.fenced || world.address_stays(&self.rules));
        let mut passes = false;
        let mut ripen = |watched: &mut Option<(u8, bool)>, stays: Option<u8>| {
            if let Some((version, ripe @ false)) = watched
                && Some(*version) == stays
            {
                (*ripe, passes) = (true, true);
            }
        };
        for observer in &mut world.observers {
            ripen(&mut observer.watched, block);
            ripen(&mut observer.address, address);
        }
        if !passes {
            return None;
        }
        for machine in &mut world.machines {
            machine.young = false;
            if self.rules.fresh_answers && machine.agent != Agent::Down {
                machine.agent = Agent::Idle(None);
            }
        }
        Some(())
    }
}

impl World {
    fn send(&mut self, m: usize, op: Op, then: Option<LocalBlock>) {
        self.wire.push((Sender::Agent(m), op.clone()));
        self.machines[m].agent = Agent::Waiting(op, then);
    }

    /// The agent creates or renews the object of its lease.
    fn publish(&mut self, m: usize, view: &View) -> Option<()> {
        let machine = m;
        let registration = registration(&view.me)?;
        let mine = view.address.as_ref().filter(|address| address.machine == m);
        let op = match mine {
            Some(address) => Op::TouchAddress { uid: address.uid },
            None => Op::CreateAddress {
                machine,
                registration,
            },
        };
        self.send(m, op, None);
        Some(())
    }

    fn view(&self, m: usize) -> Option<&View> {
        match &self.machines[m].agent {
            Agent::Idle(view) => view.as_ref(),
            _ => None,
        }
    }

    /// The agent reports whether the address is in use, if the object has another value.
    fn report(&mut self, m: usize) -> Option<()> {
        let view = self.view(m)?;
        let block = view.block.as_ref()?;
        let mine = match &view.me {
            NodeIdentity::Registered(me) => block.record.owner == *me,
            // The node allocates nothing any more.
            NodeIdentity::Gone(_) => {
                let mode = self.machines[m].file.map(|file| file.mode);
                block.record.machine() == m && mode.is_some_and(|mode| mode != Mode::Active)
            }
        };
        let used = self.has_lease(m);
        if !mine || block.record.phase == Phase::Shared || block.used == used {
            return None;
        }
        let version = block.version;
        self.send(m, Op::Report { version, used }, None);
        Some(())
    }

    /// An administrator who knows that the machine has been off for longer than a quarantine releases its orphaned objects.
    fn vouch(&mut self, m: usize) -> Option<()> {
        if !self.is_held(m) {
            return None;
        }
        let left = |block: &Object| block.record.machine() == m && block.record.phase == Phase::Orphaned;
        self.block = self.block.take().filter(|block| !left(block));
        let left = |address: &Address| address.machine == m && address.orphaned;
        self.address = self.address.take().filter(|address| !left(address));
        Some(())
    }

    fn claim(&mut self, m: usize) -> Option<()> {
        let NodeIdentity::Registered(me) = self.view(m)?.me.clone() else {
            return None;
        };
        let record = BlockRecord::claimed(&me);
        let then = record.local(Mode::Active);
        self.send(m, Op::Create { record, used: false }, Some(then));
        Some(())
    }

    pub(super) fn release(&mut self, m: usize) -> Option<()> {
        match self
            .view(m)?
            .address
            .clone()
            .filter(|address| address.machine == m)
        {
            Some(address) => self.send(m, Op::DeleteAddress { uid: address.uid }, None),
            None => self.machines[m].lease = Lease::None,
        }
        Some(())
    }

    /// The machine binds the address: it creates the object, or renews one of its own.
    fn take_shared(&mut self, rules: &Rules, m: usize) -> Option<()> {
        let view = self.view(m)?;
        let found = view.address.as_ref().map(|address| address.uid);
        let registration = registration(&view.me)?;
        let machine = m;
        let create = Op::CreateAddress {
            machine,
            registration,
        };
        match found {
            None => self.send(m, create, None),
            Some(uid) if rules.touch_found => self.send(m, Op::TouchAddress { uid }, None),
            Some(_) => self.machines[m].agent = Agent::Checking,
        }
        Some(())
    }

    /// The address object exists. A pod may have the address only if the block is still shared.
    fn check(&mut self, rules: &Rules, m: usize) -> Option<()> {
        if self.machines[m].agent != Agent::Checking {
            return None;
        }
        let good = self.is_shared() || !rules.check_shared;
        let machine = &mut self.machines[m];
        machine.agent = Agent::Idle(None);
        if good && machine.lease == Lease::None {
            machine.lease = Lease::Published;
            machine.pod = true;
            self.bound[m] |= !self.machines[m].cut && self.nodes[m].is_some();
        }
        Some(())
    }

    /// The agent renews the address object for a lease in its store.
    fn keep(&mut self, rules: &Rules, m: usize) -> Option<()> {
        let view = self.view(m)?;
        let address = view.address.clone().filter(|address| address.machine == m)?;
        let record = address.record();
        let step = (rules.next_address)(&view.me, &record.owner, record.phase);
        let uid = address.uid;
        let (registration, orphaned) = match step {
            address::Step::None => return None,
            address::Step::Orphan => (address.registration, true),
            address::Step::Bind(to) => (to.uid.parse().ok()?, false),
        };
        let swap = Op::SwapAddress {
            uid,
            machine: m,
            registration,
            orphaned,
        };
        self.send(m, swap, None);
        Some(())
    }

    /// The answer that gives the machine the block has arrived, and the agent writes the file. If the address has an object, the
    /// file gets no entry, since the block has no other address. An entry with a lease stays.
    fn write(&mut self, rules: &Rules, m: usize) -> Option<()> {
        let Agent::Writing(local) = self.machines[m].agent else {
            return None;
        };
        let file = self.machines[m].file;
        let is_draining =
            file.is_some_and(|file| file.mode == Mode::Draining) && local.mode == Mode::Draining;
        let again = is_draining && self.machines[m].lease == Lease::None;
        let new = (file.is_none() || again) && matches!(local.mode, Mode::Active | Mode::Draining);
        let local = Some(local).filter(|_| !(new && self.address.is_some() && rules.list_after_claim));
        self.machines[m].file = local;
        self.machines[m].agent = Agent::Idle(None);
        Some(())
    }

    pub(super) fn apply(&mut self, scenario: &Scenario, event: &Event) -> Option<()> {
        match *event {
            Event::Add(m) => {
                self.machines[m].lease = Lease::Local;
                self.machines[m].pod = true;
                self.bound[m] |= !self.machines[m].cut && self.nodes[m].is_some();
            }
            Event::Del(m) => {
                let machine = &mut self.machines[m];
                (machine.pod, machine.published) = (false, false);
                machine.lease = if machine.lease == Lease::Published {
                    Lease::Releasing
                } else {
                    Lease::None
                };
            }
            Event::Look(m) => self.machines[m].agent = Agent::Idle(Some(self.look(m))),
            Event::Act(m, desired) => scenario.act(self, m, desired)?,
            Event::Claim(m) => self.claim(m)?,
            Event::Report(m) => self.report(m)?,
            Event::Vouch(m) => self.vouch(m)?,
            Event::Write(m) => self.write(&scenario.rules, m)?,
            Event::Confirm(m) => {
                self.machines[m].confirmed = true;
                self.machines[m].young = true;
            }
            Event::Close(m) => {
                let file = &mut self.machines[m].file;
                *file = file.map(|local| LocalBlock {
                    mode: Mode::Draining,
                    ..local
                });
            }
            Event::GiveUp(m) => self.machines[m].agent = Agent::Idle(None),
            Event::TakeShared(m) => self.take_shared(&scenario.rules, m)?,
            Event::Unshare => scenario.unshare(self)?,
            Event::Select => self.deselected = false,
            Event::Check(m) => self.check(&scenario.rules, m)?,
            Event::Release(m) => self.release(m)?,
            Event::Keep(m) => self.keep(&scenario.rules, m)?,
            Event::Publish(m) => self.publish(m, &self.view(m)?.clone())?,
            Event::TakeSnapshot => self.take_snapshot(),
            Event::Execute(index, lost) => scenario.execute(self, index, lost),
            Event::Steal(ref op) => self.execute(&scenario.rules, op).then_some(())?,
            Event::Decider(observer) => scenario.decide(self, observer)?,
            Event::DecideAddress(observer) => scenario.decide_address(self, observer)?,
            Event::QuarantinePasses => scenario.quarantine(self)?,
            _ => {
                self.fail(event);
                self.note_failure(scenario, event);
            }
        }
        Some(())
    }

    fn note_failure(&mut self, scenario: &Scenario, event: &Event) {
        if let Event::Crash(m) | Event::PowerOff(m) | Event::Cut(m) | Event::DeleteNode(m) | Event::Die(m) =
            *event
            && scenario.both_fail
        {
            self.failed[m] = true;
        }
    }

    /// Applies failures and recoveries.
    pub(super) fn fail(&mut self, event: &Event) {
        self.faults += u8::from(!matches!(
            event,
            Event::Restart(_)
                | Event::Heal(_)
                | Event::Register(_)
                | Event::CollectPods(_)
                | Event::PowerOn(_)
        ));
        match *event {
            Event::Crash(m) => {
                let machine = &mut self.machines[m];
                (machine.agent, machine.published) = (Agent::Down, false);
                self.forget_watched(m);
            }
            Event::Restart(m) => self.machines[m].agent = Agent::Idle(None),
            Event::PowerOff(m) => self.power_off(m),
            Event::Die(m) => {
                self.power_off(m);
                self.nodes[m] = None;
            }
            Event::PowerOn(m) => {
                let machine = &mut self.machines[m];
                (machine.on, machine.confirmed) = (true, false);
                // Leases of an earlier boot are void, but their objects still exist.
                machine.lease = Lease::None;
            }
            // The API server restarts without the object. Requests that were sent before never take effect.
            Event::Erase => {
                self.block = None;
                self.erased = true;
                self.wire.clear();
            }
            Event::Restore => self.restore(),
            Event::Cut(m) => self.machines[m].cut = true,
            Event::Heal(m) => self.machines[m].cut = false,
            Event::DeleteNode(m) => self.nodes[m] = None,
            Event::Register(m) => {
                self.nodes[m] = Some(NEW);
                self.machines[m].silenced = false;
            }
            // The agent's Pod is among them, so its token becomes invalid.
            Event::CollectPods(m) => {
                self.bound[m] = false;
                self.machines[m].silenced = self.machines[m].on;
            }
            _ => {}
        }
    }

    fn power_off(&mut self, m: usize) {
        let machine = &mut self.machines[m];
        (machine.on, machine.pod, machine.agent) = (false, false, Agent::Down);
        machine.published = false;
        // The kubelet registers the node when it starts.
        machine.silenced = false;
        self.forget_watched(m);
    }

    /// The observations of an agent end with its process.
    fn forget_watched(&mut self, m: usize) {
        self.observers[m] = Observer::default();
    }
}
