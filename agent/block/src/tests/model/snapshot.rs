// SPDX-License-Identifier: Apache-2.0
//! A snapshot of etcd and its restore.

use crate::tests::world::{Address, Agent, Object, Observer, PAST, Snapshot, World};

impl World {
    pub(super) fn take_snapshot(&mut self) {
        let block = self.block.clone().map(|block| Object {
            version: PAST,
            ..block
        });
        let address = self
            .address
            .clone()
            .map(|address| Address { uid: PAST, ..address });
        self.snapshot = Snapshot::Taken {
            block,
            address,
            nodes: self.nodes,
            bound: self.bound,
        };
    }

    /// The API server has the objects of the snapshot. Agents and controllers start again, with valid tokens.
    pub(super) fn restore(&mut self) {
        let Snapshot::Taken {
            block,
            address,
            nodes,
            bound,
        } = std::mem::replace(&mut self.snapshot, Snapshot::Used)
        else {
            return;
        };
        (self.nodes, self.bound) = (nodes, bound);
        self.wire.clear();
        self.observers.fill(Observer::default());
        for machine in &mut self.machines {
            (machine.published, machine.silenced) = (false, false);
            if machine.on {
                machine.agent = Agent::Idle(None);
            }
        }
        self.block = None;
        self.address = None;
        let version = self.fresh();
        self.block = block.map(|block| Object { version, ..block });
        let uid = self.fresh();
        self.address = address.map(|address| Address { uid, ..address });
        self.deselected = true;
    }
}
