// SPDX-License-Identifier: Apache-2.0
//! What agents and controllers see of the world, what they decide, and what the API server does.

use super::{
    Address, Agent, Lease, MACHINES, Machine, Object, Op, QUARANTINE, Rules, Sender, Stamp, View, World,
    owner,
};
use crate::orphan::{Decider, OrphanAction, OwnerState, Watched};
use crate::owner::{Desired, NodeIdentity, Step};
use crate::{BlockRecord, Mode, Phase, Usage, address};
use std::time::Duration;

/// The observation of a `watched` version, for an object that has `version` now.
fn watched(watched: Option<(Stamp, bool)>, version: Stamp) -> Option<Watched> {
    watched.map(|(record, ripe)| Watched {
        version: if record == version { "v" } else { "other" }.into(),
        unchanged: if ripe { QUARANTINE } else { Duration::ZERO },
    })
}

impl World {
    /// The use of the block according to the store of `machine`. `listed`: the address object, if a list contained it.
    pub(in crate::tests) fn usage(&self, rules: &Rules, machine: usize, listed: Option<&Address>) -> Usage {
        let leased = self.has_lease(machine);
        let Machine { lease, published, .. } = self.machines[machine];
        let known = published || lease == Lease::Published || !rules.renew_published;
        let published = known && listed.is_some_and(|address| address.machine == machine);
        Usage {
            leased: u64::from(leased),
            unpublished: u64::from(leased && !published),
            resting: u64::from(self.machines[machine].lease == Lease::Releasing),
            unusable: 0,
            suspect: 0,
        }
    }

    pub(in crate::tests) fn has_lease(&self, machine: usize) -> bool {
        matches!(self.machines[machine].lease, Lease::Local | Lease::Published)
    }

    /// The registration of the machine according to the API server.
    fn me(&self, machine: usize) -> NodeIdentity {
        match self.nodes[machine] {
            Some(registration) => NodeIdentity::Registered(owner(machine, registration)),
            None => NodeIdentity::Gone(owner(machine, 0).node),
        }
    }

    pub(in crate::tests) fn look(&self, machine: usize) -> View {
        View {
            me: self.me(machine),
            block: self.block.clone(),
            address: self.address.clone(),
        }
    }

    fn owner_state(&self, machine: usize, decider: Decider) -> OwnerState {
        OwnerState {
            decider,
            registered: self.nodes[machine].map(|registration| owner(machine, registration)),
            has_pods: self.bound[machine],
        }
    }

    /// What a controller would do with the address now.
    pub(in crate::tests) fn address_decision(
        &self,
        rules: &Rules,
        observer: usize,
    ) -> Option<(Address, OrphanAction)> {
        let address = self.address.clone()?;
        let state = self.owner_state(address.machine, Decider::Controller);
        let watched = watched(self.observers[observer].address, address.uid);
        let decision = (rules.decide)(&address.record(), true, &state, watched.as_ref());
        Some((address, decision))
    }

    /// What a judge would do with the block now.
    pub(in crate::tests) fn decision(
        &self,
        rules: &Rules,
        observer: usize,
    ) -> Option<(Object, OrphanAction)> {
        let block = self.block.clone()?;
        let machine = block.record.machine();
        let decider = if observer < MACHINES {
            Decider::Namesake
        } else {
            Decider::Controller
        };
        let state = self.owner_state(machine, decider);
        let watched = watched(self.observers[observer].watched, block.version);
        if let Some(agent) = self.machines.get(observer) {
            let able = agent.on && !agent.is_mute() && agent.agent != Agent::Down && agent.file.is_none();
            if !able || observer != machine {
                return None;
            }
        }
        let decision = (rules.decide)(&block.record, block.used, &state, watched.as_ref());
        Some((block, decision))
    }

    /// Executes a request at the API server. Returns whether it succeeded.
    pub(in crate::tests) fn execute(&mut self, rules: &Rules, op: &Op) -> bool {
        let version = self.block.as_ref().map(|block| block.version);
        let fits = |wanted: Stamp| version.is_some_and(|now| now == wanted || !rules.preconditions);
        match op {
            Op::Create { record, used } if self.block.is_none() => {
                self.erased = false;
                self.block = Some(Object {
                    record: record.clone(),
                    version: self.fresh(),
                    used: *used && rules.claims_used,
                });
            }
            Op::Swap { version, to } if fits(*version) => {
                let version = self.fresh();
                if let Some(block) = &mut self.block {
                    block.record = to.clone();
                    block.version = version;
                }
            }
            Op::Delete { version } if fits(*version) => self.block = None,
            Op::Report { version, used } if fits(*version) || !rules.report_versions => {
                let (version, used) = (self.fresh(), *used);
                let Some(block) = &mut self.block else {
                    return false;
                };
                (block.version, block.used) = (version, used);
            }
            op => return self.execute_on_address(rules, op),
        }
        true
    }

    fn execute_on_address(&mut self, rules: &Rules, op: &Op) -> bool {
        let fresh = self.fresh();
        match (op, &mut self.address) {
            (
                Op::CreateAddress {
                    machine,
                    registration,
                },
                there @ None,
            ) => {
                *there = Some(Address {
                    machine: *machine,
                    registration: *registration,
                    orphaned: false,
                    uid: fresh,
                });
            }
            (Op::TouchAddress { uid }, Some(address)) if address.uid == *uid => address.uid = fresh,
            (
                Op::SwapAddress {
                    uid,
                    registration,
                    orphaned,
                    ..
                },
                Some(address),
            ) if address.uid == *uid || !rules.preconditions => {
                address.registration = *registration;
                address.orphaned = *orphaned;
                address.uid = fresh;
            }
            (Op::DeleteAddress { uid }, there @ Some(_))
                if there.as_ref().is_some_and(|address| address.uid == *uid) || !rules.preconditions =>
            {
                *there = None;
            }
            _ => return false,
        }
        true
    }

    /// The decision of the agent of `machine` about what it has read; none if it has read nothing.
    pub(in crate::tests) fn decide(
        &self,
        rules: &Rules,
        machine: usize,
        desired: Desired,
    ) -> Option<(View, Step)> {
        let Agent::Idle(Some(view)) = &self.machines[machine].agent else {
            return None;
        };
        let record = view.block.as_ref().map(|block| &block.record);
        let step = (rules.next)(
            &view.me,
            record,
            self.machines[machine].file,
            self.usage(rules, machine, view.address.as_ref()),
            desired,
        );
        Some((view.clone(), step))
    }

    /// Whether the agent of `machine` must close the block of its file: another boot wrote the file, longer than a quarantine ago.
    /// If etcd was restored since, the API server may name this machine as the owner although another one had the block.
    pub(in crate::tests) fn must_close(&self, rules: &Rules, machine: usize) -> bool {
        let machine = &self.machines[machine];
        let is_open = machine.file.is_some_and(|local| local.mode == Mode::Active);
        rules.close_after_reboot && is_open && !machine.confirmed && !machine.young
    }

    /// Whether the plugin on `machine` may allocate the address by itself.
    pub(in crate::tests) fn may_add(&self, rules: &Rules, machine: usize) -> bool {
        let machine = &self.machines[machine];
        machine.on
            && machine.lease == Lease::None
            && machine.file.is_some_and(|local| local.mode == Mode::Active)
            && (machine.confirmed || machine.young || !rules.reboot_guard)
    }

    /// The versions of the block and of the address.
    pub(in crate::tests) fn versions(&self) -> (Option<Stamp>, Option<Stamp>) {
        let block = self.block.as_ref().map(|block| block.version);
        (block, self.address.as_ref().map(|address| address.uid))
    }

    /// Whether the block stays unchanged for a quarantine and may then be given to another node. For a dead machine, the
    /// administrator promises this by deleting its Node. For a live machine, its agent decides.
    pub(in crate::tests) fn block_stays(&self, rules: &Rules) -> bool {
        let Some(block) = &self.block else { return true };
        let m = block.record.machine();
        let machine = &self.machines[m];
        if !machine.on {
            return true;
        }
        if machine.cut {
            return machine.file.is_none_or(|local| local.mode != Mode::Active) && !machine.pod;
        }
        if machine.silenced {
            return true;
        }
        let usage = self.usage(rules, m, self.address.as_ref());
        (rules.next)(
            &self.me(m),
            Some(&block.record),
            machine.file,
            usage,
            Desired::Keep,
        ) == Step::None
    }

    /// The same for the address.
    pub(in crate::tests) fn address_stays(&self, rules: &Rules) -> bool {
        let Some(address) = &self.address else { return true };
        let (m, record) = (address.machine, address.record());
        let machine = &self.machines[m];
        let promised = machine.cut && !machine.pod;
        let kept = || (rules.next_address)(&self.me(m), &record.owner, record.phase) == address::Step::None;
        !machine.on || promised || !machine.cut && (machine.silenced || !self.has_lease(m) || kept())
    }

    /// Whether the agent of machine `m`, whose Node is gone, knows that and has sent all its writes about it. The agent learns it
    /// within 30 s and uses no answer older than 20 s. The pod garbage collector waits for 40 s.
    pub(in crate::tests) fn has_spoken(&self, rules: &Rules, m: usize) -> bool {
        let machine = &self.machines[m];
        let knows = match &machine.agent {
            Agent::Idle(Some(view)) => matches!(view.me, NodeIdentity::Gone(_)),
            Agent::Idle(None) | Agent::Down => true,
            Agent::Waiting(..) | Agent::Writing(_) | Agent::Checking => false,
        };
        if machine.on && !knows {
            return false;
        }
        let Some(block) = self.block.as_ref().filter(|block| block.record.machine() == m) else {
            return true;
        };
        // The agent reports in each round, so that its earlier requests miss their preconditions.
        let late = |(sender, op): &(Sender, Op)| {
            let version = match op {
                Op::Swap { version, .. } | Op::Report { version, .. } | Op::Delete { version } => *version,
                _ => return false,
            };
            *sender == Sender::Agent(m) && version == block.version
        };
        if machine.on && self.wire.iter().any(late) {
            return false;
        }
        let usage = self.usage(rules, m, self.address.as_ref());
        let step = (rules.next)(
            &self.me(m),
            Some(&block.record),
            machine.file,
            usage,
            Desired::Keep,
        );
        !machine.on || step == Step::None || step == Step::Report && block.used
    }

    /// Whether an object of `machine` is held until an administrator states that the machine is off.
    pub(in crate::tests) fn is_held(&self, machine: usize) -> bool {
        let block = self.block.as_ref();
        let local = block.is_some_and(|block| {
            block.record.machine() == machine && block.used && block.record.phase == Phase::Orphaned
        });
        let address = self.address.as_ref();
        local || address.is_some_and(|address| address.machine == machine && address.orphaned)
    }

    /// Whether a lease of machine `m` has the address, no block in the file covers it, and the agent has not created or renewed its
    /// object. `listed`: the object, if a list contained it.
    pub(in crate::tests) fn lacks_object(&self, rules: &Rules, m: usize, listed: Option<&Address>) -> bool {
        let Machine { file, lease, .. } = self.machines[m];
        let covered = file.is_some_and(|file| file.mode != Mode::Shared) && lease != Lease::Published;
        rules.publish_uncovered && !covered && self.usage(rules, m, listed).unpublished > 0
    }

    /// Whether the agent of machine `m` is ready, and the API server has what the file and the lease of the machine need. A machine
    /// that is off has no lease; after a quarantine its file allows nothing either.
    pub(in crate::tests) fn is_settled(&self, rules: &Rules, m: usize) -> bool {
        let machine = &self.machines[m];
        let me = self.nodes[m].map(|registration| owner(m, registration));
        let record = self.block.as_ref().map(|block| &block.record);
        let owned = record.filter(|record| {
            me.as_ref() == Some(&record.owner) && matches!(record.phase, Phase::Active | Phase::Draining)
        });
        let has_block = machine.file.is_none_or(|file| match file.mode {
            Mode::Shared => self.is_shared(),
            Mode::Active | Mode::Draining | Mode::Sharing => {
                owned.is_some_and(|record| record.epoch == file.epoch)
            }
        });
        if !machine.on {
            return has_block || !machine.young;
        }
        let is_ready = !machine.is_mute() && machine.agent != Agent::Down && me.is_some();
        is_ready && has_block && !self.lacks_object(rules, m, self.address.as_ref())
    }

    pub(in crate::tests) fn is_shared(&self) -> bool {
        self.block
            .as_ref()
            .is_some_and(|block| block.record.phase == Phase::Shared)
    }
}

impl BlockRecord {
    /// The machine that owns the block.
    pub(in crate::tests) fn machine(&self) -> usize {
        usize::from(*self.owner.node == *"b")
    }
}

impl Address {
    /// The address as its judges see it.
    pub(in crate::tests) fn record(&self) -> BlockRecord {
        BlockRecord {
            owner: owner(self.machine, self.registration),
            epoch: 1,
            phase: if self.orphaned {
                Phase::Orphaned
            } else {
                Phase::Active
            },
        }
    }
}
