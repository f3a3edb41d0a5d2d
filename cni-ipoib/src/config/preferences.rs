// SPDX-License-Identifier: Apache-2.0
//! `master` as a choice: names and descriptions of links, by preference.

use common::netlink::LinkLayer;
use common::rdma::Pkey;
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
    /// Whether a link is excluded on which the node's own network depends, because the child takes its frames.
    pub unused: bool,
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

/// The name of a link layer in descriptions, errors and logs.
pub(crate) fn layer(layer: LinkLayer) -> &'static str {
    match layer {
        LinkLayer::Infiniband => "InfiniBand",
        LinkLayer::Ethernet => "Ethernet",
        LinkLayer::Loopback => "a loopback",
        LinkLayer::Other(_) => "neither InfiniBand nor Ethernet",
    }
}

/// A subnet prefix in the format of sysfs.
pub(crate) fn prefix(prefix: u64) -> String {
    common::rdma::Guid(prefix).to_string()
}
