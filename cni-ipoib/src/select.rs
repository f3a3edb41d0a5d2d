// SPDX-License-Identifier: Apache-2.0
//! Chooses the parent among the node's links, if the configuration describes it instead of naming it.
//!
//! Invariant: the order of the candidates does not change the choice. A link is offered to a description only
//! if pods on it do not disturb other users (see [`Aside`]). Every rejected link has a reason.

mod candidates;
mod resolve;
mod used;
mod view;

pub use crate::config::{Needs, Preference, Preferences, Selector};
pub use crate::error::PassedOver;
pub use crate::journal::Load;
pub use candidates::{Loads, candidates, survey};
pub(crate) use resolve::{resolve, resolve_for_add};
pub(crate) use used::require_unused;
pub use view::View;

use crate::config::preferences::{layer, prefix};
use crate::error::list_passed_over;
use common::netlink::LinkLayer;
use common::rdma::{PciAddress, Pkey};
use std::fmt;

/// A link that could become the parent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Candidate {
    /// Its name.
    pub name: String,
    /// Its altnames.
    pub altnames: Vec<String>,
    /// Its link layer.
    pub layer: LinkLayer,
    /// Its RDMA port; for a bond, that of a port that stands for it.
    pub port: Option<RdmaPort>,
    /// The PCI address of its device.
    pub pci: Option<PciAddress>,
    /// The NUMA node of its device.
    pub numa_node: Option<u32>,
    /// Why it carries no traffic now.
    pub problem: Option<String>,
    /// Why it is not offered.
    pub aside: Option<Aside>,
    /// The attachments on it.
    pub load: Load,
}

/// The properties of an RDMA port that a description can select.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RdmaPort {
    /// The device, e.g. `mlx5_0`.
    pub device: String,
    /// The port's number, from 1.
    pub number: u32,
    /// Its speed in Mbit/s.
    pub rate_mbps: Option<u32>,
    /// The prefix of its subnet.
    pub subnet_prefix: Option<u64>,
    /// Its partitions; empty unless the configuration selects by one.
    pub pkeys: Vec<Pkey>,
}

/// Why a link is not offered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Aside {
    /// Not offered to descriptions: pods on it would share the node's own network, or it is not an RDMA link.
    Unasked(String),
    /// Never offered: it cannot be a parent, or its children reach no other host.
    Always(String),
}

/// The link that was chosen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Choice {
    /// Its name.
    pub name: String,
    /// Why, and which links were rejected; for people.
    pub why: String,
}

/// Chooses a link: the first entry of `master` that any link fits decides. Among several links it prefers
/// those that carry traffic, then the fewest attachments of the same pod, then the fewest of all, then the
/// first by name.
///
/// # Errors
/// No link fits: every candidate with the reason, for each entry.
pub fn choose(preferences: &Preferences, candidates: &[Candidate]) -> Result<Choice, Vec<PassedOver>> {
    let mut passed = Vec::new();
    for preference in &preferences.choices {
        let mut fitting = Vec::new();
        for candidate in sorted(candidates) {
            match preference.judge(preferences.needs, candidate) {
                Ok(()) => fitting.push(candidate),
                Err(None) => {}
                Err(Some((why, down))) => passed.push(PassedOver {
                    entry: preference.to_string(),
                    link: candidate.to_string(),
                    why,
                    down,
                }),
            }
        }
        // The first of equals, which is the first by name.
        let rank = |one: &&&Candidate| (one.problem.is_some(), one.load.own, one.load.all);
        if let Some(best) = fitting.iter().min_by_key(rank) {
            return Ok(Choice {
                name: best.name.clone(),
                why: why(preference, best, &fitting, &passed),
            });
        }
        if let Preference::Named(name) = preference
            && !candidates.iter().any(|candidate| candidate.is_called(name))
        {
            passed.push(PassedOver {
                entry: name.clone(),
                link: name.clone(),
                why: "does not exist on this node".to_owned(),
                down: false,
            });
        }
    }
    Err(passed)
}

fn sorted(candidates: &[Candidate]) -> Vec<&Candidate> {
    let mut all: Vec<&Candidate> = candidates.iter().collect();
    all.sort_by_key(|candidate| &candidate.name);
    all
}

/// The reason in one line, for the log and for the attachment's file.
fn why(preference: &Preference, best: &Candidate, fitting: &[&Candidate], passed: &[PassedOver]) -> String {
    let mut text = match (preference, fitting.len()) {
        (Preference::Named(name), _) => format!("the first of the list that can be used: {name}"),
        (Preference::Described(_), 1) => format!("the only link that fits {preference}"),
        (Preference::Described(_), n) => {
            let others = fitting.iter().filter(|candidate| candidate.name != best.name);
            let others: Vec<String> = others
                .map(|other| format!("{} has {}", other.name, counted(other.load)))
                .collect();
            format!(
                "of {n} links that fit {preference} the least loaded, then the first by name: it has {}, {}",
                counted(best.load),
                others.join(", ")
            )
        }
    };
    if !passed.is_empty() {
        text.push_str("; passed over: ");
        text.push_str(&list_passed_over(passed));
    }
    text
}

/// The attachments on a link, with those of the same pod if it has any: `2 attachments, 1 of this pod`.
fn counted(load: Load) -> String {
    let noun = if load.all == 1 {
        "attachment"
    } else {
        "attachments"
    };
    match load {
        Load { all, own: 0 } => format!("{all} {noun}"),
        Load { all, own } => format!("{all} {noun} ({own} of this pod)"),
    }
}

/// Why a link does not fit, and whether it would if it carried traffic; without a reason for a link that the
/// entry does not mean.
type Unfit = Option<(String, bool)>;

impl Preference {
    fn judge(&self, needs: Needs, candidate: &Candidate) -> Result<(), Unfit> {
        let unfit = |why: String| Err(Some((why, false)));
        let any_state = match (self, &candidate.aside) {
            (Self::Named(name), _) if !candidate.is_called(name) => return Err(None),
            (Self::Described(_), _) if candidate.port.is_none() => return Err(None),
            (Self::Described(_), Some(Aside::Unasked(why))) | (_, Some(Aside::Always(why))) => {
                return unfit(why.clone());
            }
            (Self::Named(_), _) => false,
            (Self::Described(selector), None) => {
                selector.require(candidate).or_else(unfit)?;
                selector.any_state
            }
        };
        needs.require(candidate).or_else(unfit)?;
        match &candidate.problem {
            Some(problem) if !any_state => Err(Some((problem.clone(), true))),
            _ => Ok(()),
        }
    }
}

impl Needs {
    fn require(self, candidate: &Candidate) -> Result<(), String> {
        require_layer(self.layer, candidate, "mode")?;
        let port = candidate.port.as_ref();
        port.map_or(Ok(()), |port| require_pkey(self.pkey, port))
    }
}

impl Selector {
    /// The first requirement that `candidate` does not meet.
    fn require(&self, candidate: &Candidate) -> Result<(), String> {
        require_layer(self.layer, candidate, "linkLayer")?;
        if let Some(glob) = &self.if_name
            && !candidate.names().any(|name| glob.matches(name))
        {
            return Err(format!("is not called {glob} (ifName)"));
        }
        if let Some(glob) = &self.pci_address {
            match candidate.pci {
                Some(pci) if glob.matches(&pci.to_string()) => {}
                Some(pci) => return Err(format!("is at {pci}, not {glob} (pciAddress)")),
                None => return Err(format!("is no PCI device (pciAddress {glob})")),
            }
        }
        if let Some(node) = self.numa_node.filter(|node| candidate.numa_node != Some(*node)) {
            let is = candidate.numa_node.map_or("none".to_owned(), |is| is.to_string());
            return Err(format!("is on NUMA node {is}, not {node} (numaNode)"));
        }
        let port = candidate.port.as_ref();
        port.map_or(Ok(()), |port| self.require_port(port))
    }

    fn require_port(&self, port: &RdmaPort) -> Result<(), String> {
        if let Some(glob) = self
            .rdma_device
            .as_ref()
            .filter(|glob| !glob.matches(&port.device))
        {
            return Err(format!("has {}, not {glob} (rdmaDevice)", port.device));
        }
        if let Some(least) = self.rate_min {
            let rate = port.rate_mbps.unwrap_or(0);
            if rate < least.saturating_mul(1000) {
                return Err(format!("runs at {} Gbit/s, not {least} (rateMin)", Gbits(rate)));
            }
        }
        if let Some(want) = self
            .subnet_prefix
            .filter(|want| port.subnet_prefix != Some(*want))
        {
            let is = port.subnet_prefix.map_or("none".to_owned(), prefix);
            return Err(format!("is in subnet {is}, not {} (subnetPrefix)", prefix(want)));
        }
        require_pkey(self.pkey, port)
    }
}

fn require_layer(want: Option<LinkLayer>, candidate: &Candidate, key: &str) -> Result<(), String> {
    match want {
        Some(want) if want != candidate.layer => {
            let (is, want) = (layer(candidate.layer), layer(want));
            Err(format!("is {is}, not {want} ({key})"))
        }
        _ => Ok(()),
    }
}

fn require_pkey(want: Option<Pkey>, port: &RdmaPort) -> Result<(), String> {
    match want {
        Some(want) if !port.pkeys.iter().any(|of_port| of_port.matches(want)) => {
            Err(format!("is not in partition {want} (pkey)"))
        }
        _ => Ok(()),
    }
}

impl Candidate {
    fn names(&self) -> impl Iterator<Item = &str> {
        std::iter::once(self.name.as_str()).chain(self.altnames.iter().map(String::as_str))
    }

    fn is_called(&self, name: &str) -> bool {
        self.names().any(|its| its == name)
    }
}

/// The name of a candidate in errors and logs: `ib0 (InfiniBand, mlx5_0/1)`.
impl fmt::Display for Candidate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let layer = layer(self.layer);
        match &self.port {
            Some(port) => write!(f, "{} ({layer}, {}/{})", self.name, port.device, port.number),
            None => write!(f, "{} ({layer})", self.name),
        }
    }
}

/// Mbit/s, displayed in Gbit/s.
struct Gbits(u32);

impl fmt::Display for Gbits {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 % 1000 {
            0 => write!(f, "{}", self.0 / 1000),
            rest => write!(f, "{}.{}", self.0 / 1000, rest / 100),
        }
    }
}

#[cfg(test)]
mod tests;
