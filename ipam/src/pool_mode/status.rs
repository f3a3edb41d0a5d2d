// SPDX-License-Identifier: Apache-2.0
//! STATUS: reports whether an ADD would get its addresses now. Claims nothing.

use super::add::explained;
use super::shortage::{AgentNeed, Local};
use super::{PoolRefusal, Pools, without_name};
use crate::agent::{Request, Verb};
use crate::allocator::{self, Prober, try_allocate};
use crate::config::{PoolConfig, Requests};
use crate::pool::{Allocation, PoolName, PoolRanges, Standing};
use common::cni::dispatch::Call;
use common::cni::{Code, Error};
use std::time::Instant;

pub(crate) fn status(pools: &Pools, call: &Call) -> Result<(), Error> {
    let config = PoolConfig::read(call, pools.place.clone())?;
    let pools = &Pools {
        place: config.place.clone(),
        ..*pools
    };
    let mut order = pools.order();
    while let Some(name) = order.next() {
        match ready(pools, &name, config.probes) {
            Ok(()) => return Ok(()),
            Err(refusal) => order.refuse(&name, refusal),
        }
    }
    Err(Error {
        code: Code::NOT_AVAILABLE,
        ..explained(&config.place, order.refusals)
    })
}

/// Whether this node has an address of each family of `name`, or the agent could get one.
fn ready(pools: &Pools, name: &PoolName, probes: bool) -> Result<(), PoolRefusal> {
    let Some(need) = needed(pools, name, probes)? else {
        return Ok(());
    };
    let request = Request::new(Verb::Status, name.clone());
    let answer = pools.ask(&request, Instant::now() + pools.agent.limit);
    answer
        .map(drop)
        .map_err(|refusal| refusal.map(|error| need.refused(without_name(name, error))))
}

/// What an ADD would need from the agent; `None` if nothing. To a main plugin that probes, a resting address
/// will do.
fn needed(pools: &Pools, name: &PoolName, probes: bool) -> Result<Option<AgentNeed>, Error> {
    let store = pools.store(name)?;
    if !store.has_pool() {
        return Ok(Some(AgentNeed::File(store.pool_path())));
    }
    let (locked, pool) = store.enter_pool()?;
    locked.require_writable()?;
    let Some(pool) = pool else {
        return Ok(Some(AgentNeed::File(store.pool_path())));
    };
    if let Standing::Unproven(why) = store.standing(&pool) {
        return Ok(Some(AgentNeed::Proof {
            blocks: pool.blocks.len(),
            why,
        }));
    }
    if pool.allocation == Allocation::Agent {
        return Ok(Some(AgentNeed::Address { ips: Vec::new() }));
    }
    let ranges = PoolRanges::new(&pool, &store.pool_path())?;
    let early = probes.then_some(Prober { pod: None });
    for family in ranges.families() {
        match try_allocate(&[ranges.here(family)], &Requests::default(), &locked, early) {
            Ok(_) => {}
            Err(allocator::Refusal::Short(shortage)) => {
                return Ok(Some(AgentNeed::Block(Local::of(&pool, family, &shortage))));
            }
            Err(allocator::Refusal::Other(error)) => return Err(error),
        }
    }
    Ok(None)
}
