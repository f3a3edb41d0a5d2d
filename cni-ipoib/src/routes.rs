// SPDX-License-Identifier: Apache-2.0
//! The routes of a result as the kernel has them. Pure.

use common::cni::{self, IpConfig};
use common::netlink::{RouteEntry, TABLE_MAIN};
use ipnetwork::IpNetwork;
use std::net::IpAddr;

/// `RT_SCOPE_LINK` of `include/uapi/linux/rtnetlink.h`: from this scope on, a route has no next hop.
const SCOPE_LINK: u8 = 253;

/// Converts a route of the result. Without a next hop it uses the gateway of an address of its family, as the
/// reference plugins do, unless its scope excludes a next hop. A next hop outside every subnet of the
/// interface is marked as on-link, which a /32 needs.
pub(crate) fn route_entry(index: u32, route: &cni::Route, ips: &[IpConfig]) -> RouteEntry {
    let family = |ip: &&IpConfig| ip.address.is_ipv4() == route.dst.is_ipv4();
    let direct = route.scope.is_some_and(|scope| scope >= SCOPE_LINK);
    let of_family = || ips.iter().filter(family).find_map(|ip| ip.gateway);
    let gateway = route.gw.or_else(|| if direct { None } else { of_family() });
    let reachable = |gw: IpAddr| ips.iter().any(|ip| ip.address.contains(gw)) || is_link_local(gw);
    RouteEntry {
        dst: IpNetwork::new(route.dst.network(), route.dst.prefix()).unwrap_or(route.dst),
        gateway,
        index,
        mtu: route.mtu,
        advmss: route.advmss,
        priority: route.priority,
        table: route.table,
        scope: route.scope,
        onlink: gateway.is_some_and(|gw| !reachable(gw)),
    }
}

fn is_link_local(address: IpAddr) -> bool {
    matches!(address, IpAddr::V6(v6) if v6.is_unicast_link_local())
}

/// Whether both have the same destination, next hop and table. Other properties may have been tuned.
pub(crate) fn leads_alike(is: &RouteEntry, want: &RouteEntry) -> bool {
    let table = |entry: &RouteEntry| entry.table.unwrap_or(TABLE_MAIN);
    is.dst == want.dst && is.gateway == want.gateway && table(is) == table(want)
}
