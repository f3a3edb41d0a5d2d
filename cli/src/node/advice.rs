// SPDX-License-Identifier: Apache-2.0
//! Which link to give to pods, and why not the others: the plugin's own choice, asked for every link.

use super::look::{Facts, PortFacts};
use cni_ipoib::select::{Aside, Candidate};
use common::netlink::LinkLayer;
use serde::Serialize;

/// What to write into a configuration.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Advice {
    /// Links that pods can be given, the fastest first.
    pub masters: Vec<Master>,
    /// What finds them by description, on this node and on others; none where only a name does.
    pub describe: Option<String>,
}

/// A link that pods can be given.
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

/// Whether pods can be given a port's link, and if not, why.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// They can.
    Use,
    /// It would work, and is kept for what the node itself does with it.
    Kept(String),
    /// Nothing goes over it now.
    Trouble(String),
    /// There is nothing to give.
    Nothing(String),
}

/// What becomes of a port's link.
pub fn verdict(facts: &Facts, port: &PortFacts) -> Verdict {
    let Some(netdev) = &port.netdev else {
        return Verdict::Nothing("has no link".to_owned());
    };
    let Some(candidate) = facts
        .candidates
        .iter()
        .find(|candidate| candidate.name == *netdev)
    else {
        return Verdict::Nothing(format!("{netdev} is no link that pods could share"));
    };
    match (&candidate.aside, &candidate.trouble) {
        (Some(Aside::Unasked(why)), _) => Verdict::Kept(why.clone()),
        (Some(Aside::Always(why)), _) => Verdict::Nothing(why.clone()),
        (None, Some(trouble)) => Verdict::Trouble(trouble.clone()),
        (None, None) => Verdict::Use,
    }
}

/// What to write into a configuration of this node.
pub fn advise(facts: &Facts) -> Advice {
    let fits = |candidate: &&Candidate| candidate.aside.is_none() && candidate.trouble.is_none();
    let rdma = facts
        .candidates
        .iter()
        .filter(|candidate| candidate.port.is_some());
    let mut masters: Vec<(LinkLayer, Master)> = rdma
        .filter(fits)
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
    // InfiniBand first: whoever has both built it for this.
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
