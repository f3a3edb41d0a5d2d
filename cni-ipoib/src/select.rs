// SPDX-License-Identifier: Apache-2.0
//! Chooses the parent among the node's links, if the configuration describes it instead of naming it.
//!
//! Invariant: the order of the candidates does not change the choice. A link is offered to a description only
//! if pods on it do not disturb other users (see [`Aside`]). Every rejected link has a reason.

mod candidates;
mod resolve;
mod view;

pub use candidates::{Loads, candidates, survey};
pub(crate) use resolve::{choice_lock, chosen, resolve};
pub use view::View;

use common::netlink::LinkLayer;
use common::rdma::{PciAddress, Pkey};
use glob::Pattern;
use std::fmt;

/// `master` as a list of names and descriptions, by preference.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Preferences {
    /// In the order of the configuration.
    pub choices: Vec<Preference>,
    /// The requirements of the rest of the configuration on each of them.
    pub needs: Needs,
}

/// One entry of `master`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Preference {
    /// By name or altname. A named link is accepted whatever it carries, since the name shows intent.
    Named(String),
    /// By description.
    Described(Selector),
}

/// A description; `None` matches anything.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Selector {
    /// Its link layer.
    pub layer: Option<LinkLayer>,
    /// Whether a link without traffic is accepted if no other fits. ADD then reports why it carries none.
    pub any_state: bool,
    /// The minimum speed of its RDMA port, in Gbit/s.
    pub rate_min: Option<u32>,
    /// The name of its RDMA device.
    pub rdma_device: Option<Pattern>,
    /// The PCI address of its device.
    pub pci_address: Option<Pattern>,
    /// Its name or one of its altnames.
    pub if_name: Option<Pattern>,
    /// A partition that its port is a member of.
    pub pkey: Option<Pkey>,
    /// The prefix of its port's InfiniBand subnet.
    pub subnet_prefix: Option<u64>,
    /// The NUMA node of its device.
    pub numa_node: Option<u32>,
}

/// The requirements of the other keys of a configuration on any parent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Needs {
    /// The link layer that the mode needs.
    pub layer: Option<LinkLayer>,
    /// The partition of the child.
    pub pkey: Option<Pkey>,
    /// Whether a bond is excluded.
    pub no_bond: bool,
}

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
    pub trouble: Option<String>,
    /// Why it is not offered.
    pub aside: Option<Aside>,
    /// The number of attachments on it, over all networks.
    pub load: usize,
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
    /// Never offered: it cannot be a parent.
    Always(String),
}

/// A candidate that was rejected.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PassedOver {
    /// The entry of `master`.
    pub entry: String,
    /// The link with its RDMA port.
    pub link: String,
    /// The reason.
    pub why: String,
    /// Whether it fits, but carries no traffic now.
    pub down: bool,
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
/// those that carry traffic, then the fewest attachments, then the first by name.
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
        if let Some(best) = fitting.iter().min_by_key(|one| (one.trouble.is_some(), one.load)) {
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
                .map(|other| format!("{} has {}", other.name, other.load))
                .collect();
            format!(
                "of {n} links that fit {preference} the least loaded, then the first by name: it has {} attachments, {}",
                best.load,
                others.join(", ")
            )
        }
    };
    if !passed.is_empty() {
        text.push_str("; passed over: ");
        text.push_str(&list(passed));
    }
    text
}

/// Every candidate with its reason.
pub(crate) fn list(passed: &[PassedOver]) -> String {
    let mut entries: Vec<&str> = passed.iter().map(|one| one.entry.as_str()).collect();
    entries.dedup();
    let line = |one: &PassedOver| {
        if entries.len() > 1 && one.entry.starts_with('{') {
            format!("{} {}, asked for {}", one.link, one.why, one.entry)
        } else {
            format!("{} {}", one.link, one.why)
        }
    };
    passed.iter().map(line).collect::<Vec<_>>().join("; ")
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
        match &candidate.trouble {
            Some(trouble) if !any_state => Err(Some((trouble.clone(), true))),
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

impl fmt::Display for Preference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Named(name) => f.write_str(name),
            Self::Described(selector) => selector.fmt(f),
        }
    }
}

/// The description in the notation of the configuration: `{linkLayer: InfiniBand, rateMin: 200}`.
impl fmt::Display for Selector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let set = [
            self.layer.map(|is| format!("linkLayer: {}", layer(is))),
            self.any_state.then(|| "state: any".to_owned()),
            self.rate_min.map(|rate| format!("rateMin: {rate}")),
            self.rdma_device
                .as_ref()
                .map(|glob| format!("rdmaDevice: {glob}")),
            self.pci_address
                .as_ref()
                .map(|glob| format!("pciAddress: {glob}")),
            self.if_name.as_ref().map(|glob| format!("ifName: {glob}")),
            self.pkey.map(|pkey| format!("pkey: {pkey}")),
            self.subnet_prefix
                .map(|want| format!("subnetPrefix: {}", prefix(want))),
            self.numa_node.map(|node| format!("numaNode: {node}")),
        ];
        let set: Vec<String> = set.into_iter().flatten().collect();
        write!(f, "{{{}}}", set.join(", "))
    }
}

fn layer(layer: LinkLayer) -> &'static str {
    match layer {
        LinkLayer::Infiniband => "InfiniBand",
        LinkLayer::Ethernet => "Ethernet",
        LinkLayer::Loopback => "a loopback",
        LinkLayer::Other(_) => "neither InfiniBand nor Ethernet",
    }
}

/// A subnet prefix in the format of sysfs.
fn prefix(prefix: u64) -> String {
    common::rdma::Guid(prefix).to_string()
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
