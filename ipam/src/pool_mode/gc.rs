// SPDX-License-Identifier: Apache-2.0
//! GC: ends the leases of this network whose attachments are gone, in every pool.

use super::Pools;
use crate::gc::{Scope, collect, summary};
use common::cni::{Error, GcConf};

pub(crate) fn gc(pools: &Pools, conf: &GcConf) -> Result<(), Error> {
    let started = pools.node.clock.since_boot()?;
    let mut errors = Vec::new();
    for name in pools.all()? {
        let scope = Scope {
            place: format!("pool {name}"),
            started,
        };
        let collected = pools.store(&name).and_then(|store| collect(&store, &scope, conf));
        match collected {
            Ok(more) => errors.extend(more),
            Err(error) => errors.push(error),
        }
    }
    summary(errors)
}
