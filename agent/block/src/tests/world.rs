// SPDX-License-Identifier: Apache-2.0
//! One block with one address, an API server, the requests on their way to it, two machines and two keepers: what can
//! happen to them, one thing at a time. All decisions are those of the daemon.

mod sight;

use crate::orphan::{NodeSight, Quarantine, Verdict, Watched, judge};
use crate::owner::{Me, Step, Wish, next};
use crate::{Held, Owner, Phase, Seen, Use, address};
use std::sync::LazyLock;
use std::time::Duration;

pub(super) const MACHINES: usize = 2;
const QUARANTINE: Duration = Duration::from_secs(600);

/// What the cluster waits for by default.
pub(super) const QUARANTINES: Quarantine = Quarantine {
    unused: QUARANTINE,
    in_use: None,
};

/// A number that is new each time and compared only for equality: a UID or a resource version.
pub(super) type Stamp = u8;

/// One that was, of something that has another one now or is gone: none comes back.
pub(super) const PAST: Stamp = 0;

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct Object {
    pub(super) seen: Seen,
    pub(super) version: Stamp,
    /// The owner's last report had the address in use.
    pub(super) used: bool,
}

/// The object of the address.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct Address {
    pub(super) machine: usize,
    /// The registration of the machine that it names.
    pub(super) registration: Stamp,
    pub(super) orphaned: bool,
    /// Its UID and version.
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
    /// The owner reports whether the address is in use.
    Report {
        version: Stamp,
        used: bool,
    },
    CreateAddress {
        machine: usize,
        registration: Stamp,
    },
    /// Makes a late deletion of the address miss.
    TouchAddress {
        uid: Stamp,
    },
    SwapAddress {
        uid: Stamp,
        registration: Stamp,
        orphaned: bool,
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
    /// Has made the object of the address its own and must see that the block is shared still.
    Checking,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum Lease {
    None,
    /// From this node's block; it may have got an object since.
    Local,
    /// By way of the API server: it has an object.
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
    /// The token of its agent is invalid, since the agent's Pod was deleted.
    pub(super) silenced: bool,
    /// The file says that an agent saw this node registered less than a quarantine ago.
    pub(super) young: bool,
    /// An agent has compared the file with the API since the machine started.
    pub(super) confirmed: bool,
    pub(super) file: Option<Held>,
    pub(super) agent: Agent,
    pub(super) lease: Lease,
    /// The agent that runs has made, or renewed, the object of the lease.
    pub(super) published: bool,
    /// A pod with the address lives.
    pub(super) pod: bool,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct Keeper {
    /// The version that it watches, and whether the quarantine has passed since.
    pub(super) watched: Option<(Stamp, bool)>,
    /// The same of the address.
    pub(super) address: Option<(Stamp, bool)>,
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
    /// Sent and not executed yet; whoever sent it may have given up waiting.
    pub(super) wire: Vec<(Sender, Op)>,
    pub(super) faults: u8,
    /// Which machines have failed, where a story lets each of them fail once.
    pub(super) failed: [bool; MACHINES],
}

/// The decisions, replaceable to show that the model notices a missing guard.
#[expect(clippy::struct_excessive_bools, reason = "each is a guard of its own")]
#[derive(Clone)]
pub(super) struct Rules {
    pub(super) next: fn(&Me, Option<&Seen>, Option<Held>, Use, Wish) -> Step,
    pub(super) judge: fn(&Seen, bool, &NodeSight, Option<&Watched>) -> Verdict,
    pub(super) keep: fn(&Me, &Owner, Phase) -> address::Step,
    /// Whether the admission policies let the thief send this (`conf/policies/agent.yaml`).
    pub(super) admits: fn(&World, &Op) -> bool,
    /// Whether requests carry the version that was read.
    pub(super) preconditions: bool,
    /// Whether reports carry the version that was read.
    pub(super) report_versions: bool,
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
    /// Whether an object counts as that of a lease only after it was made or changed for it.
    pub(super) renew_published: bool,
    /// Whether the block is looked at after the address' object was made.
    pub(super) check_shared: bool,
    /// Whether what was read or answered is thrown away before a quarantine can have passed since.
    pub(super) fresh_answers: bool,
}

impl Default for Rules {
    fn default() -> Self {
        Self {
            next,
            judge: |seen, in_use, node, watched| judge(seen, in_use, "v", node, watched, QUARANTINES),
            keep: address::keep,
            admits: World::admits,
            preconditions: true,
            report_versions: true,
            reboot_guard: true,
            idle_check: true,
            claim_check: true,
            list_after_claim: true,
            touch_found: true,
            renew_published: true,
            check_shared: true,
            fresh_answers: true,
        }
    }
}

/// Registrations that a story may need of a machine.
const REGISTRATIONS: usize = 8;

pub(super) fn owner(machine: usize, registration: Stamp) -> Owner {
    static ALL: LazyLock<[[Owner; REGISTRATIONS]; MACHINES]> = LazyLock::new(|| {
        ["a", "b"].map(|node| {
            std::array::from_fn(|uid| Owner {
                node: node.into(),
                uid: uid.to_string().into(),
            })
        })
    });
    ALL[machine][usize::from(registration)].clone()
}

/// The registration of a node, as [`owner`] names it.
pub(super) fn registration(me: &Me) -> Option<Stamp> {
    match me {
        Me::Registered(me) => me.uid.parse().ok(),
        Me::Gone(_) => None,
    }
}

impl Op {
    /// Shows `visit` what the request is conditional upon.
    fn each_stamp(&mut self, visit: &mut impl FnMut(&mut Stamp)) {
        match self {
            Self::Swap { version, .. } | Self::Delete { version } | Self::Report { version, .. } => {
                visit(version);
            }
            Self::TouchAddress { uid } | Self::SwapAddress { uid, .. } | Self::DeleteAddress { uid } => {
                visit(uid);
            }
            Self::Create(_) | Self::CreateAddress { .. } => {}
        }
    }
}

impl Machine {
    /// Whether the API server takes no request of its agent.
    pub(super) fn is_mute(&self) -> bool {
        self.cut || self.silenced
    }
}

impl World {
    pub(super) fn start(keepers: usize) -> Self {
        let machine = Machine {
            on: true,
            cut: false,
            silenced: false,
            young: true,
            confirmed: true,
            file: None,
            agent: Agent::Idle(None),
            lease: Lease::None,
            published: false,
            pod: false,
        };
        Self {
            block: None,
            address: None,
            nodes: [Some(1), Some(2)],
            bound: [false; MACHINES],
            machines: [machine.clone(), machine],
            keepers: vec![Keeper::default(); MACHINES + keepers],
            wire: Vec::new(),
            faults: 0,
            failed: [false; MACHINES],
        }
    }

    pub(super) fn pods(&self) -> usize {
        self.machines.iter().filter(|machine| machine.pod).count()
    }

    /// Shows `visit` every stamp in use.
    fn each_stamp(&mut self, visit: &mut impl FnMut(&mut Stamp)) {
        let mut view = |block: &mut Option<Object>, address: &mut Option<Address>| {
            if let Some(block) = block {
                visit(&mut block.version);
            }
            if let Some(address) = address {
                visit(&mut address.uid);
            }
        };
        view(&mut self.block, &mut self.address);
        for machine in &mut self.machines {
            if let Agent::Idle(Some(seen)) = &mut machine.agent {
                view(&mut seen.block, &mut seen.address);
            }
        }
        for machine in &mut self.machines {
            if let Agent::Waiting(op, _) = &mut machine.agent {
                op.each_stamp(visit);
            }
        }
        for (_, op) in &mut self.wire {
            op.each_stamp(visit);
        }
        for keeper in &mut self.keepers {
            for (version, _) in [&mut keeper.watched, &mut keeper.address].into_iter().flatten() {
                visit(version);
            }
        }
    }

    /// Renames stamps to the smallest numbers, in the order in which one meets them: they are compared for equality only, so this
    /// joins states that are alike.
    pub(super) fn settle_names(&mut self) {
        let mut names = [PAST; 64];
        let mut last = PAST;
        self.each_stamp(&mut |stamp| {
            let name = &mut names[usize::from(*stamp)];
            if *stamp != PAST && *name == PAST {
                last += 1;
                *name = last;
            }
            *stamp = *name;
        });
        self.wire.sort();
    }

    /// A stamp that is nowhere in use.
    pub(super) fn fresh(&mut self) -> Stamp {
        let mut last = 0;
        self.each_stamp(&mut |stamp| last = last.max(*stamp));
        last + 1
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
}
