// SPDX-License-Identifier: Apache-2.0
//! GC: leases of this network whose attachments are gone end.

use crate::config::Place;
use crate::store::{Node, Store};
use common::cni::dispatch::Call;
use common::cni::{Attachment, Error, GcConf};
use std::collections::HashSet;

pub(crate) fn gc(node: &Node, call: &Call, conf: &GcConf) -> Result<(), Error> {
    let place = Place::read(&call.conf)?;
    let started = node.clock.since_boot()?;
    let store = Store::new(&place, node)?;
    let Some(locked) = store.enter_existing()? else {
        return Ok(());
    };
    let valid: HashSet<&Attachment> = conf.valid.iter().collect();
    let mut errors = Vec::new();
    for owner in locked.owners()?.iter().filter(|owner| !valid.contains(owner)) {
        match locked.lease(owner) {
            // The list names attachments of this configuration alone, while others may share the network.
            Ok(Some(lease)) if lease.network != place.name => continue,
            // The list is older than this call, so it cannot know of leases that are younger.
            Ok(Some(lease)) if lease.since_boot > started => continue,
            Err(error) if place.network != place.name => {
                errors.push(error);
                continue;
            }
            _ => {}
        }
        match locked.release(owner) {
            Ok(_) => tracing::info!(
                "released {owner} of network {}, which is not valid any more",
                place.network
            ),
            Err(error) => errors.push(error),
        }
    }
    errors.extend(locked.release_ownerless(&valid)?);
    summary(errors)
}

/// The first of `errors`, with the others as details.
fn summary(errors: Vec<Error>) -> Result<(), Error> {
    let mut errors = errors.into_iter();
    let Some(first) = errors.next() else { return Ok(()) };
    let others = errors.map(|error| error.msg).collect::<Vec<_>>().join("; ");
    let msg = format!("{}; GC has released all it could", first.msg);
    Err(Error { msg, ..first }.with_details(others))
}
