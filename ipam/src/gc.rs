// SPDX-License-Identifier: Apache-2.0
//! GC: ends the leases of this network whose attachments are gone.

use crate::config::Place;
use crate::store::{Locked, Node, Store};
use common::cni::dispatch::Call;
use common::cni::{Attachment, Error, GcConf};
use std::collections::HashSet;
use std::time::Duration;

/// How many leases GC ends before it releases the lock: some tens of milliseconds of work.
const AT_ONCE: usize = 128;

/// How long GC then leaves the lock free. flock(2) is not fair, and a waiting call must wake up first.
const PAUSE: Duration = Duration::from_millis(2);

pub(crate) fn gc(node: &Node, call: &Call, conf: &GcConf) -> Result<(), Error> {
    let place = Place::read(&call.conf)?;
    let scope = Scope {
        place: format!("network {}", place.network),
        started: node.clock.since_boot()?,
    };
    summary(collect(&Store::new(&place, node)?, &scope, conf)?)
}

/// The leases of one store that GC may end.
pub(crate) struct Scope {
    /// The store's name, for a person.
    pub(crate) place: String,
    /// The start of the call on the kernel's clock.
    pub(crate) started: Duration,
}

/// Ends the leases of one store that are no longer valid. Returns the errors.
pub(crate) fn collect(store: &Store, scope: &Scope, conf: &GcConf) -> Result<Vec<Error>, Error> {
    let valid: HashSet<&Attachment> = conf.valid.iter().collect();
    let Some(locked) = store.enter_existing()? else {
        return Ok(Vec::new());
    };
    let mut owners = locked.owners()?;
    drop(locked);
    owners.retain(|owner| !valid.contains(owner));
    let mut errors = Vec::new();
    for (i, some) in owners.chunks(AT_ONCE).enumerate() {
        if i > 0 {
            std::thread::sleep(PAUSE);
        }
        let Some(locked) = store.enter_existing()? else {
            return Ok(errors);
        };
        errors.extend(collect_some(&locked, scope, some));
        locked.sweep(AT_ONCE * 2);
    }
    if let Some(locked) = store.enter_existing()? {
        errors.extend(locked.release_ownerless(&valid)?);
    }
    Ok(errors)
}

/// Ends the leases of `owners` under one lock. Returns the errors.
fn collect_some(locked: &Locked, scope: &Scope, owners: &[Attachment]) -> Vec<Error> {
    let mut errors = Vec::new();
    for owner in owners {
        match locked.lease(owner) {
            // The list names attachments of this configuration only, while other configurations may share the
            // store. It was made before this call, so it cannot contain leases that are younger.
            Ok(Some(lease)) if locked.is_own(&lease) && lease.since_boot <= scope.started => {}
            Ok(_) => continue,
            // Another configuration may have made an unreadable lease, and its pod may live.
            Err(error) => {
                errors.push(error);
                continue;
            }
        }
        match locked.end(owner) {
            Ok(_) => {
                tracing::info!(store = scope.place, attachment = %owner, "released the lease of an attachment that is no longer valid");
            }
            Err(error) => errors.push(error),
        }
    }
    errors
}

/// The first of `errors`, with the others as details.
pub(crate) fn summary(errors: Vec<Error>) -> Result<(), Error> {
    let mut errors = errors.into_iter();
    let Some(first) = errors.next() else { return Ok(()) };
    let others = errors.map(|error| error.msg).collect::<Vec<_>>().join("; ");
    let msg = format!("{}; GC has released all it could", first.msg);
    Err(Error { msg, ..first }.with_details(others))
}
