// SPDX-License-Identifier: Apache-2.0
//! Moves a link of the host into the pod under the pod's name, in the order that its layer requires.
//!
//! Invariant: the undo step is registered before the first request. On Ethernet the link moves before its
//! RDMA device. On InfiniBand the RDMA device moves first: its move destroys the link and recreates it, in
//! the pod or on the host, depending on the kernel.

use super::Plan;
use crate::error::{DeviceError, Error, Step};
use crate::intent::Snapshot;
use crate::kernel::{Kernel, Side};
use crate::rdma::transfer::{hand_over, reappeared};
use common::netlink::{Link, LinkChange, LinkLayer};
use std::path::Path;

/// Moves the link into the pod, where it is down and has its name. `state` is the state directory.
///
/// # Errors
/// The kernel refuses. [`restore`](super::restore) undoes what was done.
pub fn move_in(kernel: &mut dyn Kernel, state: &Path, plan: &Plan) -> Result<Link, Error> {
    let moved = &plan.moved;
    let exclusive = plan
        .interface
        .rdma
        .as_ref()
        .filter(|grant| grant.moved().is_some());
    let (side, link) = match exclusive {
        Some(grant) if moved.link.layer == LinkLayer::Infiniband => {
            hand_over(kernel, state, grant)?;
            remade(kernel, plan)?
        }
        _ => (Side::Host, moved.link.clone()),
    };
    enter(kernel, plan, side, &link)?;
    if let Some(grant) = exclusive.filter(|_| moved.link.layer != LinkLayer::Infiniband) {
        hand_over(kernel, state, grant)?;
    }
    let link = in_pod(kernel, plan)?;
    restore_transport_in_pod(kernel, &link, &plan.snapshot)?;
    configure(kernel, &link, plan)?;
    in_pod(kernel, plan)
}

/// The link that the kernel recreated when the RDMA device moved.
fn remade(kernel: &mut dyn Kernel, plan: &Plan) -> Result<(Side, Link), Error> {
    let guid = plan.snapshot.hardware.port_guid.unwrap_or_default();
    reappeared(kernel, guid)?.ok_or_else(|| {
        let reason =
            "its RDMA device moved, and the kernel made no IPoIB link anew, neither in the pod nor on the host";
        lost(plan, reason.to_owned())
    })
}

fn lost(plan: &Plan, reason: String) -> Error {
    let link = plan.snapshot.name.clone();
    DeviceError::Lost { link, reason }.into()
}

/// Moves the link into the pod and renames it in one request; if it is in the pod already, only renames it.
fn enter(kernel: &mut dyn Kernel, plan: &Plan, side: Side, link: &Link) -> Result<(), Error> {
    let name = plan.interface.ifname.as_str();
    let change = LinkChange {
        name: Some(name),
        alias: Some(&plan.interface.mark.alias),
        group: (link.group != 0).then_some(0),
        ..LinkChange::default()
    };
    if side == Side::Pod {
        return kernel
            .change_link(Side::Pod, link.index, &change)
            .step(|| format!("rename {} to {name} in the pod", link.name));
    }
    // An altname may equal the pod's name. Before Linux 6.6 altnames stay on the host and block the name
    // there.
    for altname in &link.altnames {
        kernel
            .delete_altname(Side::Host, link.index, altname)
            .step(|| format!("remove the altname {altname} of {}", link.name))?;
    }
    kernel
        .move_link(Side::Host, link.index, &change)
        .step(|| format!("move {} into the pod as {name}", link.name))
}

fn in_pod(kernel: &mut dyn Kernel, plan: &Plan) -> Result<Link, Error> {
    let name = plan.interface.ifname.as_str();
    let link = kernel
        .link(Side::Pod, name)
        .step(|| format!("look up {name} in the pod after moving it"))?;
    link.filter(|link| plan.snapshot.hardware.is(link))
        .ok_or_else(|| lost(plan, format!("it was moved, and is not in the pod as {name}")))
}

/// Restores the `IPoIB` mode of a link that was recreated.
fn restore_transport_in_pod(kernel: &mut dyn Kernel, link: &Link, was: &Snapshot) -> Result<(), Error> {
    match (was.ipoib(), Snapshot::transport_of(link)) {
        (Some(mode), Some(is)) if mode != is => kernel
            .change_ipoib(Side::Pod, link.index, mode.0, mode.1)
            .step(|| format!("set the IPoIB mode of {} to {}", link.name, mode.0)),
        _ => Ok(()),
    }
}

fn configure(kernel: &mut dyn Kernel, link: &Link, plan: &Plan) -> Result<(), Error> {
    let host = plan.snapshot.mtu;
    let moved = plan
        .interface
        .rdma
        .as_ref()
        .is_some_and(|grant| grant.moved().is_some());
    let remade = moved || plan.snapshot.function.is_some();
    let mtu = plan.moved.mtu.or((remade && link.mtu != host).then_some(host));
    let change = LinkChange {
        mtu,
        address: plan.moved.address.as_ref(),
        ..LinkChange::default()
    };
    if change.mtu.is_none() && change.address.is_none() {
        return Ok(());
    }
    let what = match (mtu, &plan.moved.address) {
        (Some(mtu), None) => format!("MTU {mtu}"),
        (None, Some(address)) => format!("address {address}"),
        _ => "MTU and address".to_owned(),
    };
    kernel
        .change_link(Side::Pod, link.index, &change)
        .step(|| format!("set {what} on {}", link.name))
}

#[cfg(test)]
mod tests;
