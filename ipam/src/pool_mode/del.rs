// SPDX-License-Identifier: Apache-2.0
//! DEL: releases the addresses of an attachment, or leaves them to the agent. Waits for no answer, and works
//! whatever the state of the pools.

use super::Pools;
use crate::agent::{AskedBy, Pod, Request, Verb};
use crate::config::is_unfinished;
use crate::del::{log_kept, reported};
use crate::pool::PoolName;
use common::cni::dispatch::Call;
use common::cni::{Attachment, Error};
use std::net::IpAddr;

pub(crate) fn del(pools: &Pools, call: &Call, owner: &Attachment) -> Result<(), Error> {
    let reported = reported(call);
    let mut first_error = None;
    for name in pools.all()? {
        let ended = Ended {
            owner,
            reported: &reported,
            unfinished: is_unfinished(&call.conf),
        };
        if let Err(error) = release(pools, &name, &ended) {
            first_error.get_or_insert(super::of_pool(&name, error));
        }
    }
    first_error.map_or(Ok(()), Err)
}

/// What DEL knows of the attachment.
struct Ended<'d> {
    owner: &'d Attachment,
    /// The addresses that ADD reported.
    reported: &'d [IpAddr],
    /// Whether the ADD of the main plugin did not succeed.
    unfinished: bool,
}

fn release(pools: &Pools, name: &PoolName, ended: &Ended<'_>) -> Result<(), Error> {
    let Ended { owner, reported, .. } = *ended;
    let store = pools.store(name)?;
    // A pool without anything of the attachment is skipped without waiting for its lock. Not so a pool of the
    // configuration: an ADD that was killed may have left an unfinished lease there. A DEL that was killed on a
    // full disk may have left an address without its lease in any pool.
    let concerns = || store.has_lease(owner) || store.is_asking(owner) || store.has_address_of(reported);
    if !pools.place.pools.contains(name) && !concerns() {
        return Ok(());
    }
    let Some(locked) = store.enter_for(owner)? else {
        return Ok(());
    };
    if let Some(lease) = locked.lease_of_other_network(owner) {
        log_kept(owner, &lease);
        return Ok(());
    }
    let lease = locked.lease(owner).ok().flatten();
    let asking = locked.is_asking(owner);
    if ended.unfinished {
        locked.note_unproven(owner)?;
    }
    let released = locked.release(owner)?;
    locked.release_unleased(owner, reported)?;
    if asking {
        locked.end_asking(owner)?;
    }
    drop(locked);
    tracing::debug!(pool = %name, attachment = %owner, found = released.is_some(), "released the lease of an attachment");
    let objects = released.unwrap_or_default();
    if asking || !objects.is_empty() {
        pools.agent.notify(&Request {
            attachment: Some(AskedBy {
                owner: owner.clone(),
                network: pools.place.name.clone(),
            }),
            pod: lease.and_then(|lease| Pod::of(&lease.sandbox)),
            ips: objects,
            ..Request::new(Verb::Release, name.clone())
        });
    }
    Ok(())
}
