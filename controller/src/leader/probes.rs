// SPDX-License-Identifier: Apache-2.0
//! Requests for probes: the addresses of a block become free while a machine may still use one of them.

use crate::context::Context;
use api::AddressSpace;
use api::requests::{ApiError, WriteResult};
use kube::runtime::reflector::ObjectRef;
use std::collections::BTreeSet;
use std::sync::Arc;

/// Makes nodes probe the addresses of blocks that they claim from now on in the address spaces of `pools`: each pool of
/// the space may have the addresses, now or later. Returns those of `pools` whose blocks and addresses must wait for a
/// later round: no address space has the pool, or another process has just changed its address space. No node claims a
/// block of a pool that is being deleted.
///
/// Invariant: the address space requests probes before the controller marks a block or an address as `Orphaned`, and
/// before it deletes such an object or a shared block. Nodes read the address space after each claim.
pub(super) async fn enable_probes(
    context: &Context,
    spaces: &[Arc<AddressSpace>],
    pools: &BTreeSet<&str>,
) -> Result<BTreeSet<String>, ApiError> {
    let is_listed = |pool: &&str| {
        let mut listed = spaces.iter().flat_map(|space| &space.spec.pools);
        listed.any(|entry| entry.name == **pool)
    };
    let is_live = |pool: &&str| {
        let found = context.pools.get(&ObjectRef::new(pool));
        found.is_some_and(|pool| pool.metadata.deletion_timestamp.is_none())
    };
    let unlisted = pools.iter().filter(|pool| is_live(pool) && !is_listed(pool));
    let mut waiting: BTreeSet<String> = unlisted.map(|pool| (*pool).to_owned()).collect();
    for pool in &waiting {
        tracing::warn!(
            pool,
            "blocks and addresses of the pool are not freed: no address space lists the pool; its condition Ready has the reason"
        );
    }
    for space in spaces {
        let mut listed = space.spec.pools.iter().map(|listed| listed.name.as_str());
        if !listed.any(|name| pools.contains(name)) {
            continue;
        }
        let mut wanted = AddressSpace::clone(space);
        wanted.spec.enable_probes();
        if wanted != **space && context.api.replace(&wanted).await? == WriteResult::Conflict {
            let listed = space.spec.pools.iter().map(|listed| &listed.name);
            waiting.extend(listed.filter(|name| pools.contains(name.as_str())).cloned());
        }
    }
    Ok(waiting)
}

#[cfg(test)]
mod tests;
