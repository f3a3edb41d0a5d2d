// SPDX-License-Identifier: Apache-2.0
//! DEL: releases the addresses of an attachment, even if its configuration is not valid any more.

use crate::config::{Place, is_unfinished};
use crate::store::{Lease, Node, Store};
use common::cni::dispatch::Call;
use common::cni::{Attachment, Error};
use std::net::IpAddr;

pub(crate) fn del(node: &Node, call: &Call, owner: &Attachment) -> Result<(), Error> {
    let place = match Place::read(&call.conf) {
        Ok(place) => place,
        Err(error) => {
            // ADD refuses such a place, so nothing exists. An error would keep the pod from being deleted.
            tracing::warn!(attachment = %owner, error = %error.msg, "nothing to release: ADD refuses such a configuration");
            return Ok(());
        }
    };
    let store = Store::new(&place, node)?;
    if let Some(locked) = store.enter_for(owner)? {
        if let Some(lease) = locked.lease_of_other_network(owner) {
            log_kept(owner, &lease);
            return Ok(());
        }
        if is_unfinished(&call.conf) {
            locked.note_unproven(owner)?;
        }
        let found = locked.release(owner)?.is_some();
        locked.release_unleased(owner, &reported(call))?;
        tracing::debug!(network = place.network, attachment = %owner, found, "released the lease of an attachment");
    }
    Ok(())
}

/// Logs that DEL keeps the lease of another network: the interface lives, and only that network's DEL ends it.
pub(crate) fn log_kept(owner: &Attachment, lease: &Lease) {
    tracing::info!(attachment = %owner, network = lease.network, "kept the lease of another network under the same interface name");
}

/// The addresses that ADD reported, if the runtime sends its result.
pub(crate) fn reported(call: &Call) -> Vec<IpAddr> {
    let result = call.conf.prev_result().ok().flatten().unwrap_or_default();
    result.ips.iter().map(|ip| ip.address.ip()).collect()
}
