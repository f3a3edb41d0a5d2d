// SPDX-License-Identifier: Apache-2.0
//! Address objects of pods of this node that the controller orphaned because the Node was gone. If this node does not renew such
//! an object, the object is deleted after the quarantine.

use super::context::PoolContext;
use api::convert::{address_record, node_ref};
use api::requests::{ReconcileError, Requests, WriteResult};
use api::{AddressState, IpAddress};
use block::address::{Step, next};
use block::owner::NodeIdentity;
use kube::ResourceExt;

/// Passing an object to another registration takes two steps, and one more check that nothing is left to do.
const STEPS: usize = 3;

impl PoolContext {
    /// Makes the object `address` name this node, if needed. A lease of this node has the address. Returns whether the object is
    /// correct now.
    pub(super) async fn rebind(
        &self,
        api: &Requests,
        me: &NodeIdentity,
        address: &IpAddress,
    ) -> Result<bool, ReconcileError> {
        let mut address = address.clone();
        for _ in 0..STEPS {
            let seen = address_record(&address);
            match next(me, &seen.owner, seen.phase) {
                Step::None => return Ok(true),
                Step::Orphan => address.spec.state = AddressState::Orphaned,
                Step::Bind(to) => {
                    address.spec.state = AddressState::Bound;
                    address.spec.node = node_ref(&to);
                    tracing::info!(
                        pool = %self.pool, address = address.name_any(), registration = %to,
                        "restored an orphaned address object: a lease of this node has the address"
                    );
                }
            }
            match api.replace(&address).await? {
                WriteResult::Applied(after) => address = after,
                WriteResult::Conflict => return Ok(false),
            }
        }
        Ok(false)
    }
}
