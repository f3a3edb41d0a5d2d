// SPDX-License-Identifier: Apache-2.0
//! An `InfiniBand` virtual function, its GUIDs and its link state. Its physical function sets them. The driver of the
//! function uses the GUIDs once it is rebound.
//!
//! Invariant: the previous GUIDs and the previous link state are in the attachment's journal entry before the first
//! request. Each step of the undo can be repeated. A function that a kill left without its driver is bound first.

use super::guids::{names, node_guid};
use super::restore::{find, restore_state};
use super::{NewGuid, Plan};
use crate::error::{DeviceError, Error, Step};
use crate::intent::{Function, Snapshot};
use crate::kernel::{Kernel, Side};
use common::netlink::{FunctionState, Link, LinkLayer};
use common::rdma::Guid;
use nix::errno::Errno;
use std::path::Path;
use std::thread::sleep;
use std::time::{Duration, Instant};

/// How long a driver may take to create its `IPoIB` link after binding; mlx5 starts the function's firmware
/// first.
const BIND_TIMEOUT: Duration = if cfg!(test) {
    Duration::from_millis(60)
} else {
    Duration::from_secs(10)
};

const POLL: Duration = Duration::from_millis(20);

/// The undo step of a virtual function that got other GUIDs.
pub(crate) const GUIDS_BACK: &str = "give the virtual function its GUIDs back";

/// The virtual function at `path` below `link`; `None` for a physical function, or a link that is not
/// `InfiniBand`.
pub fn function_at(path: &Path, link: &Link) -> Option<Function> {
    let port_guid = link.address.port_guid()?;
    let physical = path.join("physfn").canonicalize().ok()?;
    let number = names(&physical).iter().find_map(|name| {
        let number = name.strip_prefix("virtfn")?.parse().ok()?;
        let its = physical.join(name).canonicalize().ok()?;
        (its == path).then_some(number)
    })?;
    Some(Function {
        number,
        driver: path.join("driver").canonicalize().ok()?,
        node_guid: node_guid(path).unwrap_or(port_guid),
        port_guid,
        link_state: None,
        path: path.to_owned(),
        physical,
    })
}

/// The link of the physical function of `function`, through which its GUIDs are set.
///
/// # Errors
/// [`DeviceError::NoPhysical`], or the kernel refuses a request.
pub fn physical_link(kernel: &mut dyn Kernel, function: &Function) -> Result<Link, Error> {
    for name in names(&function.physical.join("net")) {
        let link = kernel
            .link(Side::Host, &name)
            .step(|| format!("look up {name} on the host"))?;
        // sysfs lists its children too.
        let own = |link: &Link| link.parent.is_none() && link.layer == LinkLayer::Infiniband;
        if let Some(link) = link.filter(own) {
            return Ok(link);
        }
    }
    Err(DeviceError::NoPhysical {
        function: function.pci(),
        number: function.number,
        physical: file_name(&function.physical),
    }
    .into())
}

/// The same function with its present link state.
///
/// # Errors
/// As [`physical_link`].
pub fn with_link_state(kernel: &mut dyn Kernel, function: &Function) -> Result<Function, Error> {
    let physical = physical_link(kernel, function)?;
    let step = format!(
        "read the link state of virtual function {} of {}",
        function.number, physical.name
    );
    let link_state = kernel
        .function_state(physical.index, function.number)
        .step(|| step)?;
    Ok(Function {
        link_state,
        ..function.clone()
    })
}

/// Sets the GUID of the function of `plan`, lets its port come up, and rebinds its driver. Returns the link that the
/// driver created.
///
/// # Errors
/// The kernel or the driver refuses. [`undo`] undoes it.
pub fn give(kernel: &mut dyn Kernel, plan: &Plan, new: &NewGuid) -> Result<Link, Error> {
    let NewGuid { function, guid } = new;
    let guid = *guid;
    set(kernel, function, guid, guid)?;
    // mlx5 keeps the port of a function down until its link state is set.
    if !matches!(
        function.link_state,
        Some(FunctionState::Auto | FunctionState::Enable)
    ) {
        set_state(kernel, function, FunctionState::Auto)?;
    }
    let link = rebind(kernel, &plan.snapshot, function)?;
    match link.address.port_guid() {
        Some(has) if has == guid => Ok(link),
        has => Err(DeviceError::GuidNotTaken {
            function: function.pci(),
            asked: guid,
            has: has.unwrap_or_default(),
        }
        .into()),
    }
}

/// Restores the GUIDs of the function of `plan` and the state of its link.
///
/// # Errors
/// The kernel refuses, or the link does not return.
pub fn undo(kernel: &mut dyn Kernel, plan: &Plan) -> Result<(), Error> {
    let was = &plan.snapshot;
    require_bound(kernel, was)?;
    let link = find(kernel, Side::Host, &was.hardware)?.ok_or_else(|| lost(was))?;
    let link = restore(kernel, &link, was)?;
    restore_state(kernel, &link, was, &plan.others)
}

/// Binds a function that was left without its driver, and waits for its link. Does nothing for other devices.
///
/// # Errors
/// The driver refuses, or its link does not appear.
pub fn require_bound(kernel: &mut dyn Kernel, was: &Snapshot) -> Result<(), Error> {
    let Some(function) = was
        .function
        .as_ref()
        .filter(|function| was.is_of_this_boot() && function.path.exists())
    else {
        return Ok(());
    };
    if bind(kernel, function)? {
        appear(kernel, was)?;
    }
    Ok(())
}

/// Restores the GUIDs and the link state of the function below `link`, and rebinds its driver if it uses other GUIDs.
/// A function without GUIDs gets [`Guid::NONE`]: another function may get the pod's GUID next. Returns the present
/// link.
///
/// # Errors
/// The kernel or the driver refuses. If the physical function is gone or cannot set GUIDs, or if the link state cannot be
/// set, that is only logged: an error would keep a pod from being removed forever.
pub fn restore(kernel: &mut dyn Kernel, link: &Link, was: &Snapshot) -> Result<Link, Error> {
    let Some(function) = &was.function else {
        return Ok(link.clone());
    };
    let or_none = |guid: Guid| if guid.is_usable() { guid } else { Guid::NONE };
    let (node, port) = (or_none(function.node_guid), or_none(function.port_guid));
    if let Err(error) = set(kernel, function, node, port) {
        if function.port_guid.is_usable() && !is_permanent(&error) {
            return Err(error);
        }
        tracing::warn!(function = function.pci(), %error, "cannot restore the GUIDs of the virtual function; it keeps the pod's");
        return Ok(link.clone());
    }
    if function.link_state == Some(FunctionState::Disable)
        && let Err(error) = set_state(kernel, function, FunctionState::Disable)
    {
        tracing::warn!(function = function.pci(), %error, "cannot restore the link state of the virtual function; its port stays up");
    }
    let uses = |is: Option<Guid>, set: Guid| is.is_some_and(|is| or_none(is) == set);
    if !uses(link.address.port_guid(), port) || !uses(node_guid(&function.path), node) {
        return rebind(kernel, was, function);
    }
    Ok(link.clone())
}

fn set(kernel: &mut dyn Kernel, function: &Function, node: Guid, port: Guid) -> Result<(), Error> {
    let physical = physical_link(kernel, function)?;
    let step = format!(
        "give virtual function {} of {} the GUID {port}",
        function.number, physical.name
    );
    kernel
        .set_function_guids(physical.index, function.number, node, port)
        .step(|| step)
}

/// Sets the link state of the function. A driver that has no link states is not an error: the port then follows the
/// cable.
fn set_state(kernel: &mut dyn Kernel, function: &Function, state: FunctionState) -> Result<(), Error> {
    let physical = physical_link(kernel, function)?;
    match kernel.set_function_state(physical.index, function.number, state) {
        Err(error) if error.is(Errno::EOPNOTSUPP) => {
            tracing::debug!(
                function = function.pci(),
                "its physical function has no link states"
            );
            Ok(())
        }
        answer => answer.step(|| {
            format!(
                "set the link state of virtual function {} of {}",
                function.number, physical.name
            )
        }),
    }
}

/// Whether a retry is useless.
fn is_permanent(error: &Error) -> bool {
    match error {
        Error::Device(DeviceError::NoPhysical { .. }) => true,
        Error::Kernel { source, .. } => source.is(Errno::EOPNOTSUPP) || source.is(Errno::EINVAL),
        _ => false,
    }
}

fn rebind(kernel: &mut dyn Kernel, was: &Snapshot, function: &Function) -> Result<Link, Error> {
    kernel.unbind_function(function).map_err(|source| Error::Io {
        what: "unbind a virtual function by",
        path: function.driver.join("unbind"),
        remedy: "is sysfs writable for the plugin?",
        source,
    })?;
    bind(kernel, function)?;
    appear(kernel, was)
}

fn bind(kernel: &mut dyn Kernel, function: &Function) -> Result<bool, Error> {
    kernel.bind_function(function).map_err(|source| Error::Io {
        what: "bind a virtual function by",
        path: function.driver.join("bind"),
        remedy: "is sysfs writable for the plugin? Look for its driver in the kernel's log",
        source,
    })
}

fn appear(kernel: &mut dyn Kernel, was: &Snapshot) -> Result<Link, Error> {
    let deadline = Instant::now() + BIND_TIMEOUT;
    loop {
        if let Some(link) = find(kernel, Side::Host, &was.hardware)? {
            return Ok(link);
        }
        if Instant::now() > deadline {
            return Err(lost(was));
        }
        sleep(POLL);
    }
}

fn lost(was: &Snapshot) -> Error {
    DeviceError::Lost {
        link: was.name.clone(),
        reason: format!(
            "the driver of its virtual function was bound again, and made no IPoIB link within {BIND_TIMEOUT:?}"
        ),
    }
    .into()
}

fn file_name(path: &Path) -> String {
    let name = path.file_name().unwrap_or_default();
    name.to_string_lossy().into_owned()
}

#[cfg(test)]
pub(crate) mod tests;
