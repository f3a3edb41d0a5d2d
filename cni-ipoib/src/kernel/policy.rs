// SPDX-License-Identifier: Apache-2.0
//! Requests to the kernel for policy routing.

use super::{Namespaces, Side};
use common::netlink::{Added, Error, Rule};
use std::fs;
use std::io;

/// The sysctls of an interface with policy routing.
///
/// `rp_filter` 2 accepts a packet whose source is reachable over any link: the answer is routed by a rule,
/// but packets of a neighbouring rail may arrive over another link. `arp_ignore` 1 answers for an address
/// only on the link that has it, and `arp_announce` 2 asks with the address of the asking link
/// (`Documentation/networking/ip-sysctl.rst`). The kernel uses the larger of each value and that of
/// `conf/all`.
pub const RAIL_SETTINGS: [(&str, &str); 3] = [("rp_filter", "2"), ("arp_ignore", "1"), ("arp_announce", "2")];

/// The rules of the pod's namespace, and the ARP behaviour of its links.
pub trait PolicyRouting {
    /// The rules that match by source only.
    fn rules(&mut self) -> Result<Vec<Rule>, Error>;
    /// Adds a rule.
    fn add_rule(&mut self, rule: &Rule) -> Result<Added, Error>;
    /// Deletes a rule. Returns `false` if it does not exist.
    fn delete_rule(&mut self, rule: &Rule) -> Result<bool, Error>;
    /// Makes a link answer only for its own IPv4 addresses: [`RAIL_SETTINGS`].
    fn separate(&mut self, ifname: &str) -> io::Result<()>;
}

impl PolicyRouting for Namespaces<'_> {
    fn rules(&mut self) -> Result<Vec<Rule>, Error> {
        self.on(Side::Pod)?.rules()
    }

    fn add_rule(&mut self, rule: &Rule) -> Result<Added, Error> {
        self.on(Side::Pod)?.add_rule(rule)
    }

    fn delete_rule(&mut self, rule: &Rule) -> Result<bool, Error> {
        self.on(Side::Pod)?.delete_rule(rule)
    }

    fn separate(&mut self, ifname: &str) -> io::Result<()> {
        // /proc/sys/net shows the namespace of the thread that opens it.
        self.pod()?.1.run(|| {
            RAIL_SETTINGS.iter().try_for_each(|(key, value)| {
                fs::write(format!("/proc/sys/net/ipv4/conf/{ifname}/{key}"), value)
            })
        })?
    }
}
