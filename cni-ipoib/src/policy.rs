// SPDX-License-Identifier: Apache-2.0
//! Policy routing: a pod with several interfaces answers on the interface that received the request.
//!
//! Invariant: each attachment has its own rules and table, numbered by its mark, so DEL finds them without a
//! record. Packets without a route in the table use the main table. The table has a default route only if the
//! IPAM plugin's result has one.
//!
//! Without policy routing the kernel uses the first link of the subnet for all packets, whatever their source
//! address.

use crate::error::{Error, Step};
use crate::kernel::Kernel;
use crate::mark::Mark;
use crate::routes::{leads_alike, route_entry};
use common::cni::{self, IpConfig};
use common::netlink::{Added, Ipv4Settings, Link, RouteEntry, Rule};
use ipnetwork::IpNetwork;

/// Before the main table (32766), and after every rule that a user adds without a priority, which the kernel
/// puts before all others except the local one.
pub const PRIORITY: u32 = 32000;

/// The first table number: far from the kernel's own (253 to 255) and from the small numbers of people and
/// VRFs.
const FIRST_TABLE: u32 = 0x1000_0000;

/// The IPv4 settings of a link with policy routing.
///
/// `rp_filter` 2 accepts a packet whose source is reachable over any link: the answer is routed by a rule,
/// but packets of a neighbouring rail may arrive over another link. `arp_ignore` 1 answers for an address
/// only on the link that has it, and `arp_announce` 2 asks with the address of the asking link
/// (`Documentation/networking/ip-sysctl.rst`). The kernel uses the larger of each value and that of
/// `conf/all`. IPv6 links answer only for their own addresses by themselves (RFC 4861 § 7.2.3).
pub(crate) const SETTINGS: Ipv4Settings = Ipv4Settings {
    arp_notify: 0,
    arp_announce: 2,
    arp_ignore: 1,
    rp_filter: 2,
};

/// The rules and routes of one attachment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Policy {
    /// One for each address.
    pub rules: Vec<Rule>,
    /// The routes of its table.
    pub routes: Vec<RouteEntry>,
}

/// The table number of the attachment with this mark: stable, and one of 2^28.
pub fn table(mark: &Mark) -> u32 {
    FIRST_TABLE | (mark.group & (FIRST_TABLE - 1))
}

/// The policy of the addresses `ips` of the link `index` and their `routes` in `table`.
pub fn policy(index: u32, table: u32, ips: &[IpConfig], routes: &[cni::Route]) -> Policy {
    let rules = ips.iter().map(|ip| Rule {
        from: IpNetwork::from(ip.address.ip()),
        table,
        priority: PRIORITY,
    });
    let subnets = ips.iter().filter_map(|ip| {
        // An address that is alone in its subnet has no neighbours.
        let alone = ip.address.prefix() == IpNetwork::from(ip.address.ip()).prefix();
        let subnet = IpNetwork::new(ip.address.network(), ip.address.prefix()).ok()?;
        (!alone).then(|| RouteEntry::new(subnet, index))
    });
    // A route that names its table goes only there.
    let free = routes.iter().filter(|route| route.table.is_none());
    let given = free.map(|route| route_entry(index, route, ips));
    let mut in_table: Vec<RouteEntry> = Vec::new();
    for route in subnets.chain(given) {
        let route = RouteEntry {
            table: Some(table),
            ..route
        };
        if !in_table.contains(&route) {
            in_table.push(route);
        }
    }
    Policy {
        rules: rules.collect(),
        routes: in_table,
    }
}

/// Adds the table and the rules of a link that is up. The kernel deletes the routes with the link, but not
/// the rules: [`remove`] deletes those.
///
/// # Errors
/// The kernel refused a request. What was added before stays.
pub(crate) fn apply(kernel: &mut dyn Kernel, link: &Link, policy: &Policy) -> Result<(), Error> {
    for route in &policy.routes {
        let table = route.table.unwrap_or_default();
        let added = kernel
            .add_route(route)
            .step(|| format!("add the route to {} in table {table} on {}", route.dst, link.name))?;
        log(added, &route.dst);
    }
    for rule in &policy.rules {
        let added = kernel.add_rule(rule).step(|| {
            format!(
                "add the rule that routes packets from {} by table {} (policyRouting \"off\" adds no rule)",
                rule.from.ip(),
                rule.table
            )
        })?;
        log(added, &rule.from);
    }
    Ok(())
}

fn log(added: Added, what: &IpNetwork) {
    if added == Added::Present {
        tracing::debug!(%what, "rule or route exists already");
    }
}

/// Deletes the rules in the pod that select `table`.
///
/// # Errors
/// The kernel refused a request. Rules deleted before stay deleted.
pub(crate) fn remove(kernel: &mut dyn Kernel, table: u32) -> Result<(), Error> {
    let step = || format!("delete the routing rules to table {table} in the pod");
    let rules = kernel.rules().step(step)?;
    for rule in rules.iter().filter(|rule| rule.table == table) {
        kernel.delete_rule(rule).step(step)?;
    }
    Ok(())
}

/// Reports the missing parts of the policy.
pub(crate) fn compare(
    kernel: &mut dyn Kernel,
    policy: &Policy,
    present: &[RouteEntry],
    findings: &mut Vec<String>,
) -> Result<(), Error> {
    let rules = kernel
        .rules()
        .step(|| "list the routing rules in the pod".to_owned())?;
    for rule in policy.rules.iter().filter(|rule| !rules.contains(rule)) {
        findings.push(format!(
            "the rule from {} to table {} is gone",
            rule.from.ip(),
            rule.table
        ));
    }
    for route in &policy.routes {
        if !present.iter().any(|is| leads_alike(is, route)) {
            let table = route.table.unwrap_or_default();
            findings.push(format!("the route to {} in table {table} is gone", route.dst));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests;
