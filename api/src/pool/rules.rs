// SPDX-License-Identifier: Apache-2.0
//! Validation rules of an `IPPool`, each with the message for its author.
//!
//! A rule that parses a network or an address passes if that text is malformed. Another rule reports malformed text, so
//! the author reads only one message.

use crate::cel::{about, address, before, contains, entry, masked, plain, within};
use kube::core::Rule;

pub(super) fn fallback_is_another() -> Rule {
    plain(
        "!has(self.spec.fallback) || (!(self.metadata.name in self.spec.fallback) && self.spec.fallback.all(f, self.spec.fallback.exists_one(g, g == f)))",
        "fallback names other pools, each once",
    )
    .field_path(".spec.fallback")
}

pub(super) fn unchanged(member: &str) -> Rule {
    plain(
        "self == oldSelf",
        &format!("{member} cannot be changed, since blocks of nodes depend on it; make a new pool"),
    )
}

pub(super) fn space_is_a_label() -> Rule {
    plain(
        "self.matches('^[a-z0-9]([-a-z0-9]*[a-z0-9])?$')",
        "addressSpace is made of lower-case letters, digits and -, beginning and ending with a letter or digit",
    )
}

pub(super) fn power_of_two(member: &str, shift: u32) -> Rule {
    let powers: Vec<String> = (0..=shift).map(|n| (1_u64 << n).to_string()).collect();
    plain(
        format!("self in [{}]", powers.join(", ")),
        &format!("{member} must be a power of two from 1 to {}", 1_u64 << shift),
    )
}

pub(super) fn warm_blocks_fit() -> Rule {
    plain(
        "self.maxBlocksPerNode == 0 || self.warmBlocks <= self.maxBlocksPerNode",
        "warmBlocks must be at most maxBlocksPerNode",
    )
    .field_path(".warmBlocks")
}

pub(super) fn subnet_is_a_network() -> Rule {
    about(
        "subnet",
        "isCIDR(self.subnet) && !(self.subnet.contains(':') && self.subnet.contains('.'))",
        "'subnet ' + self.subnet + ' is not a network such as 10.20.0.0/16 or fd00:20::/64'",
    )
}

pub(super) fn subnet_has_no_host_bits() -> Rule {
    about(
        "subnet",
        format!("!isCIDR(self.subnet) || {}", masked("self.subnet")),
        "'subnet ' + self.subnet + ' has host bits: write the first address of the network before the /'",
    )
}

pub(super) fn subnet_is_for_hosts() -> Rule {
    about(
        "subnet",
        format!(
            "!isCIDR(self.subnet) || (cidr(self.subnet).prefixLength() > 0 && !['127.0.0.0/8', '224.0.0.0/3', '0.0.0.0/8', 'ff00::/8', '::/127'].exists(n, {}))",
            contains("n", "self.subnet")
        ),
        "'subnet ' + self.subnet + ' has no addresses that a pod could have: it is all of the family, or loopback, multicast or reserved'",
    )
}

pub(super) fn limit_lies_in_subnet(member: &str) -> Rule {
    let valid = address(&format!("self.{member}"));
    about(
        member,
        format!(
            "!has(self.{member}) || !isCIDR(self.subnet) || ({valid} && cidr(self.subnet).containsIP(self.{member}))"
        ),
        &format!("'{member} ' + self.{member} + ' is not an address in subnet ' + self.subnet"),
    )
}

pub(super) fn limits_are_in_order() -> Rule {
    let inverted = before("self.end", "self.start");
    about(
        "end",
        format!(
            "!has(self.start) || !has(self.end) || !isIP(self.start) || !isIP(self.end) || ip(self.start).family() != ip(self.end).family() || !{inverted}"
        ),
        "'end ' + self.end + ' comes before start ' + self.start",
    )
}

pub(super) fn gateway_lies_in_subnet() -> Rule {
    let valid = address("self.gateway");
    about(
        "gateway",
        format!(
            "!has(self.gateway) || self.gateway == 'none' || !isCIDR(self.subnet) || ({valid} && cidr(self.subnet).containsIP(self.gateway))"
        ),
        "'gateway ' + self.gateway + ' is neither \"none\" nor an address in subnet ' + self.subnet",
    )
}

pub(super) fn exclusions_are_readable() -> Rule {
    readable("exclude")
}

pub(super) fn reserved_are_readable() -> Rule {
    readable("reserved")
}

/// A rule whose message names the wrong entry.
fn readable(member: &str) -> Rule {
    let entry = entry("e");
    about(
        member,
        format!("!has(self.{member}) || self.{member}.all(e, {entry})"),
        &format!(
            "'{member} has something that is not an address, a network without host bits, or first-last in order: ' + self.{member}.join(', ')"
        ),
    )
}

pub(super) fn exclusions_lie_in_subnet() -> Rule {
    let (entry, inside) = (entry("e"), within("e", "self.subnet"));
    about(
        "exclude",
        format!("!has(self.exclude) || !isCIDR(self.subnet) || self.exclude.all(e, !{entry} || {inside})"),
        "'exclude reaches outside subnet ' + self.subnet + ': ' + self.exclude.join(', ')",
    )
}

pub(super) fn reserved_lie_in_ranges() -> Rule {
    let (entry, inside) = (entry("e"), within("e", "r.subnet"));
    about(
        "reserved",
        format!(
            "!has(self.reserved) || self.ranges.exists(r, !isCIDR(r.subnet)) || self.reserved.all(e, !{entry} || self.ranges.exists(r, {inside}))"
        ),
        "'reserved reaches outside the subnets of the ranges: ' + self.reserved.join(', ')",
    )
}

/// Nodes do not allocate reserved addresses from their blocks, so these can follow a pod from node to node.
pub(super) fn sticky_needs_reserved() -> Rule {
    plain(
        "self.sticky != 'StatefulSet' || self.allocation == 'PerAddress' || (has(self.reserved) && size(self.reserved) > 0)",
        "addresses that stay with the pods of a StatefulSet are taken from reserved: list some there, or set allocation: PerAddress",
    )
    .field_path(".sticky")
}

/// Two ranges may share a subnet if their limits are apart; different subnets may not overlap.
pub(super) fn ranges_are_apart() -> Rule {
    let ends_before = |one: &str, other: &str| {
        let (end, start) = (format!("{one}.end"), format!("{other}.start"));
        let (valid_end, valid_start) = (address(&end), address(&start));
        format!(
            "has({end}) && has({start}) && {valid_end} && {valid_start} && ip({end}).family() == ip({start}).family() && {}",
            before(&end, &start)
        )
    };
    let (a_first, b_first) = (ends_before("a", "b"), ends_before("b", "a"));
    plain(
        format!(
            "self.ranges.exists(r, !isCIDR(r.subnet)) || self.ranges.all(a, size(self.ranges.filter(b, (cidr(a.subnet).containsIP(cidr(b.subnet).ip()) || cidr(b.subnet).containsIP(cidr(a.subnet).ip())) && !(a.subnet == b.subnet && (({a_first}) || ({b_first}))))) == 1)"
        ),
        "two ranges have addresses in common: ranges of one subnet each need start and end, and different subnets must be apart",
    )
    .field_path(".ranges")
}

pub(super) fn route_has_a_destination() -> Rule {
    about(
        "dst",
        format!("isCIDR(self.dst) && {}", masked("self.dst")),
        "'dst ' + self.dst + ' is not a network without host bits, such as 10.0.0.0/8'",
    )
}

pub(super) fn route_has_one_family() -> Rule {
    about(
        "gw",
        "!has(self.gw) || !isCIDR(self.dst) || (isIP(self.gw) && ip(self.gw).family() == cidr(self.dst).ip().family())",
        "'gw ' + self.gw + ' is not an address of the family of dst ' + self.dst",
    )
}
