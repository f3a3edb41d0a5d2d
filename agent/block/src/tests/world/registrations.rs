// SPDX-License-Identifier: Apache-2.0
//! The registrations of the machines: each has a name that is compared only for equality.

use super::{Address, Agent, MACHINES, Object, Op, PAST, Snapshot, Stamp, World};
use crate::owner::NodeIdentity;
use crate::{BlockRecord, Owner};
use std::sync::LazyLock;

/// One more than the greatest name of a registration.
const NAMES: usize = 8;
/// The name of a registration that has just begun, until [`World::settle_registrations`].
pub(in crate::tests) const NEW: Stamp = 7;

/// The owner that this registration of a machine is.
pub(in crate::tests) fn owner(machine: usize, registration: Stamp) -> Owner {
    static ALL: LazyLock<[[Owner; NAMES]; MACHINES]> = LazyLock::new(|| {
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
pub(in crate::tests) fn registration(me: &NodeIdentity) -> Option<Stamp> {
    match me {
        NodeIdentity::Registered(me) => Some(name(me)),
        NodeIdentity::Gone(_) => None,
    }
}

fn name(owner: &Owner) -> Stamp {
    owner.uid.parse().unwrap_or(PAST)
}

/// Calls `visit` with the machine and the registration of `owner`.
fn each_of_owner(machine: usize, owned: &mut Owner, visit: &mut impl FnMut(usize, &mut Stamp)) {
    let before = name(owned);
    let mut after = before;
    visit(machine, &mut after);
    if after != before {
        *owned = owner(machine, after);
    }
}

fn each_of_record(record: &mut BlockRecord, visit: &mut impl FnMut(usize, &mut Stamp)) {
    each_of_owner(record.machine(), &mut record.owner, visit);
}

fn each_of_objects(
    block: &mut Option<Object>,
    address: &mut Option<Address>,
    visit: &mut impl FnMut(usize, &mut Stamp),
) {
    if let Some(block) = block {
        each_of_record(&mut block.record, visit);
    }
    if let Some(address) = address {
        visit(address.machine, &mut address.registration);
    }
}

fn each_of_request(op: &mut Op, visit: &mut impl FnMut(usize, &mut Stamp)) {
    match op {
        Op::Create { record, .. } | Op::Swap { to: record, .. } => each_of_record(record, visit),
        Op::CreateAddress {
            machine,
            registration,
        }
        | Op::SwapAddress {
            machine,
            registration,
            ..
        } => visit(*machine, registration),
        Op::Delete { .. } | Op::Report { .. } | Op::TouchAddress { .. } | Op::DeleteAddress { .. } => {}
    }
}

impl World {
    /// Calls `visit` with each registration that the state names, and its machine.
    fn each_registration(&mut self, visit: &mut impl FnMut(usize, &mut Stamp)) {
        let each_of_nodes = |nodes: &mut [Option<Stamp>; MACHINES],
                             visit: &mut dyn FnMut(usize, &mut Stamp)| {
            for (m, node) in nodes.iter_mut().enumerate() {
                if let Some(node) = node {
                    visit(m, node);
                }
            }
        };
        each_of_nodes(&mut self.nodes, visit);
        each_of_objects(&mut self.block, &mut self.address, visit);
        for (m, machine) in self.machines.iter_mut().enumerate() {
            match &mut machine.agent {
                Agent::Idle(Some(view)) => {
                    if let NodeIdentity::Registered(me) = &mut view.me {
                        each_of_owner(m, me, visit);
                    }
                    each_of_objects(&mut view.block, &mut view.address, visit);
                }
                Agent::Waiting(op, _) => each_of_request(op, visit),
                Agent::Idle(None) | Agent::Down | Agent::Writing(_) | Agent::Checking => {}
            }
        }
        for (_, op) in &mut self.wire {
            each_of_request(op, visit);
        }
        if let Snapshot::Taken {
            block,
            address,
            nodes,
            ..
        } = &mut self.snapshot
        {
            each_of_nodes(nodes, visit);
            each_of_objects(block, address, visit);
        }
    }

    /// Renames the registrations of each machine to the smallest numbers, in the order of their occurrence.
    pub(super) fn settle_registrations(&mut self) {
        let mut names = [[PAST; NAMES]; MACHINES];
        let mut last = [PAST; MACHINES];
        self.each_registration(&mut |machine, registration| {
            let name = &mut names[machine][usize::from(*registration)];
            if *registration != PAST && *name == PAST {
                last[machine] += 1;
                *name = last[machine];
            }
            *registration = *name;
        });
    }
}
