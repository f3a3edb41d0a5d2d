// SPDX-License-Identifier: Apache-2.0
//! Chooses a port that may be used. This module is pure.
//!
//! Invariant: a port is chosen only if it carries traffic and neither the node nor a pod uses it.

use super::uses::Uses;
use crate::node::facts::{NodeFacts, PortFacts};
use crate::output::CommandError;
use cni_ipoib::plan::Way;
use cni_ipoib::select::{Aside, Candidate, RdmaPort};
use common::netlink::LinkLayer;

/// The chosen port.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Port {
    /// Its link.
    pub master: String,
    /// The link layer.
    pub layer: LinkLayer,
    /// Its RDMA port.
    pub rdma: Option<RdmaPort>,
    /// How its `IPoIB` children get into pods; `None` on Ethernet.
    pub way: Option<Way>,
    /// Whether all namespaces see all RDMA devices.
    pub shared: bool,
    /// One of 512 networks of 256 addresses. Different ports have different networks, so two nodes can run self-tests at
    /// the same time.
    pub slot: u32,
}

/// Chooses `wanted`, or the first port that may be used.
///
/// # Errors
/// The wanted port may not be used, or none may. The sentence gives the reason for each.
pub fn choose(facts: &NodeFacts, wanted: Option<&str>, uses: &Uses) -> Result<Port, CommandError> {
    let mut refused = Vec::new();
    for candidate in &facts.candidates {
        if wanted.is_some_and(|wanted| wanted != candidate.name) {
            continue;
        }
        match refusal(facts, candidate, uses, wanted.is_some()) {
            Some(why) => refused.push(format!("{} {why}", candidate.name)),
            None => return Ok(chosen(facts, candidate, uses)),
        }
    }
    let name = wanted.unwrap_or("any port");
    let why = if refused.is_empty() {
        "there is no such link, or it has no RDMA port".to_owned()
    } else {
        refused.join("; ")
    };
    Err(CommandError(format!(
        "the self-test cannot use {name}: {why}; name a spare port with --master (rdmanet node lists them)"
    )))
}

fn refusal(facts: &NodeFacts, candidate: &Candidate, uses: &Uses, named: bool) -> Option<String> {
    if let Some(Aside::Always(why) | Aside::Unasked(why)) = &candidate.aside {
        return Some(why.clone());
    }
    let Some(port) = &candidate.port else {
        return Some("is no RDMA link".to_owned());
    };
    if candidate.layer != LinkLayer::Infiniband && !named {
        return Some("is Ethernet, which is used only if --master names it".to_owned());
    }
    if candidate.load.all > 0 {
        return Some(format!("has {} pods on it", candidate.load.all));
    }
    if let Some(why) = uses.of_link(&candidate.name) {
        return Some(why.to_owned());
    }
    if let Some(why) = uses.rdma.use_of(&port.device, port.number) {
        return Some(why);
    }
    // One queue pair that a driver cannot describe hides all others of the device.
    if let Some(why) = uses.rdma.unknown(&port.device).filter(|_| !named) {
        return Some(format!(
            "may be in use: {why}; it is used only if --master names it"
        ));
    }
    if port_of(facts, candidate).is_some_and(|port| !port.users.is_empty() || port.bond.is_some()) {
        return Some("is a bond or belongs to one, or has links on it".to_owned());
    }
    candidate.problem.clone()
}

fn port_of<'f>(facts: &'f NodeFacts, candidate: &Candidate) -> Option<&'f PortFacts> {
    let is_its = |port: &&PortFacts| port.netdev.as_deref() == Some(&*candidate.name);
    facts.ports.iter().find(is_its)
}

fn chosen(facts: &NodeFacts, candidate: &Candidate, uses: &Uses) -> Port {
    let way = port_of(facts, candidate).and_then(|port| port.way);
    Port {
        master: candidate.name.clone(),
        layer: candidate.layer,
        rdma: candidate.port.clone(),
        way: way.filter(|_| candidate.layer == LinkLayer::Infiniband),
        shared: facts.shared == Some(true),
        slot: slot(uses.hardware_address(&candidate.name).unwrap_or_default()),
    }
}

/// The last nine bits of a hardware address. The ports of one card, and the cards of one delivery, differ in these bits.
fn slot(address: &str) -> u32 {
    let bytes = address.split(':').map(|byte| u32::from_str_radix(byte, 16));
    bytes.fold(0, |slot, byte| (slot << 8 | byte.unwrap_or(0)) & 0x1ff)
}

#[cfg(test)]
mod tests;
