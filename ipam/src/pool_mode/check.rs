// SPDX-License-Identifier: Apache-2.0
//! CHECK: the attachment still holds the addresses that ADD reported, in any pool.

use super::Pools;
use crate::check::{previous, require_held};
use crate::pool::PoolName;
use crate::store::Lease;
use common::cni::dispatch::Call;
use common::cni::{Attachment, Code, Error};

pub(crate) fn check(pools: &Pools, call: &Call, owner: &Attachment) -> Result<(), Error> {
    let network = &pools.place.name;
    let previous = previous(call)?;
    let all = pools.all()?;
    let Some((name, lease)) = pools.lease(&all, owner)? else {
        let what = match of_other_network(pools, &all, owner)? {
            Some(lease) => format!(
                "its lease is of another network: {}; call CHECK and DEL under the name of that network",
                lease.describe()
            ),
            None => format!(
                "{owner} has no lease in any pool; its addresses may be given to others; remove and create the pod again"
            ),
        };
        return Err(Error::new(
            Code::CHECK_FAILED,
            format!("network {network}: {what}"),
        ));
    };
    require_held(
        &pools.store(&name)?,
        &lease,
        &previous,
        &format!("network {network}: pool {name}"),
    )
}

/// A lease of `owner` that another network made: the network was renamed, or two networks name one interface.
fn of_other_network(pools: &Pools, all: &[PoolName], owner: &Attachment) -> Result<Option<Lease>, Error> {
    for name in all {
        if let Some(lease) = pools.store(name)?.lease(owner)? {
            return Ok(Some(lease));
        }
    }
    Ok(None)
}
