// SPDX-License-Identifier: Apache-2.0
//! What policy routing asks of the kernel.

use super::{Namespaces, Side};
use common::netlink::{Added, Error, Rule};
use std::fs;
use std::io;

/// `rp_filter` 2 takes a packet whose source is reachable over any link: the answer to it goes by a rule, but what a
/// neighbouring rail sends may be routed over another link. `arp_ignore` 1 answers for an address only on the link that
/// has it, and `arp_announce` 2 asks with the address of the link that asks (`Documentation/networking/ip-sysctl.rst`);
/// of each the kernel takes the larger of this and `conf/all`.
pub const RAIL_SETTINGS: [(&str, &str); 3] = [("rp_filter", "2"), ("arp_ignore", "1"), ("arp_announce", "2")];

/// Rules of the pod's namespace, and how its links answer.
pub trait PolicyRouting {
    /// The rules that look at nothing but the source.
    fn rules(&mut self) -> Result<Vec<Rule>, Error>;
    /// Adds a rule.
    fn add_rule(&mut self, rule: &Rule) -> Result<Added, Error>;
    /// Deletes a rule; false if it was not there.
    fn delete_rule(&mut self, rule: &Rule) -> Result<bool, Error>;
    /// Makes a link answer for its own IPv4 addresses and for no other's: [`RAIL_SETTINGS`].
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
