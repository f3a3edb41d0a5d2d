// SPDX-License-Identifier: Apache-2.0
//! Returns the link of a removed attachment: from its pod, or from where the kernel put it when the pod
//! ended.

use super::{Caller, DetachTarget};
use crate::device::function;
use crate::device::repair::restore_returned;
use crate::device::restore::{delete_links_on, find, leave_pod};
use crate::error::{DeviceError, Error};
use crate::intent::Snapshot;
use crate::journal::{NodeLock, Written, others};
use crate::kernel::{Kernel, Side};
use crate::mark::Mark;
use crate::netns::pod_if_there;
use crate::policy;
use common::netlink::Link;
use std::path::Path;
use std::thread::sleep;
use std::time::{Duration, Instant};

/// How long the kernel may take to clean up dead namespaces (`cleanup_net` handles them one after another).
const RETURN_TIMEOUT: Duration = Duration::from_secs(5);

const POLL: Duration = Duration::from_millis(20);

/// Restores the link that was moved for `target`. Returns `false` if none was moved.
///
/// # Errors
/// The kernel refused, or the link has not returned yet: the call must be repeated.
pub(super) fn return_link(caller: &Caller<'_>, target: &DetachTarget<'_>) -> Result<bool, Error> {
    let (node, network) = (caller.node, caller.network());
    let intent = target.intent.as_ref();
    let Some(was) = intent.and_then(|intent| intent.device.as_ref()) else {
        return Ok(false);
    };
    if !was.is_of_this_boot() {
        tracing::debug!(
            link = was.name,
            "link was recreated by a reboot; nothing to restore"
        );
        return Ok(true);
    }
    let table = policy::table(&Mark::new(network, target.attachment));
    let lock = NodeLock::take(node.state())?;
    let others = others(node.state(), network, target.attachment)?;
    for (path, id) in target.namespaces() {
        let Some(netns) = pod_if_there(&path, id)? else {
            continue;
        };
        let mut kernel = node.kernel(Some(&netns))?;
        policy::remove(&mut *kernel, table)?;
        if let Some(link) = find(&mut *kernel, Side::Pod, &was.hardware)? {
            let is_of_pod = |child: &Link| !others.iter().any(|of| of.has_in(netns.id(), child));
            delete_links_on(&mut *kernel, Side::Pod, &link, is_of_pod)?;
            leave_pod(&mut *kernel, &link, was)?;
            break;
        }
    }
    let mut kernel = node.kernel(None)?;
    if others.iter().any(|other| has(other, was) && other.lives()) {
        tracing::info!(
            link = was.name,
            "link returned to the host and belongs to another pod now"
        );
        return Ok(true);
    }
    // No other call can claim the link while it is away.
    drop(lock);
    let returning = Returning {
        state: node.state(),
        was,
        others: &others,
    };
    returning.wait(&mut *kernel, RETURN_TIMEOUT).map(|()| true)
}

/// A link that the kernel is about to return.
struct Returning<'a> {
    state: &'a Path,
    was: &'a Snapshot,
    others: &'a [Written],
}

impl Returning<'_> {
    fn wait(&self, kernel: &mut dyn Kernel, timeout: Duration) -> Result<(), Error> {
        let was = self.was;
        let deadline = Instant::now() + timeout;
        loop {
            function::require_bound(kernel, was)?;
            if let Some(link) = find(kernel, Side::Host, &was.hardware)? {
                let _lock = NodeLock::take(self.state)?;
                return restore_returned(kernel, &link, was, self.others);
            }
            if !has_driver(was) {
                tracing::warn!(
                    link = was.name,
                    "link is gone; was it unplugged, or its driver unloaded?"
                );
                return Ok(());
            }
            if Instant::now() > deadline {
                return Err(DeviceError::Away {
                    link: was.name.clone(),
                    waited: timeout,
                }
                .into());
            }
            sleep(POLL);
        }
    }
}

fn has(other: &Written, was: &Snapshot) -> bool {
    let its = other.intent.device.as_ref();
    its.is_some_and(|its| its.hardware.is_same(&was.hardware))
}

/// Whether the device of the link exists and has a driver, so that the link must be in some namespace.
fn has_driver(was: &Snapshot) -> bool {
    // Devices of other buses may have no driver link in sysfs.
    let links_driver = |device: &String| device.starts_with("pci/") || device.starts_with("auxiliary/");
    let linked = was.hardware.device.as_ref().is_some_and(links_driver);
    let path = was.hardware.path.as_ref();
    path.is_some_and(|path| path.exists() && (!linked || path.join("driver").exists()))
}

#[cfg(test)]
mod tests;
