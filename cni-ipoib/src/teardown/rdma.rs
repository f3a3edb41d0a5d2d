// SPDX-License-Identifier: Apache-2.0
//! Returns the RDMA device of a removed attachment: from its pod, or from where the kernel put it when the
//! pod ended.

use super::{Caller, DetachTarget};
use crate::device::function::require_bound;
use crate::error::Error;
use crate::intent::{Grant, Identity, Intent};
use crate::journal::{NodeLock, Taken, takers};
use crate::kernel::Side;
use crate::netns::pod_if_there;
use crate::rdma::movable::{Holder, holders};
use crate::rdma::transfer::{await_return, bring_back, set_aside};

/// Returns the device that was moved for `target`, if any.
///
/// # Errors
/// The kernel refused, or the device has not returned yet: the call must be repeated.
pub(super) fn return_device(caller: &Caller<'_>, target: &DetachTarget<'_>) -> Result<(), Error> {
    let node = caller.node;
    let intent = target.intent.as_ref();
    let Some(identity) = intent.and_then(Intent::moved) else {
        return Ok(());
    };
    if let Err(error) = free_name(caller, identity) {
        tracing::warn!(name = identity.name, %error, "cannot rename the RDMA device that has the name of the device to return");
    }
    for (path, id) in target.namespaces() {
        let Some(netns) = pod_if_there(&path, id)? else {
            continue;
        };
        let mut kernel = node.kernel(Some(&netns))?;
        if bring_back(&mut *kernel, node.state(), identity)? {
            return Ok(());
        }
    }
    // It returned when its namespace ended, and another pod has it now.
    let own = |other: &Holder| other.network == caller.network() && other.attachment == *target.attachment;
    if holders(node.state())?
        .iter()
        .any(|other| !own(other) && other.has(identity))
    {
        return Ok(());
    }
    let mut kernel = node.kernel(None)?;
    // A virtual function that was left without its driver has no RDMA device.
    if let Some(was) = intent.and_then(|intent| intent.device.as_ref()) {
        let _lock = NodeLock::attempt(node.state());
        require_bound(&mut *kernel, was)?;
    }
    await_return(&mut *kernel, &node.sysfs(), identity)
}

/// Frees the name of the device `identity`, if a pod gave it to another device. The kernel keeps names unique on a node, whatever
/// the namespace. DEL of the other attachment restores the name of its device.
fn free_name(caller: &Caller<'_>, identity: &Identity) -> Result<(), Error> {
    let node = caller.node;
    let name = &identity.name;
    let is_other = |grant: &&Grant| grant.device.name != *name && grant.name_in_pod() != name;
    // Otherwise a DEL of the other attachment could restore the name of its device between the list and the rename.
    let _lock = NodeLock::attempt(node.state());
    for other in takers(node.state(), Taken::RdmaDevice)? {
        let Some(its) = other.intent.rdma.as_ref().filter(is_other).and_then(Grant::moved) else {
            continue;
        };
        let netns = pod_if_there(&other.intent.netns, Some(other.intent.netns_id))?;
        let mut kernel = node.kernel(netns.as_ref())?;
        // The namespace to which the pod had moved the device may have ended.
        let in_pod = netns.is_some() && set_aside(&mut *kernel, Side::Pod, its, name)?;
        if in_pod || set_aside(&mut *kernel, Side::Host, its, name)? {
            tracing::warn!(name, attachment = %other, "a pod had given the name of the device to another RDMA device, which is renamed");
            return Ok(());
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests;
