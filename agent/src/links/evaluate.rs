// SPDX-License-Identifier: Apache-2.0
//! Computes status and message of the condition from the state of the links. Pure.

use super::ports::{LinkPorts, Port, is_bond, is_hardware_or_bond};
use crate::config::LinkScope;
use api::links::reason;
use common::netlink::{Link, LinkInfo, LinkLayer};
use common::rdma::{PortLayer, PortState};
use std::collections::BTreeSet;

/// The result for all links that count.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct LinkStatus {
    /// Whether every link that counts has carrier.
    pub(super) healthy: bool,
    pub(super) reason: &'static str,
    pub(super) message: String,
}

/// The links of a node under a scope.
pub(super) struct Evaluator<'a> {
    pub(super) ports: &'a LinkPorts,
    pub(super) scope: &'a LinkScope,
    /// The names of links that have had carrier on this node.
    pub(super) seen: &'a BTreeSet<String>,
}

impl<'a> Evaluator<'a> {
    /// The names of links in the scope that are up and have carrier.
    pub(super) fn carrying(&self) -> Vec<String> {
        let links = self.ports.links.iter();
        links
            .filter(|link| self.is_meant(link) && link.up && link.carrier)
            .map(|link| link.name.clone())
            .collect()
    }

    /// The names of links whose lack of carrier the condition reports: links that count, and the ports of bonds that count.
    pub(super) fn expected(&self) -> BTreeSet<String> {
        let counting: Vec<&Link> = self.counting().collect();
        let ports = counting.iter().flat_map(|bond| self.ports_of(bond));
        let ports = ports.filter(|port| self.is_expected(port));
        let all = counting.iter().copied().chain(ports);
        all.map(|link| link.name.clone()).collect()
    }

    /// None if no link counts.
    pub(super) fn status(&self) -> Option<LinkStatus> {
        let counting: Vec<&Link> = self.counting().collect();
        let down = counting.iter().filter(|link| !link.carrier);
        let down: Vec<String> = down.map(|link| self.describe_down(link)).collect();
        let degraded = counting
            .iter()
            .filter(|link| link.carrier)
            .filter_map(|bond| self.describe_degraded(bond));
        let degraded: Vec<String> = degraded.collect();
        let (healthy, reason, message) = match (down.as_slice(), degraded.as_slice()) {
            _ if counting.is_empty() => return None,
            ([], []) => {
                let names: Vec<String> = counting.iter().map(|link| self.describe_up(link)).collect();
                (true, reason::LINKS_UP, format!("carrier on {}", names.join(", ")))
            }
            ([], degraded) => (true, reason::BOND_DEGRADED, degraded.join("; ")),
            (down, degraded) => {
                let all = [down, degraded].concat();
                (false, reason::LINK_DOWN, all.join("; "))
            }
        };
        Some(LinkStatus {
            healthy,
            reason,
            message,
        })
    }

    /// Whether the link is in the scope, in whatever state it is.
    fn is_meant(&self, link: &Link) -> bool {
        match self.scope {
            LinkScope::Nothing => false,
            LinkScope::Named(_) => self.scope.names(link),
            LinkScope::Rdma => {
                is_hardware_or_bond(link)
                    && (self.carries_rdma(link)
                        || is_bond(link) && self.ports_of(link).any(|port| self.carries_rdma(port)))
            }
        }
    }

    fn carries_rdma(&self, link: &Link) -> bool {
        link.layer == LinkLayer::Infiniband || self.ports.ports.contains_key(&link.index)
    }

    /// Whether this link is expected to have carrier. A port that never had carrier has no cable, and is not reported.
    fn is_expected(&self, link: &Link) -> bool {
        match self.scope {
            LinkScope::Rdma => link.up && (link.carrier || self.seen.contains(&link.name)),
            _ => true,
        }
    }

    fn counts(&self, link: &Link) -> bool {
        self.is_meant(link) && self.is_expected(link)
    }

    /// The links that count. A bond stands for its ports.
    fn counting(&self) -> impl Iterator<Item = &'a Link> {
        let links = self.ports.links.iter();
        links.filter(|link| self.counts(link) && self.bond_over(link).is_none())
    }

    fn ports_of(&self, bond: &Link) -> impl Iterator<Item = &'a Link> + use<'a> {
        let index = bond.index;
        let links = self.ports.links.iter();
        links.filter(move |link| link.master == Some(index))
    }

    /// The bond that is reported instead of this link.
    fn bond_over(&self, link: &Link) -> Option<&'a Link> {
        let mut links = self.ports.links.iter();
        links.find(|bond| is_bond(bond) && Some(bond.index) == link.master && self.is_meant(bond))
    }

    fn describe_up(&self, link: &Link) -> String {
        let active = match link.info {
            LinkInfo::Bond { active, .. } => active,
            _ => None,
        };
        let port = active.and_then(|index| self.ports.links.iter().find(|link| link.index == index));
        port.map_or_else(
            || link.name.clone(),
            |port| format!("{} over {}", link.name, port.name),
        )
    }

    fn describe_down(&self, link: &Link) -> String {
        let name = &link.name;
        if is_bond(link) && link.up {
            let ports: Vec<String> = self
                .ports_of(link)
                .map(|port| format!("{} ({})", port.name, self.why(port)))
                .collect();
            return match ports.as_slice() {
                [] => format!("{name} has no carrier: it is a bond without ports"),
                ports => format!("{name} has no carrier on any of its ports: {}", ports.join(", ")),
            };
        }
        format!("{name} has no carrier: {}", self.why(link))
    }

    /// None if no port lacks carrier.
    fn describe_degraded(&self, bond: &Link) -> Option<String> {
        let missing: Vec<String> = self
            .ports_of(bond)
            .filter(|port| self.is_expected(port) && !port.carrier)
            .map(|port| format!("{} ({})", port.name, self.why(port)))
            .collect();
        (!missing.is_empty()).then(|| {
            format!(
                "bond {} runs without {}",
                self.describe_up(bond),
                missing.join(", ")
            )
        })
    }

    /// Why a link has no carrier, as far as its RDMA port shows.
    fn why(&self, link: &Link) -> String {
        if !link.up {
            return "it is set down".to_owned();
        }
        if link.carrier {
            return "has carrier".to_owned();
        }
        let Some(port) = self.ports.ports.get(&link.index) else {
            return "check cable and switch port".to_owned();
        };
        let Port { device, number, .. } = port;
        let name = format!("{device} port {number}");
        match (port.layer, port.state) {
            (PortLayer::Infiniband, PortState::Init | PortState::Armed) => {
                format!("{name} has a cable, and no subnet manager has configured it")
            }
            (PortLayer::Infiniband, PortState::Active) => {
                format!("{name} is active and has not joined its partition's group: check the subnet manager")
            }
            (_, state) => format!("{name} is {state}: check cable and switch port"),
        }
    }
}

#[cfg(test)]
mod tests;
