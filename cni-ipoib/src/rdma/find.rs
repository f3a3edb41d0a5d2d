// SPDX-License-Identifier: Apache-2.0
//! Finds the RDMA device of a link. Pure.
//!
//! The rules are tried in order, for the link itself before any link below it. The first rule that finds a
//! device decides.
//!
//! 1. The kernel reports the link on the port (RDMA netlink; Ethernet only, also a bond's device).
//! 2. The last 8 bytes of an `IPoIB` link's address are the port GUID (not the node GUID: rdmamap#15).
//! 3. Link and device are on one PCI function with the same port number, and the kernel reports no other link
//!    on that port.
//! 4. The device's GID table has the name of the link, and the kernel reports no other link on that port. The
//!    table has names of all namespaces, and a pod may give its link any name. So on hardware the link must be
//!    above a link of the device's function.
//!
//! A representor has no device: it shares the function of its uplink, and its driver may give it a port that carries raw
//! packets only.

use super::facts::{Facts, Lower, ObservedDevice};
use common::netlink::LinkLayer;
use common::rdma::{Device, Port, PortLayer};
use glob::Pattern;
use std::fmt;

/// The device and port of a link.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Found<'f> {
    /// The device.
    pub seen: &'f ObservedDevice,
    /// The number of the port, from 1.
    pub port: &'f Port,
    /// The link that matched: the requested one, or one below it.
    pub lower: &'f Lower,
    /// The rule that matched.
    pub matched_by: MatchedBy,
}

/// A rule that matches a link and a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MatchedBy {
    /// The kernel reports the link on the port.
    Netdev,
    /// The link's address contains the port's GUID.
    PortGuid,
    /// Link and device are on one PCI function.
    Function,
    /// The link is in the GID table.
    GidTable,
}

/// Why there is no single device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NotFound {
    /// No RDMA device belongs to the link.
    None,
    /// More than one does.
    Several(Vec<String>),
    /// Devices belong to it, but none with the requested name.
    Unwanted(String, Vec<String>),
}

/// The device of the link in `facts`; `wanted` selects one of several.
///
/// # Errors
/// There is no single device.
pub fn find<'f>(facts: &'f Facts, wanted: Option<&Pattern>) -> Result<Found<'f>, NotFound> {
    let mut passed = Vec::new();
    for group in groups(facts) {
        let (fit, unfit): (Vec<_>, Vec<_>) = group
            .into_iter()
            .partition(|found| wanted.is_none_or(|pattern| pattern.matches(&found.seen.device.name)));
        let mut names: Vec<String> = fit.iter().map(|found| found.seen.device.name.clone()).collect();
        names.dedup();
        match fit.first() {
            Some(found) if names.len() == 1 => return Ok(*found),
            Some(_) => return Err(NotFound::Several(names)),
            None => passed.extend(unfit.iter().map(|found| found.seen.device.name.clone())),
        }
    }
    passed.sort();
    passed.dedup();
    match wanted {
        Some(pattern) if !passed.is_empty() => Err(NotFound::Unwanted(pattern.to_string(), passed)),
        _ => Err(NotFound::None),
    }
}

/// As [`find`] without a choice: of several devices the first by name, whose port state stands for all.
pub fn first(facts: &Facts) -> Option<(&Device, &Port)> {
    let group = groups(facts).next()?;
    let found = group
        .into_iter()
        .min_by(|a, b| a.seen.device.name.cmp(&b.seen.device.name))?;
    Some((&found.seen.device, found.port))
}

/// The devices that each rule finds for each link, in order; no group is empty.
fn groups(facts: &Facts) -> impl Iterator<Item = Vec<Found<'_>>> {
    let rules = [
        MatchedBy::Netdev,
        MatchedBy::PortGuid,
        MatchedBy::Function,
        MatchedBy::GidTable,
    ];
    let steps = facts
        .lowers
        .iter()
        .flat_map(move |lower| rules.map(|matched_by| (lower, matched_by)));
    steps
        .map(|(lower, matched_by)| {
            let on = |seen| {
                port(matched_by, facts, lower, seen).map(|port| Found {
                    seen,
                    port,
                    lower,
                    matched_by,
                })
            };
            facts
                .devices
                .iter()
                .filter(|seen| !seen.smi)
                .filter_map(on)
                .collect::<Vec<_>>()
        })
        .filter(|group| !group.is_empty())
}

/// The port of `seen` that `lower` is on, by this rule.
fn port<'f>(
    matched_by: MatchedBy,
    facts: &Facts,
    lower: &Lower,
    seen: &'f ObservedDevice,
) -> Option<&'f Port> {
    let layer = match lower.link.layer {
        LinkLayer::Infiniband => PortLayer::Infiniband,
        LinkLayer::Ethernet if lower.link.is_representor() => return None,
        LinkLayer::Ethernet => PortLayer::Ethernet,
        LinkLayer::Loopback | LinkLayer::Other(_) => return None,
    };
    let mut ports = seen.device.ports.iter().filter(|port| port.layer == layer);
    match matched_by {
        MatchedBy::Netdev => ports.find(|port| seen.netdevs.contains(&(port.number, lower.link.index))),
        MatchedBy::PortGuid if layer == PortLayer::Infiniband => {
            let guid = lower.link.address.port_guid()?;
            let elsewhere = lower
                .behind
                .as_ref()
                .is_some_and(|b| seen.device.path.as_ref() != Some(&b.path));
            ports.find(|port| !elsewhere && port.guid() == Some(guid))
        }
        MatchedBy::PortGuid => None,
        MatchedBy::Function => on_function(lower, seen, ports),
        MatchedBy::GidTable => ports.find(|port| {
            let named = seen.gid_links.contains(&(port.number, lower.link.name.clone()));
            named && may_be_in_table(facts, lower, seen) && !has_another(seen, port, lower)
        }),
    }
}

fn on_function<'f>(
    lower: &Lower,
    seen: &'f ObservedDevice,
    ports: impl Iterator<Item = &'f Port>,
) -> Option<&'f Port> {
    let behind = lower.behind.as_ref()?;
    if seen.device.path.as_ref() != Some(&behind.path) {
        return None;
    }
    let free: Vec<&Port> = ports.filter(|port| !has_another(seen, port, lower)).collect();
    let numbered = free.iter().find(|port| Some(port.number) == behind.port);
    numbered.or(free.first()).copied()
}

/// Whether the kernel reports another link than `lower` on the port.
fn has_another(seen: &ObservedDevice, port: &Port, lower: &Lower) -> bool {
    seen.netdevs
        .iter()
        .any(|(number, index)| *number == port.number && *index != lower.link.index)
}

/// Whether a name in the GID table of `seen` may mean `lower`: the device is software, or `lower` is a virtual
/// link above a link of the device's function.
fn may_be_in_table(facts: &Facts, lower: &Lower, seen: &ObservedDevice) -> bool {
    let Some(path) = &seen.device.path else {
        return true;
    };
    let mut behind = facts.lowers.iter().filter_map(|lower| lower.behind.as_ref());
    lower.behind.is_none() && behind.any(|behind| behind.path == *path)
}

impl fmt::Display for MatchedBy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Netdev => "the kernel names it",
            Self::PortGuid => "its port has the GUID of the link's address",
            Self::Function => "it is on the link's function",
            Self::GidTable => "the link is in its GID table",
        })
    }
}

impl fmt::Display for NotFound {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::None => f.write_str("the node has no RDMA device for it"),
            Self::Several(names) => write!(
                f,
                "several devices belong to it ({}); name one in rdma.device",
                names.join(", ")
            ),
            Self::Unwanted(wanted, names) => {
                write!(
                    f,
                    "rdma.device is {wanted:?}, and the devices of the link are {}",
                    names.join(", ")
                )
            }
        }
    }
}

#[cfg(test)]
mod tests;
