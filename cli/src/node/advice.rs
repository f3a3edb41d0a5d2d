// SPDX-License-Identifier: Apache-2.0
//! Which link to use for pods, and why not the others. The plugin's own selection decides about every link.

use super::facts::{NodeFacts, PortFacts};
use cni_ipoib::select::{Aside, Candidate, RdmaPort};
use common::netlink::LinkLayer;
use common::rdma::{Guid, PortLayer};
use serde::Serialize;
use std::net::IpAddr;

/// What to write into a network configuration.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Advice {
    /// Links that pods can use, the fastest first.
    pub masters: Vec<Master>,
    /// A selector that takes those of these links that are not left out, on this node and on others; `None` without a
    /// link.
    pub describe: Option<String>,
}

/// A link that pods can use.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Master {
    /// Its name.
    pub name: String,
    /// The mode of `cni-ipoib` for it.
    pub mode: &'static str,
    /// Its RDMA device and port, e.g. `mlx5_1/1`.
    pub port: String,
    /// Its speed in Mbit/s.
    pub rate_mbps: Option<u32>,
    /// Its RDMA devices with their ports in the notation of `NCCL_IB_HCA`, e.g. `mlx5_1:1`.
    pub hcas: Vec<String>,
    /// The node's global addresses on it.
    pub addresses: Vec<IpAddr>,
    /// Why neither the selector nor `NCCL_IB_HCA` has it.
    pub left_out: Option<String>,
}

/// Whether pods can use the link of a port, and the reason if not.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Suitability {
    /// Pods can use it.
    Usable,
    /// Pods could use it, but it is reserved for the node's own use, for this reason.
    Reserved(String),
    /// It carries no traffic now, for this reason.
    Faulty(String),
    /// It is in a pod, which this names.
    InPod(String),
    /// There is no usable link.
    Unsuitable(String),
}

/// Whether pods can use the link of a port.
pub fn suitability(facts: &NodeFacts, port: &PortFacts) -> Suitability {
    if let Some(attached) = &port.in_pod {
        return Suitability::InPod(format!("in {}", attached.place()));
    }
    let Some(netdev) = &port.netdev else {
        return Suitability::Unsuitable("has no link".to_owned());
    };
    let Some(candidate) = facts
        .candidates
        .iter()
        .find(|candidate| candidate.name == *netdev)
    else {
        return Suitability::Unsuitable(format!("{netdev} is no link that pods could share"));
    };
    match (&candidate.aside, &candidate.problem) {
        (Some(Aside::Unasked(why)), _) => Suitability::Reserved(why.clone()),
        (Some(Aside::Always(why)), _) => Suitability::Unsuitable(why.clone()),
        (None, Some(problem)) => Suitability::Faulty(problem.clone()),
        (None, None) => Suitability::Usable,
    }
}

/// `NCCL_IB_HCA` with these devices. NCCL matches a plain name as a prefix, so `mlx5_1` would match `mlx5_10` as well. The
/// second `=` asks for exact names.
pub fn nccl_ib_hca(hcas: &[String]) -> String {
    format!("NCCL_IB_HCA=={}", hcas.join(","))
}

/// The RDMA devices with the ports of an `InfiniBand` bond.
pub fn hcas_of_bond(facts: &NodeFacts, bond: &str) -> Vec<String> {
    let is_of_bond =
        |port: &&PortFacts| port.bond.as_deref() == Some(bond) && port.port.layer == PortLayer::Infiniband;
    let ports = facts.ports.iter().filter(is_of_bond);
    ports
        .map(|port| format!("{}:{}", port.device.name, port.port.number))
        .collect()
}

/// What to write into a network configuration for this node.
pub fn advise(facts: &NodeFacts) -> Advice {
    let mut usable: Vec<(&Candidate, &RdmaPort)> = facts
        .candidates
        .iter()
        .filter(|candidate| candidate.aside.is_none() && candidate.problem.is_none())
        .filter_map(|candidate| Some((candidate, candidate.port.as_ref()?)))
        .collect();
    // InfiniBand first: a node with both was built for InfiniBand.
    usable.sort_by_key(|(candidate, port)| {
        let rate = std::cmp::Reverse(port.rate_mbps);
        (candidate.layer != LinkLayer::Infiniband, rate, &candidate.name)
    });
    let Some((first, best)) = usable.first().copied() else {
        return Advice {
            masters: Vec::new(),
            describe: None,
        };
    };
    usable.retain(|(candidate, _)| candidate.layer == first.layer);
    let left_out = |port| left_out(first.layer, best, port);
    let masters = usable.iter();
    let masters = masters.map(|(candidate, port)| master(facts, candidate, port, left_out(port)));
    let reasons = usable.iter().filter_map(|(_, port)| left_out(port));
    Advice {
        describe: Some(describe(first.layer, best, &reasons.collect::<Vec<_>>())),
        masters: masters.collect(),
    }
}

/// Why a link is left out although pods can use it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum LeftOut {
    /// It is slower than `best`.
    Rate,
    /// It is in another `InfiniBand` subnet than `best`.
    Subnet,
}

/// Why `port` is left out beside `best`, the first of the fastest.
fn left_out(layer: LinkLayer, best: &RdmaPort, port: &RdmaPort) -> Option<LeftOut> {
    let is_known = best.subnet_prefix.is_some() && port.subnet_prefix.is_some();
    if port.rate_mbps < best.rate_mbps {
        Some(LeftOut::Rate)
    } else if layer == LinkLayer::Infiniband && is_known && port.subnet_prefix != best.subnet_prefix {
        Some(LeftOut::Subnet)
    } else {
        None
    }
}

fn master(facts: &NodeFacts, link: &Candidate, port: &RdmaPort, left_out: Option<LeftOut>) -> Master {
    let infiniband = link.layer == LinkLayer::Infiniband;
    let of_bond = if infiniband {
        hcas_of_bond(facts, &link.name)
    } else {
        Vec::new()
    };
    Master {
        name: link.name.clone(),
        mode: if infiniband { "ipoib" } else { "macvlan" },
        port: format!("{}/{}", port.device, port.number),
        rate_mbps: port.rate_mbps,
        hcas: if of_bond.is_empty() {
            vec![format!("{}:{}", port.device, port.number)]
        } else {
            of_bond
        },
        addresses: facts.addresses.get(&link.name).cloned().unwrap_or_default(),
        left_out: left_out.map(|why| match why {
            LeftOut::Rate => "is slower".to_owned(),
            LeftOut::Subnet => format!("is in subnet {}", prefix(port)),
        }),
    }
}

/// The subnet prefix of a port in the notation of the key `subnetPrefix`.
fn prefix(port: &RdmaPort) -> String {
    Guid(port.subnet_prefix.unwrap_or_default()).to_string()
}

/// The selector that takes `best` and no link that is left out for one of `reasons`.
fn describe(layer: LinkLayer, best: &RdmaPort, reasons: &[LeftOut]) -> String {
    let layer = match layer {
        LinkLayer::Infiniband => "InfiniBand",
        _ => "Ethernet",
    };
    let mut keys = vec![format!(r#""linkLayer": "{layer}""#)];
    if let Some(rate) = best.rate_mbps.filter(|_| reasons.contains(&LeftOut::Rate)) {
        keys.push(format!(r#""rateMin": {}"#, rate / 1000));
    }
    if reasons.contains(&LeftOut::Subnet) {
        keys.push(format!(r#""subnetPrefix": "{}""#, prefix(best)));
    }
    format!("{{{}}}", keys.join(", "))
}
