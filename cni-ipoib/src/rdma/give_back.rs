// SPDX-License-Identifier: Apache-2.0
//! Returns the device of a removed attachment: from its pod, or from where the kernel put it when the pod
//! ended.

use super::movable::{Holder, holders};
use super::transfer::{await_return, bring_back, put_right};
use crate::CniIpoib;
use crate::del::DetachTarget;
use crate::device::function::require_bound;
use crate::error::Error;
use crate::intent::{Grant, Identity};
use crate::journal::{Intent, written};
use crate::kernel::Kernel;
use crate::netns::pod_if_there;
use common::rdma::Sysfs;
use std::path::Path;

impl CniIpoib {
    /// Returns the device that was moved for `target`, if any.
    ///
    /// # Errors
    /// The kernel refused, or the device has not returned yet: the runtime must retry.
    pub(crate) fn return_rdma_device(&self, network: &str, target: &DetachTarget<'_>) -> Result<(), Error> {
        let intent = target.intent.as_ref();
        let Some(identity) = intent.and_then(moved) else {
            return Ok(());
        };
        for (path, id) in target.namespaces() {
            let Some(netns) = pod_if_there(&path, id)? else {
                continue;
            };
            let mut kernel = self.open_kernel(Some(&netns))?;
            if bring_back(&mut *kernel, identity)? {
                return Ok(());
            }
        }
        // It returned when its namespace ended, and another pod has it now.
        let own = |other: &Holder| other.network == network && other.attachment == *target.attachment;
        if holders(&self.paths.state)?
            .iter()
            .any(|other| !own(other) && has(&other.grant, identity))
        {
            return Ok(());
        }
        let mut kernel = self.open_kernel(None)?;
        // A virtual function that was left without its driver has no RDMA device.
        if let Some(was) = intent.and_then(|intent| intent.device.as_ref()) {
            require_bound(&mut *kernel, was)?;
        }
        await_return(&mut *kernel, &Sysfs::at(&self.paths.sysfs), identity)
    }
}

/// Restores the names of devices of dead pods, which the kernel returned to the host under their names in the
/// pod. So they are found by their names again.
///
/// # Errors
/// The journal cannot be listed, or the kernel refused.
pub fn sweep(kernel: &mut dyn Kernel, sysfs: &Sysfs, state: &Path) -> Result<(), Error> {
    for dead in written(state)? {
        let Some(identity) = moved(&dead.intent) else {
            continue;
        };
        if pod_if_there(&dead.intent.netns, Some(dead.intent.netns_id))?.is_none()
            && !holders(state)?.iter().any(|other| has(&other.grant, identity))
        {
            put_right(kernel, sysfs, identity)?;
        }
    }
    Ok(())
}

fn moved(intent: &Intent) -> Option<&Identity> {
    intent.rdma.as_ref()?.moved()
}

fn has(grant: &Grant, identity: &Identity) -> bool {
    grant.moved().is_some_and(|other| other.is_same(identity))
}

#[cfg(test)]
mod tests;
