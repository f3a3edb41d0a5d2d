// SPDX-License-Identifier: Apache-2.0
//! The node's own use of a link: a default route, an address or Open vSwitch, on the link itself or on a link above it.

use super::view::{OfHost, View};
use crate::error::{Error, Step};
use crate::kernel::{Kernel, Side, links};
use crate::mark;
use common::netlink::{Link, TABLE_MAIN};
use std::fmt;
use std::net::IpAddr;

/// The kind of the links that Open vSwitch creates.
const OPEN_VSWITCH: &str = "openvswitch";

/// A part of the node's own network that depends on a link. `via` names the link above it that has the part.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum NodeUse {
    DefaultRoute {
        via: Option<String>,
    },
    Address {
        address: IpAddr,
        via: Option<String>,
    },
    /// The addresses and routes are on links of Open vSwitch that report no port below them.
    OpenVswitch {
        master: String,
    },
}

impl fmt::Display for NodeUse {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let via = match self {
            Self::DefaultRoute { via } => {
                f.write_str("the node's default route")?;
                via
            }
            Self::Address { address, via } => {
                write!(f, "the node's address {address}")?;
                via
            }
            Self::OpenVswitch { master } => return write!(f, "Open vSwitch ({master})"),
        };
        via.iter().try_for_each(|link| write!(f, " through {link}"))
    }
}

/// The first use of `link`, one of `all`: a default route or, with `addresses`, an address of global scope.
pub(super) fn node_use(
    view: &mut dyn View,
    all: &[Link],
    link: &Link,
    addresses: bool,
) -> Result<Option<NodeUse>, Error> {
    for over in over(all, link) {
        let via = (over.index != link.index).then(|| over.name.clone());
        if via.is_some() && over.kind.as_deref() == Some(OPEN_VSWITCH) {
            let master = over.name.clone();
            return Ok(Some(NodeUse::OpenVswitch { master }));
        }
        let routes = view
            .routes(over.index)
            .step(|| format!("list the routes of {}", over.name))?;
        let is_default = |table: Option<u32>| table.is_none_or(|table| table == TABLE_MAIN);
        if routes.iter().any(|r| r.dst.prefix() == 0 && is_default(r.table)) {
            return Ok(Some(NodeUse::DefaultRoute { via }));
        }
        if !addresses {
            continue;
        }
        let of_link = view
            .addresses(over.index)
            .step(|| format!("list the addresses of {}", over.name))?;
        if let Some(global) = of_link.iter().find(|address| address.scope == 0) {
            let address = global.address.ip();
            return Ok(Some(NodeUse::Address { address, via }));
        }
    }
    Ok(None)
}

/// `link` and every link of `all` above it: its children, such as a VLAN, and the bridge, bond or VRF that it is a port of.
fn over<'l>(all: &'l [Link], link: &'l Link) -> Vec<&'l Link> {
    let mut stack = vec![link];
    let mut seen = 0;
    while let Some(below) = stack.get(seen).copied() {
        let is_child = |link: &Link| link.parent == Some(below.index) && link.parent_netnsid.is_none();
        let is_above = |link: &Link| is_child(link) || below.master == Some(link.index);
        let on_it = all.iter().filter(|link| is_above(link) && !mark::is_ours(link));
        let new: Vec<&Link> = on_it
            .filter(|link| stack.iter().all(|known| known.index != link.index))
            .collect();
        stack.extend(new);
        seen += 1;
    }
    stack
}

/// Fails if the node's own network depends on `link`, a link of the host that is to get a macvlan child in mode passthru.
///
/// Source: `drivers/net/macvlan.c`. The kernel passes every unicast frame of `link` to such a child
/// (`macvlan_handle_frame`). A pod that sets the address of the child changes the address of `link`
/// (`macvlan_set_mac_address`), which a VLAN on `link` has too.
///
/// # Errors
/// [`Error::Occupied`], or the kernel refuses a request.
pub(crate) fn require_unused(kernel: &mut dyn Kernel, link: &Link) -> Result<(), Error> {
    let all = links(kernel, Side::Host)?;
    match node_use(&mut OfHost(kernel), &all, link, true)? {
        None => Ok(()),
        Some(used) => Err(Error::Occupied {
            master: link.name.clone(),
            child: "a macvlan child in mode passthru",
            reason: format!("it carries {used}, and such a child takes the frames of its parent"),
            remedy: "name another master, or use another macvlan mode",
        }),
    }
}
