// SPDX-License-Identifier: Apache-2.0
//! Objects of addresses that pods of this node have, after others have seen the node gone: without a word from here they end
//! after the quarantine.

use super::Worker;
use crate::agent::Failure;
use crate::api::{AddressState, IpAddress};
use crate::cluster::{Written, swap};
use crate::object::{reference, seen_address};
use block::address::{Step, keep};
use block::owner::Me;
use kube::ResourceExt;

/// To another registration it takes two steps, and a look that nothing is left to do.
const STEPS: usize = 3;

impl Worker {
    /// Sees to it that `address`, which a lease here is on, says so. Returns whether it does.
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
