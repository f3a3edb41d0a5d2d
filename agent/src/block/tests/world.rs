// SPDX-License-Identifier: Apache-2.0
//! One block with one address, an API server, the requests on their way to it, two machines and two keepers: what can
//! happen to them, one thing at a time. All decisions are those of the daemon.

use crate::block::orphan::{Judge, NodeSight, Verdict, Watched, judge};
use crate::block::owner::{Me, Step, Wish, next};
use crate::block::{Held, Mode, Owner, Phase, Seen, Use};
use std::time::Duration;

pub(super) const MACHINES: usize = 2;
const QUARANTINE: Duration = Duration::from_secs(600);

/// A number that is new each time and compared only for equality: a UID or a resource version.
pub(super) type Stamp = u8;

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct Object {
    pub(super) seen: Seen,
    pub(super) uid: Stamp,
    pub(super) version: Stamp,
}

/// The object of the address.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct Address {
    pub(super) machine: usize,
    pub(super) uid: Stamp,
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum Op {
    Create(Seen),
    Swap {
        version: Stamp,
        to: Seen,
    },
    Delete {
        version: Stamp,
    },
    CreateAddress(usize),
    /// Makes a late deletion of the address miss.
    TouchAddress {
        uid: Stamp,
    },
    DeleteAddress {
        uid: Stamp,
    },
}

/// Who sent a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum Sender {
    Agent(usize),
    Keeper(usize),
}

/// What an agent has read, some time ago.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct View {
    pub(super) me: Me,
    pub(super) block: Option<Object>,
    pub(super) address: Option<Address>,
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum Agent {
    Down,
    Idle(Option<View>),
    /// Waits for the answer to a request, to write this into the file.
    Waiting(Op, Option<Held>),
    /// Has the answer, and is about to write this.
    Writing(Held),
    /// Has made this object of the address its own and must see that the block is shared still.
    Checking(Stamp),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum Lease {
    None,
    /// Known to this node's store alone.
    Local,
    /// Has an object of its own.
    Published,
    /// Given back here; its object is still there.
    Releasing,
}

#[expect(clippy::struct_excessive_bools, reason = "each is a state of its own")]
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct Machine {
    pub(super) on: bool,
    /// The API server cannot be reached.
    pub(super) cut: bool,
    /// The file says that an agent saw this node registered less than a quarantine ago.
    pub(super) young: bool,
    /// An agent has compared the file with the API since the machine started.
    pub(super) confirmed: bool,
    pub(super) file: Option<Held>,
    pub(super) agent: Agent,
    pub(super) lease: Lease,
    /// A pod with the address lives.
    pub(super) pod: bool,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct Keeper {
    /// The version that it watches, and whether the quarantine has passed since.
    pub(super) watched: Option<(Stamp, bool)>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct World {
    pub(super) block: Option<Object>,
    pub(super) address: Option<Address>,
    /// The registration of each node, if it has one.
    pub(super) nodes: [Option<Stamp>; MACHINES],
    /// Whether Pod objects are bound to each node.
    pub(super) bound: [bool; MACHINES],
    pub(super) machines: [Machine; MACHINES],
    /// Who judges blocks: each machine's agent those of its namesakes, and then the keepers.
    pub(super) keepers: Vec<Keeper>,
    /// What each machine's agent watches to take it over.
    pub(super) heirs: [Keeper; MACHINES],
    /// Sent and not executed yet; whoever sent it may have given up waiting.
    pub(super) wire: Vec<(Sender, Op)>,
    pub(super) faults: u8,
}

/// The decisions, replaceable to show that the model notices a missing guard.
#[expect(clippy::struct_excessive_bools, reason = "each is a guard of its own")]
#[derive(Clone)]
pub(super) struct Rules {
    pub(super) next: fn(&Me, Option<&Seen>, Option<Held>, Use, Wish) -> Step,
    pub(super) judge: fn(&Seen, &NodeSight, Option<&Watched>) -> Verdict,
    /// Whether requests carry the version that was read.
    pub(super) preconditions: bool,
    /// Whether the plugin asks for a young file, or an agent, after a reboot.
    pub(super) reboot_guard: bool,
    /// Whether a block leaves the file only if it is idle.
    pub(super) idle_check: bool,
    /// Whether a name that was taken is looked at before it is used.
    pub(super) claim_check: bool,
    /// Whether addresses that are objects are looked for before a claimed block is given from.
    pub(super) list_after_claim: bool,
    /// Whether an address' object that was there already is changed before it is used.
    pub(super) touch_found: bool,
    /// Whether the block is looked at after the address' object was made.
    pub(super) check_shared: bool,
    /// Whether what was read or answered is thrown away before a quarantine can have passed since.
    pub(super) fresh_answers: bool,
}

impl Default for Rules {
    fn default() -> Self {
        Self {
            next,
            judge: |seen, node, watched| judge(seen, "v", node, watched, QUARANTINE),
            preconditions: true,
            reboot_guard: true,
            idle_check: true,
            claim_check: true,
            list_after_claim: true,
            touch_found: true,
            check_shared: true,
            fresh_answers: true,
        }
    }
}

pub(super) fn owner(machine: usize, registration: Stamp) -> Owner {
    Owner {
        node: ["a", "b"][machine].into(),
        uid: registration.to_string().into(),
    }
}

impl Keeper {
    fn watched(&self, block: &Object) -> Option<Watched> {
        self.watched.map(|(version, ripe)| Watched {
            version: if version == block.version { "v" } else { "other" }.into(),
            unchanged: if ripe { QUARANTINE } else { Duration::ZERO },
        })
    }
}

impl World {
    pub(super) fn start(keepers: usize) -> Self {
        let machine = Machine {
            on: true,
            cut: false,
            young: true,
            confirmed: true,
            file: None,
            agent: Agent::Idle(None),
            lease: Lease::None,
            pod: false,
        };
        Self {
            block: None,
            address: None,
            nodes: [Some(1), Some(2)],
            bound: [false; MACHINES],
            machines: [machine.clone(), machine],
            keepers: vec![Keeper::default(); MACHINES + keepers],
            heirs: Default::default(),
            wire: Vec::new(),
            faults: 0,
        }
    }

    pub(super) fn pods(&self) -> usize {
        self.machines.iter().filter(|machine| machine.pod).count()
    }

    /// Every stamp in use, at its place.
    fn stamps(&mut self) -> Vec<&mut Stamp> {
        let mut all = Vec::new();
        let objects = self
            .machines
            .iter_mut()
            .filter_map(|machine| match &mut machine.agent {
                Agent::Idle(Some(view)) => Some((view.block.as_mut(), view.address.as_mut(), None)),
                Agent::Waiting(op, _) => Some((None, None, Some(op))),
                Agent::Checking(address) => {
                    all.push(address);
                    None
                }
                _ => None,
            });
        let wire = self.wire.iter_mut().map(|(_, op)| (None, None, Some(op)));
        let own = [(self.block.as_mut(), self.address.as_mut(), None)];
        let mut places: Vec<_> = Vec::new();
        places.extend(objects);
        for (block, address, op) in places.into_iter().chain(wire).chain(own) {
            all.extend(
                block
                    .into_iter()
                    .flat_map(|object| [&mut object.uid, &mut object.version]),
            );
            all.extend(address.map(|address| &mut address.uid));
            if let Some(
                Op::Swap { version, .. }
                | Op::Delete { version }
                | Op::TouchAddress { uid: version }
                | Op::DeleteAddress { uid: version },
            ) = op
            {
                all.push(version);
            }
        }
        all.extend(
            self.keepers
                .iter_mut()
                .chain(&mut self.heirs)
                .filter_map(|keeper| Some(&mut keeper.watched.as_mut()?.0)),
        );
        all
    }

    /// Renames stamps to the smallest numbers: they are compared for equality only, so this joins states that are alike.
    pub(super) fn settle_names(&mut self) {
        let mut known: Vec<Stamp> = self.stamps().into_iter().map(|stamp| *stamp).collect();
        known.sort_unstable();
        known.dedup();
        for stamp in self.stamps() {
            let rank = known.binary_search(stamp).unwrap();
            *stamp = u8::try_from(rank).unwrap() + 1;
        }
        self.wire.sort();
    }

    /// A stamp that is nowhere in use.
    pub(super) fn fresh(&mut self) -> Stamp {
        self.stamps().into_iter().map(|stamp| *stamp).max().unwrap_or(0) + 1
    }

    /// A registration that no object and no node has.
    pub(super) fn new_registration(&self) -> Stamp {
        self.nodes
            .iter()
            .flatten()
            .max()
            .map_or(3, |last| last + 1)
            .max(3)
    }

    pub(super) fn usage(&self, machine: usize) -> Use {
        let lease = self.machines[machine].lease;
        Use {
            leased: u64::from(matches!(lease, Lease::Local | Lease::Published)),
            unpublished: u64::from(lease == Lease::Local),
            resting: u64::from(lease == Lease::Releasing),
        }
    }

    pub(super) fn look(&self, machine: usize) -> View {
        let me = match self.nodes[machine] {
            Some(registration) => Me::Registered(owner(machine, registration)),
            None => Me::Gone(owner(machine, 0).node),
        };
        View {
            me,
            block: self.block.clone(),
            address: self.address.clone(),
        }
    }

    /// What the agent of `machine` would do about a block of the other's that it has read, if it needs one; what is known
    /// of the other is read now.
    pub(super) fn inheritance(&self, rules: &Rules, machine: usize) -> Option<(Owner, Object, Verdict)> {
        let Agent::Idle(Some(View {
            me: Me::Registered(me),
            block: Some(block),
            ..
        })) = &self.machines[machine].agent
        else {
            return None;
        };
        if block.seen.phase != Phase::Orphaned
            || block.seen.owner.node == me.node
            || self.machines[machine].file.is_some()
        {
            return None;
        }
        let other = 1 - machine;
        let sight = NodeSight {
            judge: Judge::Keeper,
            registered: self.nodes[other].map(|registration| owner(other, registration)),
            has_pods: self.bound[other],
        };
        let watched = self.heirs[machine].watched(block);
        let verdict = (rules.judge)(&block.seen, &sight, watched.as_ref());
        Some((me.clone(), block.clone(), verdict))
    }

    /// What a keeper would do now.
    pub(super) fn verdict(&self, rules: &Rules, keeper: usize) -> Option<(Object, Verdict)> {
        let block = self.block.clone()?;
        let machine = usize::from(*block.seen.owner.node == *"b");
        let sight = NodeSight {
            judge: if keeper < MACHINES {
                Judge::Namesake
            } else {
                Judge::Keeper
            },
            registered: self.nodes[machine].map(|registration| owner(machine, registration)),
            has_pods: self.bound[machine],
        };
        let watched = self.keepers[keeper].watched(&block);
        if let Some(agent) = self.machines.get(keeper) {
            let able = agent.on && !agent.cut && agent.agent != Agent::Down && agent.file.is_none();
            if !able || keeper != machine {
                return None;
            }
        }
        let verdict = (rules.judge)(&block.seen, &sight, watched.as_ref());
        Some((block, verdict))
    }

    /// Executes a request at the API server; whether it succeeded, and the object afterwards.
    pub(super) fn execute(&mut self, rules: &Rules, op: &Op) -> bool {
        let version = self.block.as_ref().map(|block| block.version);
        let fits = |wanted: Stamp| version.is_some_and(|now| now == wanted || !rules.preconditions);
        match op {
            Op::Create(seen) if self.block.is_none() => {
                let uid = self.fresh();
                self.block = Some(Object {
                    seen: seen.clone(),
                    uid,
                    version: uid + 1,
                });
            }
            Op::Swap { version, to } if fits(*version) => {
                let version = self.fresh();
                if let Some(block) = &mut self.block {
                    block.seen = to.clone();
                    block.version = version;
                }
            }
            Op::Delete { version } if fits(*version) => self.block = None,
            Op::CreateAddress(machine) if self.address.is_none() => {
                let uid = self.fresh();
                self.address = Some(Address {
                    machine: *machine,
                    uid,
                });
            }
            Op::TouchAddress { uid } if self.address.as_ref().is_some_and(|a| a.uid == *uid) => {
                let fresh = self.fresh();
                if let Some(address) = &mut self.address {
                    address.uid = fresh;
                }
            }
            Op::DeleteAddress { uid }
                if self
                    .address
                    .as_ref()
                    .is_some_and(|a| a.uid == *uid || !rules.preconditions) =>
            {
                self.address = None;
            }
            _ => return false,
        }
        true
    }

    /// What the agent of `machine` does with what it has read; none if it has read nothing.
    pub(super) fn decide(&self, rules: &Rules, machine: usize, wish: Wish) -> Option<(View, Step)> {
        let Agent::Idle(Some(view)) = &self.machines[machine].agent else {
            return None;
        };
        let seen = view.block.as_ref().map(|block| &block.seen);
        let step = (rules.next)(
            &view.me,
            seen,
            self.machines[machine].file,
            self.usage(machine),
            wish,
        );
        Some((view.clone(), step))
    }

    /// Whether the plugin on `machine` may give the address on its own.
    pub(super) fn may_add(&self, rules: &Rules, machine: usize) -> bool {
        let machine = &self.machines[machine];
        machine.on
            && machine.lease == Lease::None
            && machine.file.is_some_and(|held| held.mode == Mode::Active)
            && (machine.confirmed || machine.young || !rules.reboot_guard)
    }

    /// Whether the block may be given to others once the quarantine has passed: what an administrator promises by deleting
    /// the Node of a machine that is dead, and what an agent sees to on one that lives.
    pub(super) fn owner_is_done(&self) -> bool {
        let Some(block) = &self.block else { return true };
        let machine = &self.machines[usize::from(*block.seen.owner.node == *"b")];
        let quiet = machine.file.is_none_or(|held| held.mode != Mode::Active) && !machine.pod;
        !machine.on || quiet
    }

    pub(super) fn is_shared(&self) -> bool {
        self.block
            .as_ref()
            .is_some_and(|block| block.seen.phase == Phase::Shared)
    }
}
