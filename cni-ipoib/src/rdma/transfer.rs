// SPDX-License-Identifier: Apache-2.0
//! Moves an RDMA device into the pod and brings it back, wherever it is by then.
//!
//! The kernel brings a device back by itself when its namespace dies, under the name it had there, but not at once; and a pod
//! may have renamed it. So it is looked for by its [`Identity`], in the pod first.

use super::facts::devices;
use super::{Grant, Identity, RdmaError, Way};
use crate::error::Error;
use crate::kernel::{Kernel, Side, links};
use common::netlink::Link;
use common::rdma::{Guid, PciAddress, Sysfs};
use nix::errno::Errno;
use std::thread::sleep;
use std::time::{Duration, Instant};

/// How long the kernel may take to clear up a dead namespace (`cleanup_net` works through all of them, one after another).
const RETURN_TIMEOUT: Duration = Duration::from_secs(5);

/// How long it may take to make a device's `IPoIB` links anew after a move; it is done before the move ends, on every kernel seen.
const IPOIB_TIMEOUT: Duration = Duration::from_secs(2);

const POLL: Duration = Duration::from_millis(20);

/// Moves the granted device from the host into the pod and gives it its name there; nothing in shared mode.
///
/// Half of it may be done when it fails: [`bring_back`] takes either back.
///
/// # Errors
/// [`RdmaError::Kept`]: the driver cannot let go of the device. [`Error::Kernel`]: the kernel refused.
pub fn hand_over(kernel: &mut dyn Kernel, grant: &Grant) -> Result<(), Error> {
    let Way::Exclusive { rename } = &grant.netns else {
        return Ok(());
    };
    let Identity { name, index, .. } = &grant.device;
    kernel.move_rdma_device(*index, Side::Host).map_err(|source| {
        if source.is(Errno::EOPNOTSUPP) {
            return Error::Rdma(RdmaError::Kept {
                device: name.clone(),
                reason: "its driver cannot take it from its users, so that the kernel does not move it"
                    .to_owned(),
                remedy: "leave rdma out, or name a master with another device",
            });
        }
        let step = format!("move RDMA device {name} into the pod");
        Error::Kernel { step, source }
    })?;
    match rename {
        Some(new) => kernel.rename_rdma_device(Side::Pod, *index, new).map_err(|source| Error::Kernel {
            step: format!("rename RDMA device {name} to {new} in the pod (names are unique on a node, whatever the namespace)"),
            source,
        }),
        None => Ok(()),
    }
}

/// Moves the device from the pod back to the host under the name it had there; false if it is not in the pod.
///
/// # Errors
/// The kernel refused.
pub fn bring_back(kernel: &mut dyn Kernel, identity: &Identity) -> Result<bool, Error> {
    // In shared mode the pod sees what is the host's; there is nothing to bring back then, nor when it never left.
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
    // Before the move, so that the host sees no other name.
    if device.name != identity.name {
        rename(kernel, Side::Pod, device.index, identity)?;
    }
    kernel
        .move_rdma_device(device.index, Side::Pod)
        .map_err(|source| Error::Kernel {
            step: format!("move RDMA device {} back to the host", identity.name),
            source,
        })?;
    Ok(true)
}

/// Gives a device that the kernel put back on the host the name it had there; false if it is not on the host.
///
/// # Errors
/// The kernel refused to list or rename.
pub fn put_right(kernel: &mut dyn Kernel, sysfs: &Sysfs, identity: &Identity) -> Result<bool, Error> {
    let all = super::facts::all(sysfs)?;
    let pci = |name: &str| -> Option<PciAddress> { all.iter().find(|device| device.name == name)?.pci };
    let on_host = devices(kernel, Side::Host)?;
    let Some(device) = identity.among(&on_host, pci) else {
        return Ok(false);
    };
    if device.name != identity.name {
        tracing::info!(
            is = device.name,
            was = identity.name,
            "an RDMA device came back under the name it had in the pod"
        );
        rename(kernel, Side::Host, device.index, identity)?;
    }
    Ok(true)
}

/// Waits until the device is on the host, and gives it its name; for a pod whose namespace is gone.
///
/// # Errors
/// [`RdmaError::Lost`]: it is still somewhere else, though its function is there: the namespace has not been cleared up yet, or
/// the pod moved it on. A device whose function is gone as well was unplugged, which is no error.
pub fn await_return(kernel: &mut dyn Kernel, sysfs: &Sysfs, identity: &Identity) -> Result<(), Error> {
    await_return_within(kernel, sysfs, identity, RETURN_TIMEOUT)
}

fn await_return_within(
    kernel: &mut dyn Kernel,
    sysfs: &Sysfs,
    identity: &Identity,
    patience: Duration,
) -> Result<(), Error> {
    let deadline = Instant::now() + patience;
    while !put_right(kernel, sysfs, identity)? {
        if identity.path.as_ref().is_none_or(|path| !path.exists()) {
            tracing::warn!(
                device = identity.name,
                "the RDMA device is gone; was it unplugged, or its driver unloaded?"
            );
            return Ok(());
        }
        if Instant::now() > deadline {
            return Err(Error::Rdma(RdmaError::Lost {
                device: identity.name.clone(),
                waited: patience,
            }));
        }
        sleep(POLL);
    }
    Ok(())
}

/// The `IPoIB` link that the kernel made anew on a moved device's port: in the first namespace before commit
/// f1208b05574f (Linux 6.17), since then in the device's, in either under the first free name.
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

/// A name that somebody else has by now is no reason to keep a pod from being removed.
fn rename(kernel: &mut dyn Kernel, side: Side, index: u32, identity: &Identity) -> Result<(), Error> {
    match kernel.rename_rdma_device(side, index, &identity.name) {
        Err(e) if e.is(Errno::EEXIST) => {
            tracing::warn!(
                name = identity.name,
                "another RDMA device has this name now; the one that came back keeps its own"
            );
            Ok(())
        }
        answer => answer.map_err(|source| Error::Kernel {
            step: format!("rename an RDMA device back to {}", identity.name),
            source,
        }),
    }
}

#[cfg(test)]
mod tests;
