// SPDX-License-Identifier: Apache-2.0
//! Every order in which things can happen to a block, and what must hold in each.

use super::world::{Agent, Lease, MACHINES, Machine, Op, Rules, Sender, View, World};
use crate::block::orphan::Verdict;
use crate::block::owner::{Me, Step, Wish};
use crate::block::{Held, Mode, Phase, Seen, Use};
use stateright::{Checker, HasDiscoveries, Model, Property};

const UNIQUE: &str = "one address, one pod";
const COMES_FREE: &str = "the block comes free once faults and pods end";
const BOTH: &str = "both machines have had the address";

/// What may happen.
#[expect(clippy::struct_excessive_bools, reason = "each is a dimension of its own")]
#[derive(Clone)]
struct Story {
    rules: Rules,
    keepers: usize,
    /// How many crashes, cuts, power failures and lost registrations.
    faults: u8,
    /// Whether agents may turn blocks into shared ones.
    sharing: bool,
    /// Whether agents may take over blocks of the other machine.
    heirs: bool,
    /// Whether machines fail as a whole: power, network, registration.
    machines_fail: bool,
    /// Whether the Node of a machine is deleted only if the machine is dead or hears of it.
    fenced: bool,
    /// Whether each state is followed to its end.
    ends: bool,
    /// How many requests may be on their way at once.
    wire: usize,
    /// How often a block may change hands before a path is not followed further.
    epochs: u64,
}

impl Default for Story {
    fn default() -> Self {
        Self {
            rules: Rules::default(),
            keepers: 1,
            faults: 1,
            sharing: false,
            heirs: false,
            machines_fail: true,
            fenced: true,
            ends: false,
            wire: 1,
            epochs: 2,
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Event {
    Add(usize),
    Del(usize),
    Look(usize),
    Act(usize, Wish),
    Claim(usize),
    Inherit(usize),
    Write(usize),
    Confirm(usize),
    GiveUp(usize),
    TakeShared(usize),
    Unshare,
    Check(usize),
    Release(usize),
    Crash(usize),
    Restart(usize),
    Execute(usize, bool),
    PowerOff(usize),
    PowerOn(usize),
    Cut(usize),
    Heal(usize),
    DeleteNode(usize),
    Register(usize),
    CollectPods(usize),
    Judge(usize),
    QuarantinePasses,
}

impl Story {
    fn agent_events(&self, world: &World, m: usize, events: &mut Vec<Event>) {
        let machine = &world.machines[m];
        let room = world.wire.len() < self.wire;
        match &machine.agent {
            Agent::Down => events.push(Event::Restart(m)),
            Agent::Idle(view) => {
                if !machine.cut {
                    events.push(Event::Look(m));
                }
                if let Some(view) = view {
                    let wishes: &[Wish] = if self.sharing {
                        &[Wish::Keep, Wish::Return, Wish::Share]
                    } else if self.heirs {
                        &[Wish::Keep, Wish::Return]
                    } else {
                        &[Wish::Keep, Wish::Drain, Wish::Return]
                    };
                    events.extend(wishes.iter().map(|wish| Event::Act(m, *wish)));
                    if room && !machine.cut {
                        self.request_events(view, machine, m, events);
                        if self.heirs {
                            events.push(Event::Inherit(m));
                        }
                    }
                }
            }
            Agent::Waiting(..) => events.push(Event::GiveUp(m)),
            Agent::Writing(_) => events.push(Event::Write(m)),
            Agent::Checking(..) if !machine.cut => events.push(Event::Check(m)),
            Agent::Checking(..) => {}
        }
        if machine.agent != Agent::Down && world.faults < self.faults && (m == 0 || !self.machines_fail) {
            events.push(Event::Crash(m));
        }
    }

    fn request_events(&self, view: &View, machine: &Machine, m: usize, events: &mut Vec<Event>) {
        let (lease, file) = (machine.lease, machine.file);
        match (&view.block, &view.me) {
            (None, Me::Registered(_)) if file.is_none() => events.push(Event::Claim(m)),
            (Some(block), _)
                if block.seen.phase == Phase::Shared
                    && lease == Lease::None
                    && self.sharing
                    && view.address.as_ref().is_none_or(|address| address.machine == m) =>
            {
                events.push(Event::TakeShared(m));
            }
            (Some(block), Me::Registered(me))
                if file.is_some_and(|f| f.epoch == block.seen.epoch) && block.seen.owner == *me =>
            {
                events.push(Event::Confirm(m));
            }
            _ => {}
        }
        let mine = view.address.as_ref().is_some_and(|address| address.machine == m);
        if mine && matches!(lease, Lease::None | Lease::Releasing) || lease == Lease::Releasing {
            events.push(Event::Release(m));
        }
    }

    fn machine_events(&self, world: &World, m: usize, events: &mut Vec<Event>) {
        let machine = &world.machines[m];
        let fault = world.faults < self.faults;
        if !machine.on {
            events.push(Event::PowerOn(m));
        }
        if fault {
            if machine.on {
                events.push(Event::PowerOff(m));
            }
            if machine.on && !machine.cut {
                events.push(Event::Cut(m));
            }
            if world.nodes[m].is_some() && (!self.fenced || !machine.on || !machine.cut) {
                events.push(Event::DeleteNode(m));
            }
        }
        if machine.cut {
            events.push(Event::Heal(m));
        }
        if world.nodes[m].is_none() {
            events.push(Event::Register(m));
            if world.bound[m] {
                events.push(Event::CollectPods(m));
            }
        }
    }

    /// An agent that has decided takes its step.
    fn act(&self, world: &mut World, m: usize, wish: Wish) -> Option<()> {
        let (view, step) = world.decide(&self.rules, m, wish)?;
        let sends = matches!(
            step,
            Step::Swap { .. } | Step::Touch | Step::Delete | Step::Publish
        );
        let room = world.wire.len() < self.wire;
        if sends && (world.machines[m].cut || !room) || step == Step::Rest {
            return None;
        }
        let version = view.block.as_ref().map_or(0, |block| block.version);
        let idle = world.usage(m).is_idle();
        let machine = &mut world.machines[m];
        machine.agent = Agent::Idle(None);
        match step {
            Step::Rest => return None,
            Step::Swap { to, then } => world.send(m, Op::Swap { version, to }, then),
            Step::Touch => {
                let to = view.block.map(|block| block.seen)?;
                world.send(m, Op::Swap { version, to }, None);
            }
            Step::Hold(held) => machine.file = Some(held),
            Step::Withdraw if idle || !self.rules.idle_check => machine.file = None,
            Step::Withdraw => {}
            Step::Forfeit => machine.file = None,
            Step::Delete => world.send(m, Op::Delete { version }, None),
            Step::Publish => world.send(m, Op::CreateAddress(m), None),
        }
        Some(())
    }

    /// A request reaches the API server; its answer, if it is not lost, reaches who waits for it.
    fn execute(&self, world: &mut World, index: usize, lost: bool) {
        let (sender, op) = world.wire.remove(index);
        let done = world.execute(&self.rules, &op);
        let Sender::Agent(m) = sender else { return };
        let Agent::Waiting(waiting, then) = world.machines[m].agent.clone() else {
            return;
        };
        if lost || waiting != op {
            return;
        }
        let exists = matches!(op, Op::Create(_)) && !self.rules.claim_check;
        let machine = &mut world.machines[m];
        machine.agent = match (&op, then) {
            (_, Some(held)) if done || exists => Agent::Writing(held),
            (Op::CreateAddress(_), None) if done && machine.lease == Lease::Local => {
                machine.lease = Lease::Published;
                Agent::Idle(None)
            }
            (Op::CreateAddress(_) | Op::TouchAddress { .. }, None) if done => {
                Agent::Checking(world.address.as_ref().map_or(0, |address| address.uid))
            }
            (Op::DeleteAddress { .. }, None) if machine.lease == Lease::Releasing => {
                machine.lease = Lease::None;
                Agent::Idle(None)
            }
            _ => Agent::Idle(None),
        };
    }

    fn judge(&self, world: &mut World, keeper: usize) -> Option<()> {
        let (block, verdict) = world.verdict(&self.rules, keeper)?;
        let op = match verdict {
            Verdict::Leave => return None,
            Verdict::Watch => {
                world.keepers[keeper].watched = Some((block.version, false));
                return Some(());
            }
            Verdict::Orphan => Op::Swap {
                version: block.version,
                to: block.seen.turned(Phase::Orphaned),
            },
            Verdict::End => Op::Delete {
                version: block.version,
            },
        };
        let sent = (Sender::Keeper(keeper), op);
        if world.wire.len() >= self.wire || world.wire.contains(&sent) {
            return None;
        }
        world.wire.push(sent);
        Some(())
    }

    /// The keeper ends a shared block of which it sees no address.
    fn unshare(&self, world: &mut World) -> Option<()> {
        let version = world.block.as_ref().map(|block| block.version)?;
        let sent = (Sender::Keeper(0), Op::Delete { version });
        if !world.is_shared()
            || world.address.is_some()
            || world.wire.len() >= self.wire
            || world.wire.contains(&sent)
        {
            return None;
        }
        world.wire.push(sent);
        Some(())
    }

    /// An agent whose pool is full looks at a block that the other machine has left.
    fn inherit(&self, world: &mut World, m: usize) -> Option<()> {
        let (me, block, verdict) = world.inheritance(&self.rules, m)?;
        match verdict {
            Verdict::Watch => world.heirs[m].watched = Some((block.version, false)),
            Verdict::End => {
                let to = block.seen.handed_to(&me);
                let then = to.held(Mode::Active);
                world.send(
                    m,
                    Op::Swap {
                        version: block.version,
                        to,
                    },
                    Some(then),
                );
            }
            Verdict::Leave | Verdict::Orphan => return None,
        }
        Some(())
    }

    fn quarantine(&self, world: &mut World) -> Option<()> {
        let version = world.block.as_ref().map(|block| block.version);
        let waits =
            |watched: Option<(u8, bool)>| watched.is_some_and(|(v, ripe)| Some(v) == version && !ripe);
        let mut watches = world.keepers.iter().chain(&world.heirs);
        if !watches.any(|keeper| waits(keeper.watched)) || self.fenced && !world.owner_is_done() {
            return None;
        }
        for keeper in world.keepers.iter_mut().chain(&mut world.heirs) {
            keeper.watched = keeper.watched.map(|(v, ripe)| (v, ripe || Some(v) == version));
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

impl Story {
    /// Whether the block comes free once nothing fails any more and all pods end; `dead`: the first machine never comes
    /// back and its Node is deleted.
    fn comes_free(&self, world: &World, dead: bool) -> bool {
        let mut world = world.clone();
        for event in [Event::PowerOff(0), Event::DeleteNode(0), Event::CollectPods(0)] {
            if dead {
                world.fail(&event);
            }
        }
        for _ in 0..12 {
            for m in usize::from(dead)..MACHINES {
                self.work_off(&mut world, m);
            }
            for keeper in 0..MACHINES + self.keepers {
                let _ = self.judge(&mut world, keeper);
                let _ = self.quarantine(&mut world);
            }
            let _ = self.unshare(&mut world);
            while !world.wire.is_empty() {
                self.execute(&mut world, 0, false);
            }
            world.settle_names();
        }
        // What a dead machine has of a shared block is the keeper's to end, as blocks of it are.
        (world.block.is_none() || dead && world.is_shared()) && (world.address.is_none() || dead)
    }

    /// A machine on which all is well goes one round.
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
            let _ = world.happen(self, &Event::Del(m));
        }
        match world.machines[m].agent {
            Agent::Down => world.fail(&Event::Restart(m)),
            Agent::Waiting(..) => drop(world.happen(self, &Event::GiveUp(m))),
            Agent::Writing(_) => drop(world.happen(self, &Event::Write(m))),
            Agent::Checking(..) => drop(world.happen(self, &Event::Check(m))),
            Agent::Idle(_) => {}
        }
        let _ = world.happen(self, &Event::Look(m));
        let lease = world.machines[m].lease;
        let mine = world.address.as_ref().is_some_and(|address| address.machine == m);
        if lease == Lease::Releasing || lease == Lease::None && mine {
            let _ = world.release(m);
        } else {
            let _ = self.act(world, m, Wish::Return);
        }
    }
}

impl World {
    fn send(&mut self, m: usize, op: Op, then: Option<Held>) {
        self.wire.push((Sender::Agent(m), op.clone()));
        self.machines[m].agent = Agent::Waiting(op, then);
    }

    fn view(&self, m: usize) -> Option<&View> {
        match &self.machines[m].agent {
            Agent::Idle(view) => view.as_ref(),
            _ => None,
        }
    }

    fn claim(&mut self, m: usize) -> Option<()> {
        let Me::Registered(me) = self.view(m)?.me.clone() else {
            return None;
        };
        let seen = Seen::claimed(&me);
        let then = seen.held(Mode::Active);
        self.send(m, Op::Create(seen), Some(then));
        Some(())
    }

    fn release(&mut self, m: usize) -> Option<()> {
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

    /// The machine makes the address' object its own: a new one, or one of its own that it finds.
    fn take_shared(&mut self, rules: &Rules, m: usize) -> Option<()> {
        let found = self.view(m)?.address.as_ref().map(|address| address.uid);
        match found {
            None => self.send(m, Op::CreateAddress(m), None),
            Some(uid) if rules.touch_found => self.send(m, Op::TouchAddress { uid }, None),
            Some(uid) => self.machines[m].agent = Agent::Checking(uid),
        }
        Some(())
    }

    /// The object of the address is there; only if the block is shared still may a pod have it.
    fn check(&mut self, rules: &Rules, m: usize) -> Option<()> {
        let Agent::Checking(_) = self.machines[m].agent else {
            return None;
        };
        let good = self.is_shared() || !rules.check_shared;
        let machine = &mut self.machines[m];
        machine.agent = Agent::Idle(None);
        if good && machine.lease == Lease::None {
            machine.lease = Lease::Published;
            machine.pod = true;
        }
        Some(())
    }

    /// The answer came that lets the machine have the block. An address of it that is an object stays out of the file.
    fn write(&mut self, rules: &Rules, m: usize) -> Option<()> {
        let Agent::Writing(held) = self.machines[m].agent else {
            return None;
        };
        let new = self.machines[m].file.is_none() && matches!(held.mode, Mode::Active | Mode::Draining);
        if !(new && self.address.is_some() && rules.list_after_claim) {
            self.machines[m].file = Some(held);
        }
        self.machines[m].agent = Agent::Idle(None);
        Some(())
    }

    fn happen(&mut self, story: &Story, event: &Event) -> Option<()> {
        match *event {
            Event::Add(m) => {
                self.machines[m].lease = Lease::Local;
                self.machines[m].pod = true;
                self.bound[m] |= !self.machines[m].cut && self.nodes[m].is_some();
            }
            Event::Del(m) => {
                let machine = &mut self.machines[m];
                machine.pod = false;
                machine.lease = if machine.lease == Lease::Published {
                    Lease::Releasing
                } else {
                    Lease::None
                };
            }
            Event::Look(m) => self.machines[m].agent = Agent::Idle(Some(self.look(m))),
            Event::Act(m, wish) => story.act(self, m, wish)?,
            Event::Claim(m) => self.claim(m)?,
            Event::Inherit(m) => story.inherit(self, m)?,
            Event::Write(m) => self.write(&story.rules, m)?,
            Event::Confirm(m) => {
                self.machines[m].confirmed = true;
                self.machines[m].young = true;
            }
            Event::GiveUp(m) => self.machines[m].agent = Agent::Idle(None),
            Event::TakeShared(m) => self.take_shared(&story.rules, m)?,
            Event::Unshare => story.unshare(self)?,
            Event::Check(m) => self.check(&story.rules, m)?,
            Event::Release(m) => self.release(m)?,
            Event::Execute(index, lost) => story.execute(self, index, lost),
            Event::Judge(keeper) => story.judge(self, keeper)?,
            Event::QuarantinePasses => story.quarantine(self)?,
            _ => self.fail(event),
        }
        Some(())
    }

    /// What goes wrong, and comes back.
    fn fail(&mut self, event: &Event) {
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
                self.machines[m].agent = Agent::Down;
                self.heirs[m].watched = None;
            }
            Event::Restart(m) => self.machines[m].agent = Agent::Idle(None),
            Event::PowerOff(m) => {
                let machine = &mut self.machines[m];
                (machine.on, machine.pod, machine.agent) = (false, false, Agent::Down);
                self.heirs[m].watched = None;
            }
            Event::PowerOn(m) => {
                let machine = &mut self.machines[m];
                (machine.on, machine.confirmed) = (true, false);
                // Leases of an earlier boot are nobody's, but their objects are there still.
                machine.lease = Lease::None;
            }
            Event::Cut(m) => self.machines[m].cut = true,
            Event::Heal(m) => self.machines[m].cut = false,
            Event::DeleteNode(m) => self.nodes[m] = None,
            Event::Register(m) => self.nodes[m] = Some(self.new_registration()),
            Event::CollectPods(m) => self.bound[m] = false,
            _ => {}
        }
    }
}

impl Model for Story {
    type State = World;
    type Action = Event;

    fn init_states(&self) -> Vec<World> {
        vec![World::start(self.keepers)]
    }

    fn actions(&self, world: &World, events: &mut Vec<Event>) {
        for m in 0..MACHINES {
            if world.machines[m].on {
                if world.may_add(&self.rules, m) {
                    events.push(Event::Add(m));
                }
                if world.machines[m].pod {
                    events.push(Event::Del(m));
                }
                self.agent_events(world, m, events);
            }
            // The machines are alike: one that fails and one that does not is every case of one failure.
            if self.machines_fail && m == 0 {
                self.machine_events(world, m, events);
            }
        }
        if self.sharing {
            events.push(Event::Unshare);
        }
        for index in 0..world.wire.len() {
            events.push(Event::Execute(index, false));
            if matches!(world.wire[index].0, Sender::Agent(m) if matches!(world.machines[m].agent, Agent::Waiting(..)))
            {
                events.push(Event::Execute(index, true));
            }
        }
        if self.machines_fail {
            events.extend((0..MACHINES + self.keepers).map(Event::Judge));
            events.push(Event::QuarantinePasses);
        }
    }

    fn next_state(&self, world: &World, event: Event) -> Option<World> {
        let mut after = world.clone();
        after.happen(self, &event)?;
        after.settle_names();
        Some(after)
    }

    fn within_boundary(&self, world: &World) -> bool {
        world
            .block
            .as_ref()
            .is_none_or(|block| block.seen.epoch <= self.epochs)
            && world.nodes.iter().flatten().all(|registration| *registration < 6)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![
            Property::always(UNIQUE, |_, world: &World| world.pods() <= 1),
            Property::always(COMES_FREE, |story: &Self, world: &World| {
                !story.ends
                    || (story.comes_free(world, false)
                        && (!story.machines_fail || story.comes_free(world, true)))
            }),
            Property::sometimes(BOTH, |_, world: &World| {
                world.machines[1].pod && world.machines[0].agent != Agent::Idle(None)
            }),
        ]
    }
}

#[expect(clippy::print_stderr, reason = "tests/all shows how much a test did")]
fn tell(checker: &impl Checker<Story>) {
    eprintln!("did: {} states of a block", checker.unique_state_count());
}

/// What leads to two pods with one address, or to a block that stays taken.
fn mishap(story: Story) -> Option<String> {
    let checker = story
        .checker()
        .finish_when(HasDiscoveries::AnyFailures)
        .threads(2)
        .spawn_bfs()
        .join();
    tell(&checker);
    for name in [UNIQUE, COMES_FREE] {
        if let Some(path) = checker.discovery(name) {
            return Some(format!("not {name:?} after {:?}", path.into_actions()));
        }
    }
    assert!(
        checker.discovery(BOTH).is_some(),
        "the story is too short to show anything"
    );
    None
}

fn requests() -> Story {
    Story {
        machines_fail: false,
        keepers: 0,
        ..Story::default()
    }
}

#[test]
fn lost_and_late_answers_and_a_crash_leave_an_address_with_one_pod() {
    assert_eq!(mishap(requests()), None);
}

#[test]
#[ignore = "a minute: tests/all runs it"]
fn sharing_a_block_leaves_an_address_with_one_pod() {
    let story = Story {
        sharing: true,
        epochs: 1,
        ..requests()
    };
    assert_eq!(mishap(story), None);
}

#[test]
#[ignore = "a minute: tests/all runs it"]
fn a_machine_that_fails_leaves_an_address_with_one_pod() {
    assert_eq!(mishap(Story::default()), None);
}

#[test]
#[ignore = "a minute: tests/all runs it"]
fn a_block_that_is_taken_over_leaves_an_address_with_one_pod() {
    let story = Story {
        heirs: true,
        ..Story::default()
    };
    assert_eq!(mishap(story), None);
}

#[test]
#[ignore = "a minute: tests/all runs it"]
fn two_keepers_leave_an_address_with_one_pod() {
    let story = Story {
        keepers: 2,
        epochs: 1,
        ..Story::default()
    };
    assert_eq!(mishap(story), None);
}

#[test]
#[ignore = "a minute: tests/all runs it"]
fn from_every_state_the_block_comes_free() {
    let story = Story {
        ends: true,
        ..requests()
    };
    assert_eq!(mishap(story), None);
    let story = Story {
        ends: true,
        epochs: 1,
        ..Story::default()
    };
    assert_eq!(mishap(story), None);
    let story = Story {
        ends: true,
        sharing: true,
        epochs: 1,
        ..requests()
    };
    assert_eq!(mishap(story), None);
}

/// Ten million states: `cargo test --release -p agent --lib -- --ignored more_faults`.
#[test]
#[ignore = "minutes and gigabytes: run it by hand after a change of the transitions"]
fn more_faults_and_requests_leave_an_address_with_one_pod() {
    let requests = || Story {
        wire: 2,
        ..requests()
    };
    assert_eq!(
        mishap(Story {
            faults: 2,
            ..requests()
        }),
        None
    );
    assert_eq!(
        mishap(Story {
            sharing: true,
            ..requests()
        }),
        None
    );
    assert_eq!(
        mishap(Story {
            heirs: true,
            epochs: 3,
            ..Story::default()
        }),
        None
    );
    assert_eq!(
        mishap(Story {
            faults: 2,
            ..Story::default()
        }),
        None
    );
}

/// The model sees each guard missing.
mod without {
    use super::*;
    use crate::block::orphan::{NodeSight, judge};
    use crate::block::owner::next;
    use std::time::Duration;

    fn assert_noticed(rules: Rules, mut story: Story) {
        story.rules = rules;
        let mishap = mishap(story);
        assert!(mishap.is_some_and(|mishap| mishap.contains(UNIQUE)));
    }

    #[test]
    fn the_swap_before_a_block_comes_back_into_the_file() {
        let rules = Rules {
            next: |me, seen, held, usage, wish| match next(me, seen, held, usage, wish) {
                Step::Swap { then: Some(_), .. } if held.is_none() => {
                    Step::Hold(seen.unwrap().held(Mode::Active))
                }
                step => step,
            },
            ..Rules::default()
        };
        assert_noticed(rules, requests());
    }

    #[test]
    fn preconditions() {
        assert_noticed(
            Rules {
                preconditions: false,
                ..Rules::default()
            },
            requests(),
        );
    }

    #[test]
    fn a_look_at_the_leases_before_a_block_is_returned() {
        let rules = Rules {
            idle_check: false,
            next: |me, seen, held, _, wish| next(me, seen, held, Use::default(), wish),
            ..Rules::default()
        };
        assert_noticed(rules, requests());
    }

    #[test]
    fn a_look_at_whose_a_block_is_that_was_there_before() {
        assert_noticed(
            Rules {
                claim_check: false,
                ..Rules::default()
            },
            requests(),
        );
    }

    #[test]
    fn an_object_for_each_address_before_a_block_is_shared() {
        let rules = Rules {
            next: |me, seen, held, mut usage, wish| {
                usage.unpublished = 0;
                next(me, seen, held, usage, wish)
            },
            ..Rules::default()
        };
        assert_noticed(
            rules,
            Story {
                sharing: true,
                ..requests()
            },
        );
    }

    #[test]
    fn the_end_of_giving_before_addresses_become_objects() {
        let rules = Rules {
            next: |me, seen, held, usage, wish| match next(me, seen, held, usage, wish) {
                Step::Hold(Held {
                    mode: Mode::Sharing, ..
                }) => Step::Swap {
                    to: seen.unwrap().turned(Phase::Shared),
                    then: Some(seen.unwrap().held(Mode::Shared)),
                },
                step => step,
            },
            ..Rules::default()
        };
        assert_noticed(
            rules,
            Story {
                sharing: true,
                ..requests()
            },
        );
    }

    fn sharing() -> Story {
        Story {
            sharing: true,
            ..requests()
        }
    }

    #[test]
    fn a_look_for_objects_after_a_claim() {
        let rules = Rules {
            list_after_claim: false,
            ..Rules::default()
        };
        let story = Story { wire: 2, ..sharing() };
        assert_noticed(rules, story);
    }

    #[test]
    fn a_look_at_the_block_after_an_address_of_it_was_made() {
        let rules = Rules {
            check_shared: false,
            ..Rules::default()
        };
        assert_noticed(rules, sharing());
    }

    #[test]
    fn a_new_version_of_an_object_that_was_there_already() {
        let rules = Rules {
            touch_found: false,
            ..Rules::default()
        };
        let story = Story {
            faults: 2,
            wire: 2,
            ..sharing()
        };
        assert_noticed(rules, story);
    }

    #[test]
    fn the_quarantine() {
        let rules = Rules {
            judge: |seen, node, watched| {
                let watched = watched.cloned().map(|mut watched| {
                    watched.unchanged = Duration::MAX;
                    watched
                });
                judge(seen, "v", node, watched.as_ref(), Duration::ZERO)
            },
            ..Rules::default()
        };
        assert_noticed(
            rules,
            Story {
                faults: 2,
                ..Story::default()
            },
        );
    }

    #[test]
    fn the_question_to_the_agent_after_a_reboot() {
        assert_noticed(
            Rules {
                reboot_guard: false,
                ..Rules::default()
            },
            Story {
                faults: 2,
                ..Story::default()
            },
        );
    }

    #[test]
    fn a_time_limit_on_what_an_answer_is_good_for() {
        assert_noticed(
            Rules {
                fresh_answers: false,
                ..Rules::default()
            },
            Story::default(),
        );
    }

    #[test]
    fn a_look_at_the_version_when_a_block_is_taken_over() {
        assert_noticed(
            Rules {
                preconditions: false,
                ..Rules::default()
            },
            Story {
                heirs: true,
                ..Story::default()
            },
        );
    }

    #[test]
    fn a_wait_for_the_pods_of_a_node_whose_block_is_taken_over() {
        let rules = Rules {
            judge: |seen, node, watched| {
                let node = NodeSight {
                    registered: None,
                    has_pods: false,
                    ..node.clone()
                };
                let watched = watched.cloned().map(|mut watched| {
                    watched.unchanged = Duration::MAX;
                    watched
                });
                judge(seen, "v", &node, watched.as_ref(), Duration::ZERO)
            },
            ..Rules::default()
        };
        assert_noticed(
            rules,
            Story {
                heirs: true,
                ..Story::default()
            },
        );
    }

    /// The one thing that no agent can guard against (`crate::block::orphan`).
    #[test]
    fn the_promise_that_a_deleted_node_is_dead() {
        assert_noticed(
            Rules::default(),
            Story {
                fenced: false,
                faults: 2,
                ..Story::default()
            },
        );
    }
}
