// SPDX-License-Identifier: Apache-2.0
//! The candidates of the node, read from its links and sysfs.
//!
//! Invariant: no child and no pod's interface is a candidate unless it is named. Properties in the list of
//! links are not requested again, and `P_Key` tables are read only if the configuration selects by a
//! partition.

use super::used::{NodeUse, node_use};
use super::view::{OfHost, View};
use super::{Aside, Candidate, Preference, Preferences, RdmaPort};
use crate::error::{Error, Step};
use crate::journal::Load;
use crate::kernel::Kernel;
use crate::mark;
use crate::rdma::facts;
use common::netlink::{Link, LinkLayer};
use common::rdma::{Device, Port, PortState, Sysfs};
use std::collections::BTreeMap;
use std::path::PathBuf;

/// The attachments on each link, by its name.
pub type Loads = BTreeMap<String, Load>;

/// The links of the node that `preferences` could mean.
///
/// # Errors
/// The kernel refuses a request, or sysfs cannot be listed.
pub fn candidates(
    kernel: &mut dyn Kernel,
    sysfs: &Sysfs,
    preferences: &Preferences,
    loads: &Loads,
) -> Result<Vec<Candidate>, Error> {
    survey(&mut OfHost(kernel), sysfs, preferences, loads)
}

/// As [`candidates`], for callers that only read the node.
///
/// # Errors
/// As [`candidates`].
pub fn survey(
    view: &mut dyn View,
    sysfs: &Sysfs,
    preferences: &Preferences,
    loads: &Loads,
) -> Result<Vec<Candidate>, Error> {
    let links = view.links().step(|| "list the links")?;
    let devices = facts::all(sysfs)?;
    let survey = Survey {
        sysfs,
        links: &links,
        devices: &devices,
        preferences,
    };
    let mut found = Vec::new();
    for link in links.iter().filter(|link| survey.is_meant(link)) {
        let load = loads.get(&link.name).copied().unwrap_or_default();
        found.push(survey.candidate(view, link, load)?);
    }
    Ok(found)
}

struct Survey<'a> {
    sysfs: &'a Sysfs,
    links: &'a [Link],
    devices: &'a [Device],
    preferences: &'a Preferences,
}

impl<'a> Survey<'a> {
    /// Whether a name or a description could mean `link`. Nodes have hundreds of pods' links; this check is
    /// cheap.
    fn is_meant(&self, link: &Link) -> bool {
        let named =
            |preference: &Preference| matches!(preference, Preference::Named(name) if link.is_called(name));
        let hardware_or_bond = matches!(link.kind.as_deref(), None | Some("ipoib" | "bond"));
        let fabric = matches!(link.layer, LinkLayer::Infiniband | LinkLayer::Ethernet);
        let choices = &self.preferences.choices;
        choices.iter().any(named) || link.parent.is_none() && hardware_or_bond && fabric
    }

    fn candidate(&self, view: &mut dyn View, link: &Link, load: Load) -> Result<Candidate, Error> {
        let port = self.port(link);
        // A bond has no device itself.
        let slave = self.ports_of(link).next().filter(|_| link.is_bond());
        let hardware = slave.unwrap_or(link);
        let pci = self.sysfs.pci_of_netdev(&hardware.name);
        let numa_node = self.sysfs.numa_node_of_netdev(&hardware.name);
        Ok(Candidate {
            name: link.name.clone(),
            altnames: link.altnames.clone(),
            layer: link.layer,
            pci,
            numa_node,
            problem: problem(link, port),
            aside: self.aside(view, link, port.is_some())?,
            port: port.map(|(device, port)| self.facts(device, port)).transpose()?,
            load,
        })
    }

    /// The port of a bond is that of its LAG device, else that of its first port with carrier.
    fn port(&self, link: &Link) -> Option<(&'a Device, &'a Port)> {
        let own = self.sysfs.port_of(self.devices, link);
        if own.is_some() || !link.is_bond() {
            return own;
        }
        let of = |carrying: bool| {
            let mut slaves = self.ports_of(link).filter(|slave| slave.carrier == carrying);
            slaves.find_map(|slave| self.sysfs.port_of(self.devices, slave))
        };
        of(true).or_else(|| of(false))
    }

    fn ports_of(&self, bond: &Link) -> impl Iterator<Item = &'a Link> + use<'a> {
        let index = bond.index;
        self.links.iter().filter(move |link| link.master == Some(index))
    }

    fn facts(&self, device: &Device, port: &Port) -> Result<RdmaPort, Error> {
        let asked =
            |preference: &Preference| matches!(preference, Preference::Described(s) if s.pkey.is_some());
        let wanted = self.preferences.needs.pkey.is_some() || self.preferences.choices.iter().any(asked);
        let pkeys = if wanted {
            self.sysfs.pkeys(device, port).map_err(|source| Error::Io {
                what: "read the P_Key table of",
                path: PathBuf::from(&device.name),
                remedy: "is the device still there?",
                source,
            })?
        } else {
            Vec::new()
        };
        Ok(RdmaPort {
            device: device.name.clone(),
            number: port.number,
            rate_mbps: port.rate_mbps,
            subnet_prefix: port.subnet_prefix(),
            pkeys,
        })
    }

    fn aside(&self, view: &mut dyn View, link: &Link, rdma: bool) -> Result<Option<Aside>, Error> {
        if mark::is_ours(link) {
            return Ok(Some(Aside::Always("is the interface of a pod".to_owned())));
        }
        if link.is_representor() {
            let port = link.phys_port_name.as_deref().unwrap_or_default();
            return Ok(Some(Aside::Always(format!(
                "is the representor {port}: it reaches only the function that it represents"
            ))));
        }
        if link.is_bond() && self.preferences.needs.no_bond {
            return Ok(Some(Aside::Always(
                "is a bond, and bond is \"refuse\"".to_owned(),
            )));
        }
        if let Some(why) = self.is_used(view, link)? {
            return Ok(Some(Aside::Always(why)));
        }
        if let Some(upper) = link.master {
            let in_vrf = self.links.iter().any(|link| link.index == upper && link.is_vrf());
            let why = format!("is a port of {}", self.name_of(upper));
            // The kernel passes its frames to the bond or bridge, and refuses a child with EBUSY.
            let never = link.layer == LinkLayer::Ethernet && !in_vrf;
            return Ok(Some(if never {
                Aside::Always(why)
            } else {
                Aside::Unasked(why)
            }));
        }
        if let Some(parent) = link.parent {
            let parent = self.name_of(parent);
            return Ok(Some(Aside::Unasked(format!("is a child of {parent}"))));
        }
        // Children of an InfiniBand link do not disturb its other traffic. Children of an Ethernet link would
        // put pods on the node's own network.
        if !rdma || link.layer != LinkLayer::Ethernet {
            return Ok(None);
        }
        self.carries(view, link).map(|what| what.map(Aside::Unasked))
    }

    /// The part of the node's own network that uses `link`, directly or through a link above it. An address counts only on
    /// a bond: a port for pods often has one.
    fn carries(&self, view: &mut dyn View, link: &Link) -> Result<Option<String>, Error> {
        let used = node_use(view, self.links, link, link.is_bond())?;
        Ok(used.map(|used| {
            let what = match used {
                NodeUse::DefaultRoute { .. } | NodeUse::OpenVswitch { .. } => "carries",
                NodeUse::Address { .. } => "is a bond that carries",
            };
            format!("{what} {used}; name it if pods may share it")
        }))
    }

    /// Why `link` cannot be the parent of a child that takes the frames of its parent; see
    /// [`require_unused`](super::require_unused).
    fn is_used(&self, view: &mut dyn View, link: &Link) -> Result<Option<String>, Error> {
        if !self.preferences.needs.unused || link.layer != LinkLayer::Ethernet {
            return Ok(None);
        }
        let used = node_use(view, self.links, link, true)?;
        Ok(used.map(|used| {
            format!("carries {used}, and a child in mode passthru takes the frames of its parent")
        }))
    }

    fn name_of(&self, index: u32) -> String {
        let found = self.links.iter().find(|link| link.index == index);
        found.map_or_else(|| format!("link {index}"), |link| link.name.clone())
    }
}

/// Why `link` carries no traffic now, in the words and order of the plan, which checks again.
fn problem(link: &Link, port: Option<(&Device, &Port)>) -> Option<String> {
    if !link.up {
        return Some(format!("is down (ip link set {} up)", link.name));
    }
    match port {
        Some((device, port)) if link.layer == LinkLayer::Infiniband && !link.is_bond() => {
            (port.state != PortState::Active).then(|| {
                let (name, number, state) = (&device.name, port.number, port.state);
                let because = state.unfinished().map(|cause| format!(", because {cause}"));
                format!(
                    "carries nothing: {name} port {number} is {state} ({}){}",
                    port.phys_state,
                    because.unwrap_or_default()
                )
            })
        }
        _ => (!link.carrier).then(|| "has no carrier".to_owned()),
    }
}
