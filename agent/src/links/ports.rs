// SPDX-License-Identifier: Apache-2.0
//! Reads the current state of the links.

use common::cni::error::causes;
use common::netlink::{Link, LinkLayer, Route, Socket};
use common::rdma::{PortLayer, PortState, Sysfs};
use std::collections::BTreeMap;

/// The links of the node, and the RDMA ports that carry them.
#[derive(Clone, Debug, Default)]
pub(super) struct LinkPorts {
    pub(super) links: Vec<Link>,
    /// By the link's index.
    pub(super) ports: BTreeMap<u32, Port>,
}

/// An RDMA port.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Port {
    pub(super) device: String,
    pub(super) number: u32,
    pub(super) layer: PortLayer,
    pub(super) state: PortState,
}

/// Reads links and ports. Blocks for as long as kernel and firmware take, which is milliseconds.
pub(super) fn look(sysfs: &Sysfs) -> Result<LinkPorts, String> {
    let links = Socket::<Route>::open()
        .and_then(|mut socket| socket.links())
        .map_err(|e| format!("cannot list the links: {}", causes(&e)))?;
    let devices = sysfs
        .devices()
        .map_err(|e| format!("cannot list the RDMA devices: {e}; is sysfs mounted?"))?;
    let port = |link: &Link| {
        let (device, port) = sysfs.port_of(&devices, link)?;
        let port = Port {
            device: device.name.clone(),
            number: port.number,
            layer: port.layer,
            state: port.state,
        };
        Some((link.index, port))
    };
    let ports = links
        .iter()
        .filter(|link| is_hardware_or_bond(link))
        .filter_map(port)
        .collect();
    Ok(LinkPorts { links, ports })
}

pub(super) fn is_bond(link: &Link) -> bool {
    link.kind.as_deref() == Some("bond")
}

/// False for a pod's child that the kernel has moved back into the host's namespace.
pub(super) fn is_hardware_or_bond(link: &Link) -> bool {
    let fabric = matches!(link.layer, LinkLayer::Infiniband | LinkLayer::Ethernet);
    fabric && link.parent.is_none() && matches!(link.kind.as_deref(), None | Some("ipoib" | "bond"))
}
