// SPDX-License-Identifier: Apache-2.0
//! Address objects of pods of this node that the controller orphaned because the Node was gone. If this node does not renew such
//! an object, the object is deleted after the quarantine.

use super::Worker;
use crate::agent::Failure;
use crate::api::{AddressState, IpAddress};
use crate::cluster::{Written, swap};
use crate::object::{reference, seen_address};
use block::address::{Step, keep};
use block::owner::Me;
use kube::ResourceExt;

/// Passing an object to another registration takes two steps, and one more check that nothing is left to do.
const STEPS: usize = 3;

impl Worker {
    /// Makes the object `address` name this node, if needed. A lease of this node has the address. Returns whether the object is
    /// correct now.
    pub(super) async fn keep(&self, me: &Me, address: &IpAddress) -> Result<bool, Failure> {
        let mut address = address.clone();
        for _ in 0..STEPS {
            let seen = seen_address(&address);
            match keep(me, &seen.owner, seen.phase) {
                Step::Rest => return Ok(true),
                Step::Orphan => address.spec.state = AddressState::Orphaned,
                Step::Bind(to) => {
                    address.spec.state = AddressState::Bound;
                    address.spec.node = reference(&to);
                    tracing::info!(
                        pool = %self.pool, address = address.name_any(), registration = %to,
                        "others have seen this node gone: its pod has the address still"
                    );
                }
            }
            match swap(&self.agent.cluster.addresses, &address).await? {
                Written::Done(after) => address = after,
                Written::Late => return Ok(false),
            }
        }
        Ok(false)
    }
}
