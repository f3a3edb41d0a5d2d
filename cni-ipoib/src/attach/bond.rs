// SPDX-License-Identifier: Apache-2.0
//! A bond in the pod: its ports are created beside it and then added to it.
//!
//! All of them have the attachment's mark, so whatever removes the attachment removes them all.

use super::create::{Creation, create_link};
use super::{AttachContext, PodLinks};
use crate::error::{Error, Step};
use crate::intent::Made;
use crate::kernel::{Kernel, Side};
use crate::plan::Plan;
use common::netlink::{Link, LinkChange};
use std::time::Duration;

/// How long a port other than the first may take to get carrier. After that the pod starts without that port.
const SPARE_TIMEOUT: Duration = Duration::from_secs(2);

/// Creates the bond's ports; none if the plan is not a bond. The attachment's mark is on each, and `context` has the
/// properties of each that the pod cannot change.
pub(super) fn ports(context: &mut AttachContext<'_>, plan: &Plan) -> Result<Vec<Link>, Error> {
    let mark = &plan.interface.mark;
    let mut ports = Vec::new();
    for (name, child) in plan.port_names().zip(&plan.child.ports) {
        let new = Creation {
            child,
            name: &name,
            mark,
        };
        let link = create_link(context.kernel, &new)?;
        context.made.push(Made::of(&link));
        let alias = LinkChange {
            alias: Some(&mark.alias),
            ..LinkChange::default()
        };
        context
            .kernel
            .change_link(Side::Pod, link.index, &alias)
            .step(|| format!("configure {name}"))?;
        ports.push(link);
    }
    Ok(ports)
}

/// The MTU that the bond must have before its ports join, since it sets its own MTU on them: 1500 at
/// creation.
pub(super) fn mtu(ports: &[Link], plan: &Plan) -> Option<u32> {
    plan.child.mtu.or_else(|| ports.iter().map(|port| port.mtu).min())
}

/// Adds the ports to the bond, which brings them up.
pub(super) fn enslave(kernel: &mut dyn Kernel, links: &PodLinks) -> Result<(), Error> {
    let bond = &links.link;
    for port in &links.ports {
        let join = LinkChange {
            master: Some(bond.index),
            ..LinkChange::default()
        };
        kernel
            .change_link(Side::Pod, port.index, &join)
            .step(|| format!("make {} a port of {}", port.name, bond.name))?;
    }
    Ok(())
}

/// Waits for the ports that should have carrier, after the first one has it, and sets the bond's MTU to that
/// of their partition.
///
/// A port without carrier is not an error: the bond exists so that the others can replace it.
pub(super) fn await_carrier(kernel: &mut dyn Kernel, links: &PodLinks, plan: &Plan) -> Result<(), Error> {
    let bond = &links.link;
    let mut smallest: Option<u32> = None;
    for (child, link) in plan.child.ports.iter().zip(&links.ports) {
        let step = || format!("wait for the carrier of {}", link.name);
        let timeout = child.carrier_timeout.min(SPARE_TIMEOUT);
        if !kernel.wait_for_carrier(link.index, timeout).step(step)? {
            tracing::warn!(
                port = %link.name, parent = %child.parent, bond = %bond.name,
                "port has no carrier: the bond cannot fail over to it now"
            );
            continue;
        }
        let now = kernel.link_by_index(Side::Pod, link.index).step(step)?;
        smallest = smallest.into_iter().chain(now.map(|now| now.mtu)).min();
    }
    match (plan.child.mtu, smallest) {
        (None, Some(lowered)) if mtu(&links.ports, plan).is_some_and(|given| lowered < given) => {
            let lower = LinkChange {
                mtu: Some(lowered),
                ..LinkChange::default()
            };
            kernel
                .change_link(Side::Pod, bond.index, &lower)
                .step(|| format!("set MTU {lowered} on {}", bond.name))
        }
        (Some(want), Some(got)) if got < want => Err(Error::MtuNotApplied {
            ifname: plan.interface.ifname.clone(),
            got,
            want,
        }),
        _ => Ok(()),
    }
}
