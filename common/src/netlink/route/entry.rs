// SPDX-License-Identifier: Apache-2.0
use super::super::error::Error;
use super::super::socket::Socket;
use super::Route;
use super::address::{Added, family};
use ipnetwork::IpNetwork;
use netlink_packet_core::{NLM_F_APPEND, NLM_F_CREATE};
use netlink_packet_route::route::{
    RouteAddress, RouteAttribute, RouteFlags, RouteHeader, RouteMessage, RouteMetric, RouteNextHopFlags,
    RouteProtocol, RouteScope, RouteType, RouteVia,
};
use netlink_packet_route::{AddressFamily, RouteNetlinkMessage as Message};
use nix::errno::Errno;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// `RT_TABLE_MAIN` of `include/uapi/linux/rtnetlink.h`.
pub const TABLE_MAIN: u32 = 254;

/// A unicast route through one link (`RTM_NEWROUTE`).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RouteEntry {
    /// Destination; bits beyond the prefix must be zero.
    pub dst: IpNetwork,
    /// The next hop; `None` reaches `dst` directly. May be IPv6 for an IPv4 `dst` (RFC 5549).
    pub gateway: Option<IpAddr>,
    /// Index of the link.
    pub index: u32,
    /// MTU in bytes of packets on this route; `None` is the link's.
    pub mtu: Option<u32>,
    /// Largest TCP segment to announce, in bytes.
    pub advmss: Option<u32>,
    /// Lower wins; `None` is 0 for IPv4 and 1024 for IPv6.
    pub priority: Option<u32>,
    /// Routing table; `None` is [`TABLE_MAIN`].
    pub table: Option<u32>,
    /// `RT_SCOPE_*`; `None` is link (253) without a gateway and global (0) with one. IPv6 has no scopes.
    pub scope: Option<u8>,
    /// The gateway counts as a neighbour although no address of the link covers it.
    pub onlink: bool,
}

impl RouteEntry {
    /// A route to `dst` over the link `index`. The kernel chooses everything else.
    pub fn new(dst: IpNetwork, index: u32) -> Self {
        Self {
            dst,
            gateway: None,
            index,
            mtu: None,
            advmss: None,
            priority: None,
            table: None,
            scope: None,
            onlink: false,
        }
    }
}

impl Socket<Route> {
    /// Adds a route.
    ///
    /// A route to the same destination over another gateway is added beside it. IPv4 tries the routes in
    /// order, IPv6 spreads flows over them.
    ///
    /// # Errors
    /// `ENETUNREACH` or `EHOSTUNREACH`: the gateway is not a neighbour (set `onlink`, or add a route to it
    /// first). `ENETDOWN`: the link is down. `EINVAL`: bits beyond the prefix are set.
    pub fn add_route(&mut self, route: &RouteEntry) -> Result<Added, Error> {
        // NLM_F_APPEND instead of NLM_F_EXCL: the kernel then returns EEXIST only for a route that is equal
        // in every field.
        Added::from_answer(self.change(Message::NewRoute(encode(route)), NLM_F_CREATE | NLM_F_APPEND))
    }

    /// The unicast routes through the link `index` in every table, IPv4 first.
    ///
    /// The local, broadcast and multicast routes of the link's own addresses are left out. A missing link has none: it
    /// may end after its index was read.
    pub fn routes(&mut self, index: u32) -> Result<Vec<RouteEntry>, Error> {
        let mut routes = Vec::new();
        for family in [AddressFamily::Inet, AddressFamily::Inet6] {
            let request = || {
                let mut message = RouteMessage::default();
                message.header.address_family = family;
                message.attributes.push(RouteAttribute::Oif(index));
                Message::GetRoute(message)
            };
            let answers = match self.dump(request) {
                Err(e) if e.is(Errno::ENODEV) => return Ok(Vec::new()),
                answers => answers?,
            };
            for message in answers {
                match message {
                    // A kernel without IPv6 answers a request for IPv6 routes with the routes of all
                    // families.
                    Message::NewRoute(route) if route.header.address_family == family => {
                        decode(&route, index, &mut routes);
                    }
                    _ => {}
                }
            }
        }
        Ok(routes)
    }
}

fn encode(route: &RouteEntry) -> RouteMessage {
    let v4 = route.dst.is_ipv4();
    let table = route.table.unwrap_or(TABLE_MAIN);
    let mut message = RouteMessage::default();
    message.header = RouteHeader {
        address_family: family(route.dst.ip()),
        destination_prefix_length: route.dst.prefix(),
        // A table number beyond one byte goes only into RTA_TABLE.
        table: u8::try_from(table).unwrap_or(RouteHeader::RT_TABLE_UNSPEC),
        protocol: RouteProtocol::Static,
        scope: match route.scope {
            Some(scope) => scope.into(),
            None if v4 && route.gateway.is_none() => RouteScope::Link,
            None => RouteScope::Universe,
        },
        kind: RouteType::Unicast,
        flags: if route.onlink {
            RouteFlags::Onlink
        } else {
            RouteFlags::empty()
        },
        ..RouteHeader::default()
    };
    let attributes = &mut message.attributes;
    attributes.push(RouteAttribute::Destination(route.dst.ip().into()));
    attributes.push(RouteAttribute::Oif(route.index));
    attributes.push(RouteAttribute::Table(table));
    attributes.extend(route.priority.map(RouteAttribute::Priority));
    attributes.extend(route.gateway.map(|gateway| match gateway {
        IpAddr::V6(via) if v4 => RouteAttribute::Via(RouteVia::Inet6(via)),
        gateway => RouteAttribute::Gateway(gateway.into()),
    }));
    let metrics = route
        .mtu
        .map(RouteMetric::Mtu)
        .into_iter()
        .chain(route.advmss.map(RouteMetric::Advmss));
    let metrics: Vec<RouteMetric> = metrics.collect();
    if !metrics.is_empty() {
        attributes.push(RouteAttribute::Metrics(metrics));
    }
    message
}

/// Appends the hops of one answer that use the link `index`. A route over several links has a list of hops.
pub(super) fn decode(message: &RouteMessage, index: u32, routes: &mut Vec<RouteEntry>) {
    let header = &message.header;
    let any: IpAddr = match header.address_family {
        AddressFamily::Inet => Ipv4Addr::UNSPECIFIED.into(),
        _ => Ipv6Addr::UNSPECIFIED.into(),
    };
    if header.kind != RouteType::Unicast {
        return;
    }
    let Ok(dst) = IpNetwork::new(
        destination(message).unwrap_or(any),
        header.destination_prefix_length,
    ) else {
        return;
    };
    let mut route = RouteEntry::new(dst, 0);
    route.table = Some(header.table.into());
    route.scope = Some(header.scope.into());
    let mut hops = Vec::new();
    for attribute in &message.attributes {
        match attribute {
            RouteAttribute::Oif(oif) => route.index = *oif,
            RouteAttribute::Table(table) => route.table = Some(*table),
            RouteAttribute::Priority(priority) => route.priority = Some(*priority),
            RouteAttribute::Metrics(metrics) => read_metrics(metrics, &mut route),
            RouteAttribute::MultiPath(list) => hops.clone_from(list),
            _ => {}
        }
    }
    if hops.is_empty() {
        route.gateway = gateway(&message.attributes);
        route.onlink = header.flags.contains(RouteFlags::Onlink);
        routes.extend((route.index == index).then_some(route));
        return;
    }
    for hop in hops.iter().filter(|hop| hop.interface_index == index) {
        let mut route = route.clone();
        route.index = index;
        route.gateway = gateway(&hop.attributes);
        route.onlink = hop.flags.contains(RouteNextHopFlags::Onlink);
        routes.push(route);
    }
}

pub(super) fn destination(message: &RouteMessage) -> Option<IpAddr> {
    message.attributes.iter().find_map(|attribute| match attribute {
        RouteAttribute::Destination(address) => ip(address),
        _ => None,
    })
}

/// The preferred source.
pub(super) fn source(message: &RouteMessage) -> Option<IpAddr> {
    message.attributes.iter().find_map(|attribute| match attribute {
        RouteAttribute::PrefSource(address) => ip(address),
        _ => None,
    })
}

pub(super) fn gateway(attributes: &[RouteAttribute]) -> Option<IpAddr> {
    attributes.iter().find_map(|attribute| match attribute {
        RouteAttribute::Gateway(address) => ip(address),
        RouteAttribute::Via(RouteVia::Inet(via)) => Some((*via).into()),
        RouteAttribute::Via(RouteVia::Inet6(via)) => Some((*via).into()),
        _ => None,
    })
}

fn ip(address: &RouteAddress) -> Option<IpAddr> {
    match address {
        RouteAddress::Inet(v4) => Some((*v4).into()),
        RouteAddress::Inet6(v6) => Some((*v6).into()),
        _ => None,
    }
}

fn read_metrics(metrics: &[RouteMetric], route: &mut RouteEntry) {
    for metric in metrics {
        match metric {
            RouteMetric::Mtu(mtu) => route.mtu = Some(*mtu),
            RouteMetric::Advmss(advmss) => route.advmss = Some(*advmss),
            _ => {}
        }
    }
}
