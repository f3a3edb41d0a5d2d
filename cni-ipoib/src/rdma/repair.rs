// SPDX-License-Identifier: Apache-2.0
//! RDMA devices that the kernel returned to the host when their pods ended without DEL, under their names in
//! the pod. DEL and GC restore the names. An ADD restores the name of the device that it asks for.
//!
//! Invariant: ADD renames no device that neither belongs to its link nor has the name that it asks for.

use super::facts::{Facts, devices, mode, path_of};
use super::find::find;
use super::observe;
use super::resolve::Sources;
use super::transfer::restore_name;
use crate::config::Rdma;
use crate::error::Error;
use crate::intent::Identity;
use crate::journal::{Taken, Written, takers};
use crate::kernel::Side;
use common::netlink::{Link, NetnsMode, RdmaDevice};

/// Restores the name of the device of `link`, a link of the host, and of a device that has the name which
/// `asked` requests, if dead pods had them. Returns whether a name changed.
///
/// # Errors
/// The journal cannot be listed, or the kernel refused.
pub(crate) fn restore_names(
    from: &mut Sources<'_>,
    asked: Option<&Rdma>,
    link: &Link,
) -> Result<bool, Error> {
    if !from.sysfs.has_rdma() || mode(from.kernel)? != NetnsMode::Exclusive {
        return Ok(false);
    }
    let dead = of_dead_pods(from)?;
    if dead.is_empty() {
        return Ok(false);
    }
    let facts = observe(from.kernel, from.sysfs, Side::Host, link)?;
    let on_host = devices(from.kernel, Side::Host)?;
    let mut changed = false;
    for identity in dead {
        let renamed = present(from, &identity, &on_host)?.filter(|device| device.name != identity.name);
        let Some(device) = renamed else { continue };
        let wanted = asked.and_then(|rdma| rdma.rename.as_ref()) == Some(&device.name);
        if wanted || belongs(&facts, &identity, device) {
            changed |= restore_name(from.kernel, from.sysfs, &identity)?;
        }
    }
    Ok(changed)
}

/// The devices of dead pods that no living pod has.
fn of_dead_pods(from: &Sources<'_>) -> Result<Vec<Identity>, Error> {
    let (living, dead): (Vec<_>, Vec<_>) = takers(from.state, Taken::RdmaDevice)?
        .into_iter()
        .partition(Written::lives);
    let moved = |of: &Written| of.intent.moved().cloned();
    let taken: Vec<Identity> = living.iter().filter_map(moved).collect();
    let left = dead.iter().filter_map(moved);
    Ok(left
        .filter(|identity| !taken.iter().any(|other| other.is_same(identity)))
        .collect())
}

fn present<'d>(
    from: &Sources<'_>,
    identity: &Identity,
    on_host: &'d [RdmaDevice],
) -> Result<Option<&'d RdmaDevice>, Error> {
    let all = super::facts::all(from.sysfs)?;
    Ok(identity.among(on_host, |name| path_of(&all, name)))
}

/// Whether the device belongs to the link of `facts`: it is on the function of the link or of a link below
/// it, or the rules find it.
fn belongs(facts: &Facts, identity: &Identity, device: &RdmaDevice) -> bool {
    let behind = facts.lowers.iter().filter_map(|lower| lower.behind.as_ref());
    let on_function = behind
        .into_iter()
        .any(|behind| identity.path.as_ref() == Some(&behind.path));
    on_function || find(facts, None).is_ok_and(|found| found.seen.device.name == device.name)
}

#[cfg(test)]
mod tests;
