// SPDX-License-Identifier: Apache-2.0
//! CHECK: the attachment still holds the addresses that ADD reported, in any pool.

use super::Pools;
use crate::check::{previous, require_held};
use common::cni::dispatch::Call;
use common::cni::{Attachment, Code, Error};

pub(crate) fn check(pools: &Pools, call: &Call, owner: &Attachment) -> Result<(), Error> {
    let network = &pools.place.name;
    let previous = previous(call)?;
    let Some((name, lease)) = pools.lease(&pools.all()?, owner)? else {
        return Err(Error::new(
            Code::CHECK_FAILED,
            format!(
                "network {network}: {owner} has no lease in any pool; its addresses may be given to others; remove and create the pod again"
            ),
        ));
    };
    require_held(
        &pools.store(&name)?,
        &lease,
        &previous,
        &format!("network {network}: pool {name}"),
    )
}
