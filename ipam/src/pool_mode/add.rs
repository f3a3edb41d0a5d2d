// SPDX-License-Identifier: Apache-2.0
//! ADD: allocates one address of each family of a pool. The next pool is tried only if the first has no
//! address, does not contain the requested one, or does not admit this node or pod. A resting address is
//! allocated only to a main plugin that probes, and only if no pool that was tried has another. If the search
//! ended at a pool whose error passes by itself, a pool after it may have a free address.

use super::attempt::Attempt;
use super::{Pools, of_pool};
use crate::add::{agree, for_main_plugin, repeat};
use crate::config::{PoolConfig, PoolPlace};
use crate::pool::PoolName;
use crate::store::Sandbox;
use common::cni::dispatch::Call;
use common::cni::{Attachment, CniResult, Code, Error};
use std::path::Path;

pub(crate) fn add(pools: &Pools, call: &Call, owner: &Attachment, netns: &Path) -> Result<CniResult, Error> {
    let config = PoolConfig::read(call, pools.place.clone())?;
    let pools = &Pools {
        place: config.place.clone(),
        ..*pools
    };
    let sandbox = Sandbox::of(&call.args, netns);
    if let Some(result) = again(pools, &config, owner, &sandbox)? {
        return Ok(for_main_plugin(result, config.probes));
    }
    let mut order = pools.order();
    while let Some(pool) = order.next() {
        match Attempt::new(pools, &pool, &config, owner, &sandbox)?.run() {
            Ok(result) => {
                let result = for_main_plugin(result, config.probes);
                for refusal in &order.refusals {
                    tracing::warn!(network = config.place.name, attachment = %owner, %pool, error = %refusal.msg, "allocated addresses of a later pool: an earlier one refused");
                }
                return Ok(result);
            }
            Err(refusal) => order.refuse(&pool, refusal),
        }
    }
    let asks = order
        .refusals
        .first()
        .is_some_and(|refusal| may_rest(refusal.code));
    if config.probes {
        match early(pools, &order.tried, &config, (owner, &sandbox, asks)) {
            Ok(result) => return Ok(result),
            Err(unknown) => order.refusals.extend(unknown),
        }
    }
    Err(explained(&config.place, order.refusals))
}

/// The result of a repeated ADD; the lease may be in any pool.
fn again(
    pools: &Pools,
    config: &PoolConfig,
    owner: &Attachment,
    sandbox: &Sandbox,
) -> Result<Option<CniResult>, Error> {
    let Some((pool, lease)) = pools.lease(&pools.all()?, owner)? else {
        return Ok(None);
    };
    if lease.sandbox.netns == sandbox.netns {
        agree(&lease, &config.requests)?;
        return Ok(Some(lease.result));
    }
    let store = pools.store(&pool)?;
    let locked = store.enter()?;
    // The agent may have ended the lease before this call took the lock.
    match locked.lease(owner)? {
        Some(lease) => repeat(&locked, lease, &config.requests, sandbox).map(Some),
        None => Ok(None),
    }
}

/// A resting address from the first pool of `tried` that has one. Without one: the errors of the pools of which it is not known
/// whether an address rests.
fn early(
    pools: &Pools,
    tried: &[PoolName],
    config: &PoolConfig,
    (owner, sandbox, asks): (&Attachment, &Sandbox, bool),
) -> Result<CniResult, Vec<Error>> {
    let mut errors = Vec::new();
    for pool in tried {
        // The pool's refusal has this error already.
        let Ok(attempt) = Attempt::new(pools, pool, config, owner, sandbox) else {
            continue;
        };
        match attempt.run_early(asks) {
            Ok(Some(result)) => return Ok(result),
            Ok(None) => {}
            Err(error) if may_rest(error.code) => {}
            Err(error) => errors.push(of_pool(
                pool,
                error.within("whether an address rests is not known"),
            )),
        }
    }
    Err(errors)
}

/// Whether the agent may have refused because addresses of this node rest. After another refusal it is not asked again.
fn may_rest(code: Code) -> bool {
    [Code::EXHAUSTED, Code::RESTING, Code::ADDRESS_IN_USE].contains(&code)
}

/// The first of `refusals`, with the others as details. The runtime acts on its code.
pub(super) fn explained(place: &PoolPlace, refusals: Vec<Error>) -> Error {
    let mut refusals = refusals.into_iter();
    let Some(first) = refusals.next() else {
        return Error::new(
            Code::INVALID_CONFIG,
            format!("network {}: no pool is named", place.name),
        );
    };
    let others = refusals.map(|error| error.msg);
    let details: Vec<String> = [first.details]
        .into_iter()
        .filter(|text| !text.is_empty())
        .chain(others)
        .collect();
    Error::new(first.code, format!("network {}: {}", place.name, first.msg)).with_details(details.join("; "))
}
