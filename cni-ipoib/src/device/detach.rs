// SPDX-License-Identifier: Apache-2.0
//! Returns the link of a removed attachment: from its pod, or from where the kernel put it when the pod
//! ended.

use super::add::hardware;
use super::function;
use super::restore::{find, leave_pod, restore_state};
use crate::CniIpoib;
use crate::del::DetachTarget;
use crate::error::{DeviceError, Error};
use crate::intent::Snapshot;
use crate::journal::{Intent, Journal, NodeLock, Written, whole_links};
use crate::kernel::{Kernel, Side};
use crate::mark::Mark;
use crate::netns::pod_if_there;
use crate::policy;
use std::thread::sleep;
use std::time::{Duration, Instant};

/// How long the kernel may take to clean up dead namespaces (`cleanup_net` handles them one after another).
const RETURN_TIMEOUT: Duration = Duration::from_secs(5);

const POLL: Duration = Duration::from_millis(20);

impl CniIpoib {
    /// Restores the link that was moved for `target`. Returns `false` if none was moved.
    ///
    /// # Errors
    /// The kernel refused, or the link has not returned yet: the runtime must retry.
    pub(crate) fn return_link(&self, network: &str, target: &DetachTarget<'_>) -> Result<bool, Error> {
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
        let lock = NodeLock::take(&self.paths.state)?;
        for (path, id) in target.namespaces() {
            let Some(netns) = pod_if_there(&path, id)? else {
                continue;
            };
            let mut kernel = self.open_kernel(Some(&netns))?;
            policy::remove(&mut *kernel, table)?;
            if leave_pod(&mut *kernel, was)? {
                break;
            }
        }
        let others = self.others(network, target.attachment)?;
        let mut kernel = self.open_kernel(None)?;
        if others.iter().any(|other| has(other, was) && lives(&other.intent)) {
            tracing::info!(
                link = was.name,
                "link returned to the host and belongs to another pod now"
            );
            return Ok(true);
        }
        // No other call can claim the link while it is away.
        drop(lock);
        self.await_link(&mut *kernel, was, &others, RETURN_TIMEOUT)
            .map(|()| true)
    }

    fn await_link(
        &self,
        kernel: &mut dyn Kernel,
        was: &Snapshot,
        others: &[Written],
        patience: Duration,
    ) -> Result<(), Error> {
        let deadline = Instant::now() + patience;
        loop {
            function::require_bound(kernel, was)?;
            if let Some(link) = find(kernel, Side::Host, &was.hardware)? {
                let _lock = NodeLock::take(&self.paths.state)?;
                let link = function::restore(kernel, &link, was)?;
                return restore_state(kernel, &link, was, &hardware(others));
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
                    waited: patience,
                }
                .into());
            }
            sleep(POLL);
        }
    }

    /// Restores the links of dead pods that the kernel returned, so that they are found by their names. A
    /// link that another call works on is skipped.
    ///
    /// # Errors
    /// The journal cannot be read or written, or the kernel refused.
    pub(crate) fn sweep_links(&self, kernel: &mut dyn Kernel) -> Result<(), Error> {
        let state = &self.paths.state;
        let all = whole_links(state)?;
        let away = |of: &&Written| of.intent.device.as_ref().is_some_and(Snapshot::is_of_this_boot);
        for dead in all.iter().filter(away).filter(|of| !lives(&of.intent)) {
            let _lock = NodeLock::take(state)?;
            let mut entry = match Journal::new(state, &dead.network).idle(&dead.attachment) {
                Ok(Some(entry)) => entry,
                Ok(None) | Err(Error::Busy(_)) => continue,
                Err(error) => return Err(error),
            };
            let (done, intent) = (entry.done, entry.intent.clone());
            let Some((intent, was)) =
                intent.and_then(|intent| intent.device.clone().map(|was| (intent, was)))
            else {
                continue;
            };
            function::require_bound(kernel, &was)?;
            let Some(link) = find(kernel, Side::Host, &was.hardware)? else {
                continue;
            };
            tracing::info!(link = was.name, attachment = %dead.attachment, "restoring a link that returned from a dead pod");
            let link = function::restore(kernel, &link, &was)?;
            restore_state(kernel, &link, &was, &hardware(&all))?;
            // DEL or GC releases its addresses. The link belongs to the host again.
            entry.begin(Intent {
                device: None,
                ..intent
            })?;
            if done {
                entry.finish()?;
            }
        }
        Ok(())
    }
}

/// Whether the namespace that ADD used exists. If that cannot be checked, it counts as existing.
pub(super) fn lives(intent: &Intent) -> bool {
    pod_if_there(&intent.netns, Some(intent.netns_id)).map_or(true, |netns| netns.is_some())
}

fn has(other: &Written, was: &Snapshot) -> bool {
    let its = other.intent.device.as_ref();
    its.is_some_and(|its| its.hardware.is_same(&was.hardware))
}

/// Whether the device of the link exists and has a driver, so that the link must be in some namespace.
fn has_driver(was: &Snapshot) -> bool {
    // Devices of other buses may have no driver link in sysfs.
    let says = |device: &String| device.starts_with("pci/") || device.starts_with("auxiliary/");
    let told = was.hardware.device.as_ref().is_some_and(says);
    let path = was.hardware.path.as_ref();
    path.is_some_and(|path| path.exists() && (!told || path.join("driver").exists()))
}

#[cfg(test)]
mod tests;
