// SPDX-License-Identifier: Apache-2.0
//! Adds the addresses and routes of the IPAM plugin to the link.

use crate::error::{Error, Step};
use crate::kernel::{Kernel, Side};
use crate::policy;
use crate::routes::route_entry;
use common::cni::{CniResult, IpConfig};
use common::netlink::{Added, Ipv4Settings, Link, LinkChange, RouteEntry, TABLE_MAIN};

/// The metric of an IPv6 default route that names none; the kernel's own default is 1024 (`IP6_RT_PRIO_USER`).
const SECOND_DEFAULT: u32 = 2048;

/// Prepares the link for its addresses, before it comes up: the kernel then announces them. With
/// `policy_routing` the link also gets [`policy::SETTINGS`].
pub(super) fn prepare(
    kernel: &mut dyn Kernel,
    link: &Link,
    ips: &[IpConfig],
    policy_routing: bool,
) -> Result<(), Error> {
    if ips.iter().any(|ip| ip.address.is_ipv4()) {
        let settings = if policy_routing {
            policy::SETTINGS
        } else {
            Ipv4Settings::default()
        };
        let change = LinkChange {
            ipv4: Some(Ipv4Settings {
                arp_notify: 1,
                ..settings
            }),
            ..LinkChange::default()
        };
        let step = || format!("change the IPv4 settings of {}", link.name);
        kernel.change_link(Side::Pod, link.index, &change).step(step)?;
    }
    if !ips.iter().any(|ip| ip.address.is_ipv6()) {
        return Ok(());
    }
    kernel.enable_ipv6(&link.name).map_err(|source| Error::Io {
        what: "enable IPv6 in",
        path: format!("/proc/sys/net/ipv6/conf/{}/disable_ipv6", link.name).into(),
        remedy: "the node's kernel must have IPv6 and the interface an MTU of at least 1280 bytes, or the IPAM plugin give IPv4 addresses only",
        source,
    })
}

/// Adds these addresses to the link.
pub(super) fn add_addresses<'i>(
    kernel: &mut dyn Kernel,
    link: &Link,
    ips: impl Iterator<Item = &'i IpConfig>,
) -> Result<(), Error> {
    for ip in ips {
        let added = kernel.add_address(link.index, ip.address);
        if added.step(|| format!("give {} to {}", ip.address, link.name))? == Added::Present {
            tracing::debug!(address = %ip.address, "address exists already");
        }
    }
    Ok(())
}

/// Adds the routes. The link must be up.
pub(super) fn route(kernel: &mut dyn Kernel, link: &Link, ipam: &CniResult) -> Result<(), Error> {
    for route in &ipam.routes {
        let entry = second_default(route_entry(link.index, route, &ipam.ips));
        let step = || {
            let via = entry.gateway.map(|gw| format!(" via {gw}")).unwrap_or_default();
            format!("add the route to {}{via} on {}", route.dst, link.name)
        };
        if kernel.add_route(&entry).step(step)? == Added::Present {
            tracing::debug!(route = %route.dst, "route exists already");
        }
    }
    Ok(())
}

/// Gives an IPv6 default route a lower priority than one that the pod already has. The kernel merges two with
/// the same metric into a multipath route (`fib6_add_rt2node` of `net/ipv6/ip6_fib.c`), and half of the pod's
/// connections would leave over this interface. IPv4 needs no such metric: of two equal routes the kernel
/// uses the first.
fn second_default(mut entry: RouteEntry) -> RouteEntry {
    let in_main = entry.table.is_none_or(|table| table == TABLE_MAIN);
    if in_main && entry.dst.is_ipv6() && entry.dst.prefix() == 0 {
        entry.priority.get_or_insert(SECOND_DEFAULT);
    }
    entry
}
