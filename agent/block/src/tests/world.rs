// SPDX-License-Identifier: Apache-2.0
//! The state of the model: one block with one address, an API server, the requests in flight, two machines and two controllers.
//! Events happen one at a time. All decisions are made by the functions of the daemon.

mod registrations;
mod views;

pub(super) use registrations::{NEW, owner, registration};

use crate::orphan::{OrphanAction, OwnerState, Quarantine, Watched, decide};
use crate::owner::{Desired, NodeIdentity, Step, next};
use crate::{BlockRecord, LocalBlock, Owner, Phase, Usage, address};
use std::time::Duration;

pub(super) const MACHINES: usize = 2;
const QUARANTINE: Duration = Duration::from_secs(600);

/// The default quarantines.
pub(super) const QUARANTINES: Quarantine = Quarantine {
    unused: QUARANTINE,
    in_use: None,
};

/// A UID or resource version: a number that is new each time and is compared only for equality.
pub(super) type Stamp = u8;

/// Any former stamp of an object that has another stamp now or is gone. A stamp is never used again.
pub(super) const PAST: Stamp = 0;

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct Object {
    pub(super) record: BlockRecord,
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
    /// The UID and version of the object.
    pub(super) uid: Stamp,
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum Op {
    Create {
        record: BlockRecord,
        /// The node has leases of the block, so it counts as used until the first report.
        used: bool,
    },
    Swap {
        version: Stamp,
        to: BlockRecord,
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
    /// Writes a new version of the address object, so that a late DELETE misses its precondition.
    TouchAddress {
        uid: Stamp,
    },
    SwapAddress {
        uid: Stamp,
        machine: usize,
        registration: Stamp,
        orphaned: bool,
    },
    DeleteAddress {
        uid: Stamp,
    },
}

/// The sender of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum Sender {
    Agent(usize),
    Controller(usize),
}

/// What an agent has read; it may be old.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct View {
    pub(super) me: NodeIdentity,
    pub(super) block: Option<Object>,
    pub(super) address: Option<Address>,
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum Agent {
    Down,
    Idle(Option<View>),
    /// Waits for the answer to a request, and then writes this into the file.
    Waiting(Op, Option<LocalBlock>),
    /// Has the answer, and is about to write this into the file.
    Writing(LocalBlock),
    /// Has bound the address object, and must check that the block is still shared.
    Checking,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum Lease {
    None,
    /// Allocated from this node's block. The address may have got an object since.
    Local,
    /// Allocated through the API server: the address has an object.
    Published,
    /// Released on this node; the object still exists.
    Releasing,
}

#[expect(clippy::struct_excessive_bools, reason = "each is a state of its own")]
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct Machine {
    pub(super) on: bool,
    /// The machine cannot reach the API server.
    pub(super) cut: bool,
    /// The token of its agent is invalid, since the agent's Pod was deleted.
    pub(super) silenced: bool,
    /// According to the file, an agent saw this node registered less than a quarantine ago.
    pub(super) young: bool,
    /// An agent has compared the file with the API since the machine started.
    pub(super) confirmed: bool,
    pub(super) file: Option<LocalBlock>,
    pub(super) agent: Agent,
    pub(super) lease: Lease,
    /// The running agent has created or renewed the object of the lease.
    pub(super) published: bool,
    /// A pod with the address lives.
    pub(super) pod: bool,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct Observer {
    /// The watched version of the block, and whether the quarantine has passed since the first observation.
    pub(super) watched: Option<(Stamp, bool)>,
    /// The same for the address.
    pub(super) address: Option<(Stamp, bool)>,
}

/// A snapshot of etcd. A path contains one at most.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) enum Snapshot {
    /// No snapshot exists yet.
    None,
    /// The objects at that time. The stamps of block and address are [`PAST`].
    Taken {
        block: Option<Object>,
        address: Option<Address>,
        nodes: [Option<Stamp>; MACHINES],
        bound: [bool; MACHINES],
    },
    /// etcd was restored from it, or cannot be restored any more.
    Used,
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
    /// The judges of blocks: each machine's agent, which judges the blocks of its namesakes, and then the controllers.
    pub(super) observers: Vec<Observer>,
    /// Requests that were sent and are not executed yet. The sender may have timed out.
    pub(super) wire: Vec<(Sender, Op)>,
    pub(super) faults: u8,
    /// The API server has lost the block, and no machine has claimed it since.
    pub(super) erased: bool,
    /// The pool selects no node.
    pub(super) deselected: bool,
    pub(super) snapshot: Snapshot,
    /// The machines that have failed, for stories in which each of them fails once.
    pub(super) failed: [bool; MACHINES],
}

/// The decisions and guards. Tests replace one to show that the model notices a missing guard.
#[expect(clippy::struct_excessive_bools, reason = "each is a guard of its own")]
#[derive(Clone)]
pub(super) struct Rules {
    pub(super) next: fn(&NodeIdentity, Option<&BlockRecord>, Option<LocalBlock>, Usage, Desired) -> Step,
    pub(super) decide: fn(&BlockRecord, bool, &OwnerState, Option<&Watched>) -> OrphanAction,
    pub(super) next_address: fn(&NodeIdentity, &Owner, Phase) -> address::Step,
    /// Whether the admission policies let the thief send this (`conf/policies/agent.yaml`).
    pub(super) admits: fn(&World, &Op) -> bool,
    /// Whether requests carry the version that was read.
    pub(super) preconditions: bool,
    /// Whether reports carry the version that was read.
    pub(super) report_versions: bool,
    /// Whether after a reboot the plugin requires a young file, or a check by the agent.
    pub(super) reboot_guard: bool,
    /// Whether a block leaves the file only if it is idle.
    pub(super) idle_check: bool,
    /// Whether a block that a node claims again counts as used.
    pub(super) claims_used: bool,
    /// Whether a block whose name is taken is read before it is used.
    pub(super) claim_check: bool,
    /// Whether address objects are listed before the node allocates from a claimed block.
    pub(super) list_after_claim: bool,
    /// Whether after a reboot the agent closes the blocks of an old file before it compares them with the API.
    pub(super) close_after_reboot: bool,
    /// Whether address objects are listed before the node allocates again from a block that drained.
    pub(super) list_after_draining: bool,
    /// Whether a pre-existing address object is renewed before it is used.
    pub(super) touch_found: bool,
    /// Whether an object counts as published for a lease only after it was created or renewed for it.
    pub(super) renew_published: bool,
    /// Whether the block is read again after the address object was created.
    pub(super) check_shared: bool,
    /// Whether an agent creates or renews the object of a lease that no block of its file covers.
    pub(super) publish_uncovered: bool,
    /// Whether answers are discarded before a quarantine can have passed since they were read.
    pub(super) fresh_answers: bool,
}

impl Default for Rules {
    fn default() -> Self {
        Self {
            next,
            decide: |record, in_use, node, watched| decide(record, in_use, "v", node, watched, QUARANTINES),
            next_address: address::next,
            admits: World::admits,
            preconditions: true,
            report_versions: true,
            reboot_guard: true,
            idle_check: true,
            claims_used: true,
            claim_check: true,
            list_after_claim: true,
            close_after_reboot: true,
            list_after_draining: true,
            touch_found: true,
            renew_published: true,
            check_shared: true,
            publish_uncovered: true,
            fresh_answers: true,
        }
    }
}

impl Op {
    /// Calls `visit` with the stamps in the request's preconditions.
    fn each_stamp(&mut self, visit: &mut impl FnMut(&mut Stamp)) {
        match self {
            Self::Swap { version, .. } | Self::Delete { version } | Self::Report { version, .. } => {
                visit(version);
            }
            Self::TouchAddress { uid } | Self::SwapAddress { uid, .. } | Self::DeleteAddress { uid } => {
                visit(uid);
            }
            Self::Create { .. } | Self::CreateAddress { .. } => {}
        }
    }
}

impl Machine {
    /// Whether the API server receives or accepts no request of the machine's agent.
    pub(super) fn is_mute(&self) -> bool {
        self.cut || self.silenced
    }
}

impl World {
    pub(super) fn start(controllers: usize) -> Self {
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
            nodes: [Some(1); MACHINES],
            bound: [false; MACHINES],
            machines: [machine.clone(), machine],
            observers: vec![Observer::default(); MACHINES + controllers],
            wire: Vec::new(),
            faults: 0,
            erased: false,
            deselected: false,
            snapshot: Snapshot::None,
            failed: [false; MACHINES],
        }
    }

    pub(super) fn pods(&self) -> usize {
        self.machines.iter().filter(|machine| machine.pod).count()
    }

    /// Calls `visit` with every stamp in use.
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
            if let Agent::Idle(Some(record)) = &mut machine.agent {
                view(&mut record.block, &mut record.address);
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
        for observer in &mut self.observers {
            for (version, _) in [&mut observer.watched, &mut observer.address]
                .into_iter()
                .flatten()
            {
                visit(version);
            }
        }
    }

    /// Renames stamps and registrations to the smallest numbers, in the order of their occurrence. They are compared only for
    /// equality, so this merges equivalent states.
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
        self.settle_registrations();
        self.wire.sort();
    }

    /// Returns an unused stamp.
    pub(super) fn fresh(&mut self) -> Stamp {
        let mut last = 0;
        self.each_stamp(&mut |stamp| last = last.max(*stamp));
        last + 1
    }
}
