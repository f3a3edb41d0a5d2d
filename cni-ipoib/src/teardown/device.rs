// SPDX-License-Identifier: Apache-2.0
//! Returns the link of a removed attachment: from its pod, or from where the kernel put it when the pod
//! ended.

use super::{Caller, DetachTarget};
use crate::device::function;
use crate::device::guids::has_port;
use crate::device::repair::restore_returned;
use crate::device::restore::{find, leave_pod};
use crate::error::{DeviceError, Error, Step};
use crate::intent::{Made, Snapshot, is_made_by_software};
use crate::journal::{NodeLock, Written, others};
use crate::kernel::{Kernel, Side, links};
use crate::mark::Mark;
use crate::netns::pod_if_there;
use crate::node::Node;
use crate::policy;
use common::netlink::{Link, LinkChange, LinkLayer};
use common::rdma::Sysfs;
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
        if let Some(link) = find_in_pod(&mut *kernel, was, &others, netns.id())? {
            leave_pod(&mut *kernel, &link, was, (netns.id(), &others))?;
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
        node,
        was,
        others: &others,
    };
    returning.wait(&mut *kernel, RETURN_TIMEOUT).map(|()| true)
}

/// Brings down the whole link of an attachment without a usable intent, in the pod, because DEL releases its addresses. Its alias
/// identifies it. The link stays in the pod: no file has its former name and settings, and its RDMA device may be in the pod
/// too.
///
/// # Errors
/// The kernel refuses.
pub(super) fn bring_down_unrecorded(kernel: &mut dyn Kernel, alias: &str) -> Result<(), Error> {
    let has_layer = |link: &Link| matches!(link.layer, LinkLayer::Infiniband | LinkLayer::Ethernet);
    let is_whole = |link: &Link| link.alias.as_deref() == Some(alias) && !is_made_by_software(link);
    let down = LinkChange {
        up: Some(false),
        ..LinkChange::default()
    };
    for link in links(kernel, Side::Pod)? {
        if link.up && has_layer(&link) && is_whole(&link) {
            tracing::warn!(link = link.name, %alias, "bringing a whole link down in the pod, because no file describes it and its addresses are released");
            kernel
                .change_link(Side::Pod, link.index, &down)
                .step(|| format!("bring {} down in the pod", link.name))?;
        }
    }
    Ok(())
}

/// A link that the kernel is about to return.
struct Returning<'a> {
    node: &'a Node,
    was: &'a Snapshot,
    others: &'a [Written],
}

impl Returning<'_> {
    fn wait(&self, kernel: &mut dyn Kernel, timeout: Duration) -> Result<(), Error> {
        let was = self.was;
        let deadline = Instant::now() + timeout;
        {
            let _lock = NodeLock::attempt(self.node.state());
            function::require_bound(kernel, was)?;
        }
        loop {
            if let Some(link) = find(kernel, Side::Host, &was.hardware)? {
                let _lock = NodeLock::take(self.node.state())?;
                return restore_returned(kernel, &link, was, self.others);
            }
            if !has_driver(was) {
                tracing::warn!(
                    link = was.name,
                    "link is gone; was it unplugged, or its driver unloaded?"
                );
                return Ok(());
            }
            match readdressed(kernel, &self.node.sysfs(), was)? {
                Some(Readdressed::ByPod(link)) => {
                    let _lock = NodeLock::take(self.node.state())?;
                    return restore_returned(kernel, &link, was, self.others);
                }
                Some(Readdressed::ByDriver(other)) => {
                    tracing::warn!(
                        link = was.name,
                        successor = other.name,
                        "link is gone: its driver created another one with another address; nothing to restore"
                    );
                    return Ok(());
                }
                None => {}
            }
            if Instant::now() > deadline {
                if let Some(owner) = owner_of_successor(was, self.others) {
                    tracing::warn!(link = was.name, %owner, "link is gone: its driver created another one, which a pod has; nothing to restore");
                    return Ok(());
                }
                // The kernel may just be making the link of a device that has returned, so this is asked last.
                if !has_links(was) {
                    tracing::warn!(
                        link = was.name,
                        "link is gone: its device has no link in any namespace; was its driver replaced or unloaded, or did the device fail?"
                    );
                    return Ok(());
                }
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

/// The link in the pod. A pod may change the GUID in the address of an `IPoIB` link. Then the device identifies the link, or
/// before Linux 5.14 the queue pair, unless it is the link of another attachment. A child of another attachment in the namespace
/// `netns` may report no parent.
fn find_in_pod(
    kernel: &mut dyn Kernel,
    was: &Snapshot,
    others: &[Written],
    netns: (u64, u64),
) -> Result<Option<Link>, Error> {
    let hardware = &was.hardware;
    let mut all = links(kernel, Side::Pod)?;
    let in_pod = others.iter().filter(|of| of.intent.netns_id == netns);
    let children: Vec<&Made> = in_pod.flat_map(|of| &of.intent.made).collect();
    all.retain(|link| !children.iter().any(|made| made.is_pair_of(link)));
    if let Some(at) = all.iter().position(|link| hardware.is(link)) {
        return Ok(Some(all.swap_remove(at)));
    }
    let of_other = |link: &Link| {
        let mut their = others.iter().filter_map(|of| of.intent.device.as_ref());
        their.any(|their| their.hardware.is(link))
    };
    let has_pair = |link: &Link| {
        let pair = link.address.queue_pair();
        pair.is_some() && pair == was.address.queue_pair()
    };
    let is_it = |link: &Link| {
        hardware.is_device_of(link) || link.device.is_none() && !is_made_by_software(link) && has_pair(link)
    };
    Ok(all.into_iter().find(|link| is_it(link) && !of_other(link)))
}

/// A link of the same port as a recorded link, with another GUID or permanent address.
enum Readdressed {
    /// The recorded link, whose port still has the recorded GUID.
    ByPod(Link),
    /// Another link. The driver was bound again, and a physical function may give its virtual functions other addresses.
    ByDriver(Link),
}

/// The link on the host that is, or follows, the link `was`.
fn readdressed(kernel: &mut dyn Kernel, sysfs: &Sysfs, was: &Snapshot) -> Result<Option<Readdressed>, Error> {
    let hardware = &was.hardware;
    let (Some(path), Some(port)) = (&hardware.path, was.port) else {
        return Ok(None);
    };
    let mut present = links(kernel, Side::Host)?;
    let on_port = |link: &Link| {
        let behind = sysfs.behind(link);
        behind.is_some_and(|behind| behind.path == *path && behind.port == Some(port))
    };
    present.retain(|link| !is_made_by_software(link) && on_port(link));
    // It may have returned since the caller looked for it.
    if present.iter().any(|link| hardware.is(link)) {
        return Ok(None);
    }
    Ok(present.into_iter().next().map(|link| {
        if hardware.port_guid.is_some_and(|guid| has_port(path, guid)) {
            Readdressed::ByPod(link)
        } else {
            Readdressed::ByDriver(link)
        }
    }))
}

/// The living attachment that has the link that follows `was` on its port.
fn owner_of_successor<'o>(was: &Snapshot, others: &'o [Written]) -> Option<&'o Written> {
    let follows = |their: &Snapshot| {
        let same = their.hardware.path == was.hardware.path && their.port == was.port;
        same && was.port.is_some() && !their.hardware.is_same(&was.hardware)
    };
    let mut others = others.iter();
    others.find(|of| of.intent.device.as_ref().is_some_and(follows) && of.lives())
}

fn has(other: &Written, was: &Snapshot) -> bool {
    let its = other.intent.device.as_ref();
    its.is_some_and(|its| its.hardware.is_same(&was.hardware))
}

/// Whether the device of the link has a link in any namespace. The kernel removes the directory with the last of them, and it is
/// visible in every namespace (`cleanup_glue_dir` in `drivers/base/core.c`).
fn has_links(was: &Snapshot) -> bool {
    let path = was.hardware.path.as_ref();
    path.is_some_and(|path| path.join("net").exists())
}

/// Whether the device of the link exists and has a driver, so that the link should be in some namespace.
fn has_driver(was: &Snapshot) -> bool {
    // Devices of other buses may have no driver link in sysfs.
    let links_driver = |device: &String| device.starts_with("pci/") || device.starts_with("auxiliary/");
    let linked = was.hardware.device.as_ref().is_some_and(links_driver);
    let path = was.hardware.path.as_ref();
    path.is_some_and(|path| path.exists() && (!linked || path.join("driver").exists()))
}

#[cfg(test)]
mod tests;
