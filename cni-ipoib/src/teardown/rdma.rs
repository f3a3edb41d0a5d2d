// SPDX-License-Identifier: Apache-2.0
//! Returns the RDMA device of a removed attachment: from its pod, or from where the kernel put it when the
//! pod ended.

use super::{Caller, DetachTarget};
use crate::device::function::require_bound;
use crate::error::Error;
use crate::intent::Intent;
use crate::journal::NodeLock;
use crate::netns::pod_if_there;
use crate::rdma::movable::{Holder, holders};
use crate::rdma::transfer::{await_return, bring_back};

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

#[cfg(test)]
mod tests;
