// SPDX-License-Identifier: Apache-2.0
//! ADD: one address of each family of a pool; of the next pool only where the first has none, or is not for this node or
//! pod.

use super::attempt::Attempt;
use super::{Pools, of_pool};
use crate::add::{agree, repeat};
use crate::config::{PoolConfig, PoolPlace};
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
    if let Some((pool, lease)) = pools.lease(&pools.all()?, owner)? {
        if lease.sandbox.netns == sandbox.netns {
            agree(&lease, &config.requests)?;
            return Ok(lease.result);
        }
        let store = pools.store(&pool)?;
        let locked = store.enter()?;
        // The agent may have ended it between the look and the lock.
        if let Some(lease) = locked.lease(owner)? {
            return repeat(&locked, lease, &config.requests, &sandbox);
        }
    }
    let mut order = pools.order();
    let mut refusals: Vec<Error> = Vec::new();
    while let Some(pool) = order.next() {
        match Attempt::new(pools, &pool, &config, owner, &sandbox)?.run() {
            Ok(result) => {
                for refusal in &refusals {
                    tracing::warn!(
                        "network {}: {owner} has addresses of pool {pool} instead, since {}",
                        config.place.name,
                        refusal.msg
                    );
                }
                return Ok(result);
            }
            Err(error) if leads_on(error.code) => {
                refusals.push(of_pool(&pool, error));
                order.fall_back_from(&pool);
            }
            Err(error) => {
                refusals.insert(0, of_pool(&pool, error));
                break;
            }
        }
    }
    Err(explained(&config.place, refusals))
}

/// Whether the next pool is tried: not for what may pass, nor for what somebody has to put right.
fn leads_on(code: Code) -> bool {
    [
        Code::EXHAUSTED,
        Code::RESTING,
        Code::POOL_NOT_HERE,
        Code::POOL_NOT_FOR_NAMESPACE,
        Code::ADDRESS_OUTSIDE,
    ]
    .contains(&code)
}

/// The first of `refusals`, by which the runtime goes, with the others as details: that of the pool that was preferred, or the one
/// that ended the search.
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
