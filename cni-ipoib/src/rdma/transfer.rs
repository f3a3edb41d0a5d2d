// SPDX-License-Identifier: Apache-2.0
//! Moves an RDMA device into the pod and returns it, wherever it is by then.
//!
//! The kernel returns a device when its namespace ends, under the name it had there and after some time. A
//! pod may have renamed it. So it is found by its [`Identity`], first in the pod.
//!
//! Invariant: a move happens under the lock of the node. The kernel frees the number of the device's file
//! (`/dev/infiniband/uverbsN`) and then takes the lowest free one. Between the two, no other move may take the
//! number: a device plugin chose the file before ADD.

use super::facts::{devices, path_of};
use crate::error::{Error, RdmaError, Step};
use crate::intent::{Grant, Identity, Sharing};
use crate::journal::NodeLock;
use crate::kernel::{Kernel, Side, links};
use crate::mark::fnv1a;
use common::netlink::{Link, RdmaDevice};
use common::rdma::{Guid, Sysfs};
use nix::errno::Errno;
use std::path::Path;
use std::thread::sleep;
use std::time::{Duration, Instant};

/// How long the kernel may take to clean up dead namespaces (`cleanup_net` handles them one after another).
const RETURN_TIMEOUT: Duration = Duration::from_secs(5);

/// How long it may take to recreate a device's `IPoIB` links after a move. So far every kernel finished
/// before the move ended.
const IPOIB_TIMEOUT: Duration = Duration::from_secs(2);

const POLL: Duration = Duration::from_millis(20);

/// Moves the granted device from the host into the pod and renames it there. Does nothing in shared mode. `state`
/// is the state directory. The caller does not hold the lock of the node.
///
/// A failure may leave it half done. [`bring_back`] undoes either half.
///
/// # Errors
/// [`RdmaError::Unlisted`]: the host has no device of this index and GUID. [`RdmaError::Kept`]: the driver
/// cannot disassociate the device from its users. [`Error::Kernel`]: the kernel refused.
pub fn hand_over(kernel: &mut dyn Kernel, state: &Path, grant: &Grant) -> Result<(), Error> {
    let Sharing::Exclusive { rename } = &grant.netns else {
        return Ok(());
    };
    let index = &grant.device.index;
    let _lock = NodeLock::attempt(state);
    let name = &name_on_host(kernel, &grant.device)?;
    let file = kernel.verbs_file(name);
    let moved = kernel.move_rdma_device(*index, Side::Host);
    if matches!(&moved, Err(error) if error.is(Errno::EOPNOTSUPP)) {
        return Err(Error::Rdma(RdmaError::Kept {
            device: name.clone(),
            reason: "its driver cannot disassociate it from its users, so the kernel refuses the move"
                .to_owned(),
            remedy: "leave rdma out, or name a master with another device",
        }));
    }
    moved.step(|| format!("move RDMA device {name} into the pod"))?;
    if let Some(warning) = renumbered(name, file, kernel.verbs_file(name)) {
        tracing::warn!("{warning}");
    }
    match rename {
        Some(new) => kernel
            .rename_rdma_device(Side::Pod, *index, new)
            .step(|| format!("rename RDMA device {name} to {new} in the pod (names are unique on a node, whatever the namespace)")),
        None => Ok(()),
    }
}

/// The present name of the host's device with the index and GUID of `identity`. The kernel moves a device by its index alone. udev may
/// have renamed the device since it was found.
fn name_on_host(kernel: &mut dyn Kernel, identity: &Identity) -> Result<String, Error> {
    let is_it =
        |device: &RdmaDevice| device.index == identity.index && device.node_guid == identity.node_guid;
    let found = devices(kernel, Side::Host)?.into_iter().find(is_it);
    found.map(|device| device.name).ok_or_else(|| {
        Error::Rdma(RdmaError::Unlisted {
            device: identity.name.clone(),
        })
    })
}

/// The warning about a device that has another file since its move. The kernel takes a lower number if one is free.
/// A refusal would not help: the next ADD for the pod would find the lower number.
fn renumbered(name: &str, before: Option<String>, after: Option<String>) -> Option<String> {
    let (before, after) = (before?, after?);
    (before != after).then(|| {
        format!(
            "RDMA device {name} is /dev/infiniband/{after} in the pod and was /dev/infiniband/{before} on the host: a device plugin that chose the file before the move gave the pod another one; if its container cannot open the device or does not start, delete the pod"
        )
    })
}

/// Moves the device from the pod back to the host under its host name. Returns `false` if it is not in the
/// pod. `state` is the state directory. The caller does not hold the lock of the node.
///
/// # Errors
/// The kernel refused.
pub fn bring_back(kernel: &mut dyn Kernel, state: &Path, identity: &Identity) -> Result<bool, Error> {
    let _lock = NodeLock::attempt(state);
    // In shared mode the pod sees the host's devices, so there is nothing to return; nor if the device never
    // left.
    let on_host = devices(kernel, Side::Host)?;
    if identity
        .among(&on_host, |_| None)
        .is_some_and(|device| device.index == identity.index)
    {
        return Ok(false);
    }
    let in_pod = devices(kernel, Side::Pod)?;
    let Some(device) = identity.among(&in_pod, |_| None) else {
        return Ok(false);
    };
    // Renamed before the move, so that the host never sees another name.
    if device.name != identity.name {
        rename(kernel, Side::Pod, device.index, identity)?;
    }
    kernel
        .move_rdma_device(device.index, Side::Pod)
        .step(|| format!("move RDMA device {} back to the host", identity.name))?;
    Ok(true)
}

/// Restores the name of a device that the kernel returned to the host. Returns `false` if it is not on the
/// host.
///
/// # Errors
/// The kernel refused to list or rename.
pub fn restore_name(kernel: &mut dyn Kernel, sysfs: &Sysfs, identity: &Identity) -> Result<bool, Error> {
    let all = super::facts::all(sysfs)?;
    let on_host = devices(kernel, Side::Host)?;
    let Some(device) = identity.among(&on_host, |name| path_of(&all, name)) else {
        return Ok(false);
    };
    if device.name != identity.name {
        tracing::info!(
            is = device.name,
            was = identity.name,
            "restoring the name of an RDMA device that returned from a pod"
        );
        rename(kernel, Side::Host, device.index, identity)?;
    }
    Ok(true)
}

/// Renames the device `identity` if it has the name `name`, which is not its own. Returns whether it had that name.
///
/// # Errors
/// The kernel refused to list or rename.
pub fn set_aside(
    kernel: &mut dyn Kernel,
    side: Side,
    identity: &Identity,
    name: &str,
) -> Result<bool, Error> {
    let there = devices(kernel, side)?;
    let Some(device) = identity
        .among(&there, |_| None)
        .filter(|device| device.name == name)
    else {
        return Ok(false);
    };
    let aside = format!("rn{:08x}", fnv1a(identity.name.as_bytes()));
    kernel
        .rename_rdma_device(side, device.index, &aside)
        .step(|| format!("rename RDMA device {name} to {aside}"))?;
    Ok(true)
}

/// Waits until the device is on the host, and restores its name. For a pod whose namespace is gone.
///
/// # Errors
/// [`RdmaError::Lost`]: the device has not returned, though its function has an RDMA device: the kernel has not cleaned up the
/// namespace yet, or the pod moved the device on. It is no error if the function is gone, or has no RDMA device in any
/// namespace.
pub fn await_return(kernel: &mut dyn Kernel, sysfs: &Sysfs, identity: &Identity) -> Result<(), Error> {
    await_return_within(kernel, sysfs, identity, RETURN_TIMEOUT)
}

fn await_return_within(
    kernel: &mut dyn Kernel,
    sysfs: &Sysfs,
    identity: &Identity,
    timeout: Duration,
) -> Result<(), Error> {
    let deadline = Instant::now() + timeout;
    while !restore_name(kernel, sysfs, identity)? {
        if identity.path.as_ref().is_none_or(|path| !path.exists()) {
            tracing::warn!(
                device = identity.name,
                "the RDMA device is gone; was it unplugged, or its driver unloaded?"
            );
            return Ok(());
        }
        if Instant::now() > deadline {
            // The kernel removes this directory with the last device, and it is visible in every namespace.
            let class = identity.path.as_ref().map(|path| path.join("infiniband"));
            if class.is_some_and(|class| !class.exists()) {
                tracing::warn!(
                    device = identity.name,
                    "the RDMA device is gone from all namespaces; was its driver replaced or unloaded, or did it fail?"
                );
                return Ok(());
            }
            return Err(Error::Rdma(RdmaError::Lost {
                device: identity.name.clone(),
                waited: timeout,
            }));
        }
        sleep(POLL);
    }
    Ok(())
}

/// The `IPoIB` link that the kernel recreated on a moved device's port: in the first namespace before commit
/// f1208b05574f (Linux 6.17), since then in the device's namespace. In both cases it has the first free name.
///
/// # Errors
/// The kernel refuses to list the links.
pub fn reappeared(kernel: &mut dyn Kernel, port: Guid) -> Result<Option<(Side, Link)>, Error> {
    let is_it = |link: &Link| {
        link.kind.as_deref() == Some("ipoib")
            && link.parent.is_none()
            && link.address.port_guid() == Some(port)
    };
    let deadline = Instant::now() + IPOIB_TIMEOUT;
    loop {
        for side in [Side::Pod, Side::Host] {
            if let Some(link) = links(kernel, side)?.into_iter().find(is_it) {
                return Ok(Some((side, link)));
            }
        }
        if Instant::now() > deadline {
            return Ok(None);
        }
        sleep(POLL);
    }
}

/// Restores the device's name. If another device has the name now, that is only logged, so that the pod can be removed.
fn rename(kernel: &mut dyn Kernel, side: Side, index: u32, identity: &Identity) -> Result<(), Error> {
    match kernel.rename_rdma_device(side, index, &identity.name) {
        Err(e) if e.is(Errno::EEXIST) => {
            tracing::warn!(
                name = identity.name,
                "another RDMA device has this name now; the returned device keeps its present one"
            );
            Ok(())
        }
        answer => answer.step(|| format!("rename an RDMA device back to {}", identity.name)),
    }
}

#[cfg(test)]
mod tests;
