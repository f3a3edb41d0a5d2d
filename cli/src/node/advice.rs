// SPDX-License-Identifier: Apache-2.0
//! Which link to use for pods, and why not the others. The plugin's own selection decides about every link.

use super::collect::{NodeFacts, PortFacts};
use cni_ipoib::select::{Aside, Candidate};
use common::netlink::LinkLayer;
use serde::Serialize;

/// What to write into a network configuration.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Advice {
    /// Links that pods can use, the fastest first.
    pub masters: Vec<Master>,
    /// A selector that matches these links on this node and on others; `None` if only their names do.
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
    /// There is no usable link.
    Unsuitable(String),
}

/// Whether pods can use the link of a port.
pub fn suitability(facts: &NodeFacts, port: &PortFacts) -> Suitability {
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

/// What to write into a network configuration for this node.
pub fn advise(facts: &NodeFacts) -> Advice {
    let is_usable = |candidate: &&Candidate| candidate.aside.is_none() && candidate.problem.is_none();
    let rdma = facts
        .candidates
        .iter()
        .filter(|candidate| candidate.port.is_some());
    let mut masters: Vec<(LinkLayer, Master)> = rdma
        .filter(is_usable)
        .filter_map(|candidate| {
            let port = candidate.port.as_ref()?;
            let master = Master {
                name: candidate.name.clone(),
                mode: if candidate.layer == LinkLayer::Infiniband {
                    "ipoib"
                } else {
                    "macvlan"
                },
                port: format!("{}/{}", port.device, port.number),
                rate_mbps: port.rate_mbps,
            };
            Some((candidate.layer, master))
        })
        .collect();
    // InfiniBand first: a node with both was built for InfiniBand.
    masters.sort_by_key(|(layer, master)| {
        let rate = std::cmp::Reverse(master.rate_mbps);
        (*layer != LinkLayer::Infiniband, rate, master.name.clone())
    });
    let layer = masters.first().map(|(layer, _)| *layer);
    masters.retain(|(of, _)| Some(*of) == layer);
    let describe = layer.map(|layer| match layer {
        LinkLayer::Infiniband => r#"{"linkLayer": "InfiniBand"}"#.to_owned(),
        _ => r#"{"linkLayer": "Ethernet"}"#.to_owned(),
    });
    Advice {
        masters: masters.into_iter().map(|(_, master)| master).collect(),
        describe,
    }
}
