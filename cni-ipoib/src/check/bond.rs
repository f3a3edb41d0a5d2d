// SPDX-License-Identifier: Apache-2.0
//! CHECK of interfaces on a bond: the pod's own bond and its ports, and a child whose bond was recreated.

use super::Planned;
use crate::config::{BondUse, Config};
use crate::error::Error;
use crate::host::Host;
use crate::kernel::{Kernel, Side, link_by_index, links};
use crate::mark::Mark;
use crate::plan::Child;
use common::netlink::{HwAddress, Link, LinkInfo};

/// With `bond: active` the pod's child stays on the port that was active during ADD. CHECK must compare with
/// that port.
pub(super) fn follow(config: &Config, host: &mut Host, link: Option<&Link>) {
    let (Some(bond), Some(link), BondUse::Active) = (&mut host.bond, link, config.bond) else {
        return;
    };
    let parent = link.parent.unwrap_or(link.index);
    if let Some(port) = bond.ports.iter().find(|port| port.root.index == parent) {
        bond.active = Some(port.link.index);
    }
}

/// The first port of `link`, if `link` is a pod's bond.
pub(super) fn first_port(kernel: &mut dyn Kernel, link: &Link) -> Result<Option<Link>, Error> {
    if !matches!(link.info, LinkInfo::Bond { .. }) {
        return Ok(None);
    }
    let mut all = links(kernel, Side::Pod)?.into_iter();
    Ok(all.find(|port| port.master == Some(link.index)))
}

/// The bond of the node that has the parent of `port` as a port.
pub(super) fn bond_below(kernel: &mut dyn Kernel, port: &Link) -> Result<Option<Link>, Error> {
    let parent = link_by_index(kernel, Side::Host, port.parent.unwrap_or(port.index))?;
    match parent.and_then(|parent| parent.master) {
        Some(bond) => link_by_index(kernel, Side::Host, bond),
        None => Ok(None),
    }
}

/// The finding for an interface that is gone, with its probable cause.
pub(super) fn gone(planned: Option<&Planned>) -> String {
    match planned.map(|planned| &planned.host) {
        Some(host) if host.bond.is_some() => format!(
            "it is gone (was {} recreated? the kernel deletes the children of a deleted bond); create the pod again",
            host.master.name
        ),
        _ => "it is gone".to_owned(),
    }
}

/// Compares an interface on a bond with the plan. Returns the addresses of the pod's ports. The interface has
/// the address of one of them, and another one's after a failover.
pub(super) fn compare(
    kernel: &mut dyn Kernel,
    link: &Link,
    planned: &Planned,
    mark: &Mark,
    findings: &mut Vec<String>,
) -> Result<Vec<HwAddress>, Error> {
    compare_carrier(link, &planned.host, findings);
    compare_ports(kernel, link, &planned.child, mark, findings)
}

/// Compares the ports of the pod's bond with the plan. Returns their addresses.
fn compare_ports(
    kernel: &mut dyn Kernel,
    bond: &Link,
    child: &Child,
    mark: &Mark,
    findings: &mut Vec<String>,
) -> Result<Vec<HwAddress>, Error> {
    if child.ports.is_empty() {
        return Ok(Vec::new());
    }
    let mut ours = links(kernel, Side::Pod)?;
    ours.retain(|link| link.index != bond.index && mark.is_on(link));
    for port in &child.ports {
        let sits_there = |link: &&Link| link.parent.unwrap_or(link.index) == port.parent_index;
        match ours.iter().find(sits_there) {
            None => findings.push(format!("its port on {} is gone", port.parent)),
            Some(link) => compare_port(bond, link, port, findings),
        }
    }
    Ok(ours.into_iter().map(|link| link.address).collect())
}

fn compare_port(bond: &Link, link: &Link, port: &Child, findings: &mut Vec<String>) {
    let about = format!("its port {} (on {})", link.name, port.parent);
    if link.master != Some(bond.index) {
        findings.push(format!("{about} is not in it any more"));
    } else if !link.carrier && !port.carrier_timeout.is_zero() {
        findings.push(format!(
            "{about} has no carrier though {} carries traffic, so the bond cannot fail over",
            port.parent
        ));
    }
    super::compare_kind(link, port, &format!("{about}: "), findings);
}

/// A bond that was taken down and up, or lost its ports for a while, may leave a child without carrier.
fn compare_carrier(link: &Link, host: &Host, findings: &mut Vec<String>) {
    if host.bond.is_none() || matches!(link.info, LinkInfo::Bond { .. }) {
        return;
    }
    if link.up && !link.carrier && host.root.carrier {
        findings.push(format!(
            "it has no carrier though {} has: was that bond restarted? set {} down and up again, or create the pod again",
            host.master.name, link.name
        ));
    }
}
