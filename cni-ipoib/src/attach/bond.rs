// SPDX-License-Identifier: Apache-2.0
//! A bond in the pod: its ports are created beside it and then added to it.
//!
//! All of them have the attachment's mark, so whatever removes the attachment removes them all.

use super::AttachContext;
use super::create::{Birth, birth};
use crate::error::Error;
use crate::kernel::{Kernel, Side};
use crate::plan::{Child, Plan};
use common::netlink::{Link, LinkChange};
use common::undo::Undo;
use std::time::Duration;

/// How long a port other than the first may take to get carrier. After that the pod starts without that port.
const SPARE_TIMEOUT: Duration = Duration::from_secs(2);

/// A port of the pod's bond.
pub(super) struct Port<'p> {
    child: &'p Child,
    link: Link,
}

impl Port<'_> {
    /// The port as it was created.
    pub(super) fn link(&self) -> &Link {
        &self.link
    }
}

/// Creates the bond's ports; none if the plan is not a bond.
pub(super) fn ports<'p>(
    undo: &mut Undo<'_, AttachContext<'_>>,
    plan: &'p Plan,
) -> Result<Vec<Port<'p>>, Error> {
    let kernel = &mut *undo.target().kernel;
    let mut ports = Vec::new();
    for (name, child) in plan.port_names().zip(&plan.child.ports) {
        let link = birth(
            kernel,
            &Birth {
                child,
                name: &name,
                mark: &plan.mark,
            },
        )?;
        let alias = LinkChange {
            alias: Some(&plan.mark.alias),
            ..LinkChange::default()
        };
        change(kernel, &link, &alias, || format!("configure {name}"))?;
        ports.push(Port { child, link });
    }
    Ok(ports)
}

/// The MTU that the bond must have before its ports join, since it sets its own MTU on them: 1500 at
/// creation.
pub(super) fn mtu(ports: &[Port<'_>], plan: &Plan) -> Option<u32> {
    plan.child
        .mtu
        .or_else(|| ports.iter().map(|port| port.link.mtu).min())
}

/// Adds the ports to the bond, which brings them up.
pub(super) fn enslave(kernel: &mut dyn Kernel, bond: &Link, ports: &[Port<'_>]) -> Result<(), Error> {
    for Port { link, .. } in ports {
        let join = LinkChange {
            master: Some(bond.index),
            ..LinkChange::default()
        };
        change(kernel, link, &join, || {
            format!("make {} a port of {}", link.name, bond.name)
        })?;
    }
    Ok(())
}

/// Waits for the ports that should have carrier, after the first one has it, and sets the bond's MTU to that
/// of their partition.
///
/// A port without carrier is not an error: the bond exists so that the others can replace it.
pub(super) fn await_carrier(
    kernel: &mut dyn Kernel,
    bond: &Link,
    ports: &[Port<'_>],
    plan: &Plan,
) -> Result<(), Error> {
    let mut smallest: Option<u32> = None;
    for Port { child, link } in ports {
        let step = || format!("wait for the carrier of {}", link.name);
        let refused = |source| Error::Kernel { step: step(), source };
        let timeout = child.carrier_timeout.min(SPARE_TIMEOUT);
        if !kernel.wait_for_carrier(link.index, timeout).map_err(refused)? {
            tracing::warn!(
                port = %link.name, parent = %child.parent,
                "port has no carrier: the bond {} cannot fail over to it now", bond.name
            );
            continue;
        }
        let now = kernel.link_by_index(Side::Pod, link.index).map_err(refused)?;
        smallest = smallest.into_iter().chain(now.map(|now| now.mtu)).min();
    }
    match (plan.child.mtu, smallest) {
        (None, Some(lowered)) if mtu(ports, plan).is_some_and(|given| lowered < given) => {
            let lower = LinkChange {
                mtu: Some(lowered),
                ..LinkChange::default()
            };
            change(kernel, bond, &lower, || {
                format!("set MTU {lowered} on {}", bond.name)
            })
        }
        (Some(want), Some(got)) if got < want => Err(Error::MtuNotApplied {
            ifname: plan.ifname.clone(),
            got,
            want,
        }),
        _ => Ok(()),
    }
}

fn change(
    kernel: &mut dyn Kernel,
    link: &Link,
    change: &LinkChange<'_>,
    step: impl Fn() -> String,
) -> Result<(), Error> {
    kernel
        .change_link(Side::Pod, link.index, change)
        .map_err(|source| Error::Kernel { step: step(), source })
}
