// SPDX-License-Identifier: Apache-2.0
//! The model checker: every order of events that can happen to a block, and the properties that must hold in each state.

mod enabled;
mod explore;
mod liveness;
mod mutations;
mod reduction;
mod scenarios;
mod snapshot;
mod thief;
mod transitions;

use super::world::{Agent, MACHINES, Op, Rules, Sender, World};
use crate::owner::Desired;
use stateright::{Checker, HasDiscoveries, Model, Property};

const UNIQUE: &str = "one address, one pod";
const COMES_FREE: &str = "the block comes free once faults and pods end";
const KEPT: &str = "a stolen token takes no block and no address of another node";
const BOTH: &str = "both machines have had the address";

/// How a machine may fail.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fault {
    /// The machine's agent is killed.
    Crash,
    /// The machine loses power.
    Power,
    /// The machine loses its connection to the API server.
    Network,
    /// The machine's Node is deleted.
    Registration,
    /// The machine loses power, and its Node is deleted.
    Death,
    /// The API server loses the block: an administrator deletes it, or etcd is restored to a time before the claim.
    Erasure,
    /// etcd is restored from an earlier snapshot. The administrator follows docs/operate.md: the pool selects no node at first.
    Restore,
}

/// The events that a model run allows.
#[expect(clippy::struct_excessive_bools, reason = "each is a dimension of its own")]
#[derive(Clone)]
struct Scenario {
    rules: Rules,
    controllers: usize,
    /// The maximum number of failures.
    faults: u8,
    /// The kinds of failure.
    fault_kinds: &'static [Fault],
    /// Whether agents may share blocks.
    sharing: bool,
    /// Whether only the first machine claims blocks, and keeps or shares them. The other machine takes addresses of shared
    /// blocks.
    one_owner: bool,
    /// Whether whole machines fail: power, network, registration.
    machines_fail: bool,
    /// Whether both machines fail, each once; otherwise only the first one fails.
    both_fail: bool,
    /// Whether the Node of a machine is deleted only if the machine is dead or its agent learns of the deletion.
    fenced: bool,
    /// Whether no node claims a lost block before the node whose file has it, and the pool selects its nodes again only after each agent
    /// is ready. The docs require this after a restore of etcd.
    orderly: bool,
    /// Whether the second machine is a thief: it has its own node's token, runs no agent, and sends every request that the
    /// policies admit.
    thief: bool,
    /// Whether equivalent states are merged.
    forgets: bool,
    /// Whether each state is followed to its end.
    ends: bool,
    /// The maximum number of requests in flight.
    wire: usize,
    /// The maximum number of owner changes of a block on a path; longer paths are cut off.
    epochs: u64,
}

impl Default for Scenario {
    fn default() -> Self {
        Self {
            rules: Rules::default(),
            controllers: 1,
            faults: 1,
            fault_kinds: &[Fault::Crash, Fault::Power, Fault::Network, Fault::Registration],
            sharing: false,
            one_owner: false,
            machines_fail: true,
            both_fail: false,
            fenced: true,
            orderly: true,
            thief: false,
            forgets: true,
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
    Act(usize, Desired),
    Claim(usize),
    Report(usize),
    Vouch(usize),
    Write(usize),
    Confirm(usize),
    /// The agent closes the block of a file that another boot wrote longer than a quarantine ago.
    Close(usize),
    GiveUp(usize),
    TakeShared(usize),
    Unshare,
    Check(usize),
    Release(usize),
    Keep(usize),
    /// The agent creates or renews the object of a lease that no block of its file covers.
    Publish(usize),
    Crash(usize),
    Restart(usize),
    Execute(usize, bool),
    PowerOff(usize),
    PowerOn(usize),
    Cut(usize),
    Heal(usize),
    DeleteNode(usize),
    Erase,
    TakeSnapshot,
    Restore,
    /// The pool selects its nodes again.
    Select,
    Die(usize),
    Register(usize),
    CollectPods(usize),
    /// The thief sends this request, and the API server executes it at once.
    Steal(Op),
    Decider(usize),
    DecideAddress(usize),
    QuarantinePasses,
}

impl Model for Scenario {
    type State = World;
    type Action = Event;

    fn init_states(&self) -> Vec<World> {
        let mut world = World::start(self.controllers);
        if self.thief {
            world.machines[thief::THIEF].agent = Agent::Down;
        }
        vec![world]
    }

    fn actions(&self, world: &World, events: &mut Vec<Event>) {
        for m in (0..MACHINES).filter(|m| !self.thief || *m != thief::THIEF) {
            if world.machines[m].on {
                if world.may_add(&self.rules, m) {
                    events.push(Event::Add(m));
                }
                if world.machines[m].pod {
                    events.push(Event::Del(m));
                }
                self.agent_events(world, m, events);
            }
            if self.machines_fail && (m == 0 || self.both_fail) {
                self.machine_events(world, m, events);
            }
        }
        self.restore_events(world, events);
        if self.sharing {
            events.push(Event::Unshare);
        }
        if self.thief {
            events.extend(self.thefts(world));
        }
        for index in 0..world.wire.len() {
            events.push(Event::Execute(index, false));
            if matches!(world.wire[index].0, Sender::Agent(m) if matches!(world.machines[m].agent, Agent::Waiting(..)))
            {
                events.push(Event::Execute(index, true));
            }
        }
        if self.machines_fail {
            events.extend((0..MACHINES + self.controllers).map(Event::Decider));
            if self.sharing {
                events.extend((MACHINES..MACHINES + self.controllers).map(Event::DecideAddress));
            }
            events.push(Event::QuarantinePasses);
        }
    }

    fn next_state(&self, world: &World, event: Event) -> Option<World> {
        let mut after = world.clone();
        after.apply(self, &event)?;
        if self.forgets {
            self.forget(&mut after);
        }
        after.settle_names();
        Some(after)
    }

    fn within_boundary(&self, world: &World) -> bool {
        world
            .block
            .as_ref()
            .is_none_or(|block| block.record.epoch <= self.epochs)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![
            Property::always(UNIQUE, |_, world: &World| world.pods() <= 1),
            Property::always(COMES_FREE, |scenario: &Self, world: &World| {
                !scenario.ends
                    || scenario
                        .deaths()
                        .iter()
                        .all(|dead| scenario.comes_free(world, *dead))
            }),
            Property::always(KEPT, |scenario: &Self, world: &World| {
                !scenario.thief || world.keeps_its_own()
            }),
            Property::sometimes(BOTH, |scenario: &Self, world: &World| {
                let second = if scenario.thief {
                    world.is_stolen()
                } else {
                    world.machines[1].pod
                };
                second && world.machines[0].agent != Agent::Idle(None)
            }),
        ]
    }
}

#[expect(clippy::print_stderr, reason = "tests/all shows how much a test did")]
fn print_states(states: usize) {
    eprintln!("did: {states} states of a block");
}

/// A path that violates a property, such as two pods with one address or a block that is never released; none without a
/// violation.
fn violation(scenario: Scenario) -> Option<String> {
    let checker = scenario
        .checker()
        .finish_when(HasDiscoveries::AnyFailures)
        .threads(2)
        .spawn_bfs()
        .join();
    print_states(checker.unique_state_count());
    for name in [UNIQUE, COMES_FREE, KEPT] {
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
