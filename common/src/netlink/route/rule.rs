// SPDX-License-Identifier: Apache-2.0
use super::super::error::Error;
use super::super::socket::Socket;
use super::Route;
use super::address::{Added, family};
use ipnetwork::IpNetwork;
use netlink_packet_core::{NLM_F_CREATE, NLM_F_EXCL};
use netlink_packet_route::route::{RouteHeader, RouteProtocol};
use netlink_packet_route::rule::{RuleAction, RuleAttribute, RuleFlags, RuleMessage};
use netlink_packet_route::{AddressFamily, RouteNetlinkMessage as Message};
use nix::errno::Errno;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// A rule that selects a routing table by source address (`RTM_NEWRULE`, `ip rule`).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rule {
    /// The source addresses; a prefix length of 0 matches every source.
    pub from: IpNetwork,
    /// The routing table. If no route in it matches, the kernel tries the next rule.
    pub table: u32,
    /// Lower is tried first. The kernel's own rules have 0 (local), 32766 (main) and 32767 (default).
    pub priority: u32,
}

impl Socket<Route> {
    /// Adds a rule.
    ///
    /// # Errors
    /// `EAFNOSUPPORT` or `EOPNOTSUPP`: the kernel has no policy routing for this family (`IP_MULTIPLE_TABLES`).
    pub fn add_rule(&mut self, rule: &Rule) -> Result<Added, Error> {
        let mut message = encode(rule);
        message
            .attributes
            .push(RuleAttribute::Protocol(RouteProtocol::Static));
        Added::from_answer(self.change(Message::NewRule(message), NLM_F_CREATE | NLM_F_EXCL))
    }

    /// Deletes a rule. Returns `false` if it does not exist.
    pub fn delete_rule(&mut self, rule: &Rule) -> Result<bool, Error> {
        match self.change(Message::DelRule(encode(rule)), 0) {
            Ok(()) => Ok(true),
            Err(e) if e.is(Errno::ENOENT) => Ok(false),
            Err(e) => Err(e),
        }
    }

    /// The rules of both families that match by source only, in the kernel's order. Empty on a kernel without
    /// policy routing.
    pub fn rules(&mut self) -> Result<Vec<Rule>, Error> {
        // The request names no family, so a family that the kernel lacks is not an error.
        let answers = match self.dump(|| Message::GetRule(RuleMessage::default())) {
            Err(e) if e.is(Errno::EOPNOTSUPP) || e.is(Errno::EAFNOSUPPORT) => return Ok(Vec::new()),
            answers => answers?,
        };
        let rules = answers.into_iter().filter_map(|message| match message {
            Message::NewRule(rule) => decode(&rule),
            _ => None,
        });
        Ok(rules.collect())
    }
}

fn encode(rule: &Rule) -> RuleMessage {
    let mut message = RuleMessage::default();
    message.header.family = family(rule.from.ip());
    message.header.src_len = rule.from.prefix();
    message.header.action = RuleAction::ToTable;
    // A table number beyond one byte goes only into FRA_TABLE.
    message.header.table = u8::try_from(rule.table).unwrap_or(RouteHeader::RT_TABLE_UNSPEC);
    if rule.from.prefix() > 0 {
        message.attributes.push(RuleAttribute::Source(rule.from.ip()));
    }
    message.attributes.push(RuleAttribute::Table(rule.table));
    message.attributes.push(RuleAttribute::Priority(rule.priority));
    message
}

pub(super) fn decode(message: &RuleMessage) -> Option<Rule> {
    let header = &message.header;
    let mut source: IpAddr = match header.family {
        AddressFamily::Inet => Ipv4Addr::UNSPECIFIED.into(),
        AddressFamily::Inet6 => Ipv6Addr::UNSPECIFIED.into(),
        // Multicast routing has its own rules.
        _ => return None,
    };
    let plain = header.action == RuleAction::ToTable
        && (header.dst_len, header.tos) == (0, 0)
        && !header.flags.contains(RuleFlags::Invert);
    if !plain {
        return None;
    }
    let (mut table, mut priority) = (u32::from(header.table), 0);
    for attribute in &message.attributes {
        match attribute {
            RuleAttribute::Source(ip) => source = *ip,
            RuleAttribute::Table(number) => table = *number,
            RuleAttribute::Priority(number) => priority = *number,
            // The rule's creator, and limits that every answer contains without effect.
            RuleAttribute::Protocol(_)
            | RuleAttribute::SuppressPrefixLen(u32::MAX)
            | RuleAttribute::SuppressIfGroup(u32::MAX)
            | RuleAttribute::L3MDev(false)
            | RuleAttribute::FwMark(0) => {}
            _ => return None,
        }
    }
    Some(Rule {
        from: IpNetwork::new(source, header.src_len).ok()?,
        table,
        priority,
    })
}
