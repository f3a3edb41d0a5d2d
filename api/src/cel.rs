// SPDX-License-Identifier: Apache-2.0
//! Validation rules in CEL for the API server, with Kubernetes' IP and CIDR functions (1.31 and newer).
//!
//! Those functions can test whether a network contains an address. They cannot compare two addresses or return the digits
//! of one, so the rules here parse the groups of an address as numbers. The API server refuses a rule whose cost it
//! cannot bound from the lengths in the schema. It has no bound for the parts of a split text, nor for a number converted
//! to text. Hence the rules use `charAt` and `indexOf` instead of splitting and joining.

use kube::core::{Message, Rule};

const DIGITS: &str = "'0123456789abcdef'";
const EIGHT: &str = "[0, 1, 2, 3, 4, 5, 6, 7]";

/// A rule with a fixed message.
pub(super) fn plain(holds: impl Into<String>, otherwise: &str) -> Rule {
    Rule::new(holds).message(otherwise)
}

/// A rule about one member. Its message is a CEL expression that returns text.
pub(super) fn about(member: &str, holds: impl Into<String>, otherwise: &str) -> Rule {
    Rule::new(holds)
        .message(Message::Expression(otherwise.to_owned()))
        .field_path(format!(".{member}"))
}

/// Whether `text` is an address in a spelling that the other rules can parse. IPv6 with an IPv4 suffix is not.
pub(super) fn address(text: &str) -> String {
    format!("isIP({text}) && !({text}.contains(':') && {text}.contains('.'))")
}

/// Whether `text`, which is a network, has no host bits. Kubernetes before 1.33 has no cost bound for `==` of two
/// networks and refuses such a rule. Hence the rule uses the network of one address.
pub(super) fn masked(text: &str) -> String {
    format!(
        "cidr({text}.substring(0, {text}.indexOf('/')) + ({text}.contains(':') ? '/128' : '/32')).containsIP(cidr({text}).masked().ip())"
    )
}

/// Whether the network `outer` contains the network `inner`. `containsCIDR` of Kubernetes 1.31.0 is true only for
/// networks that begin with the same address.
pub(super) fn contains(outer: &str, inner: &str) -> String {
    format!(
        "(cidr({outer}).containsIP(cidr({inner}).ip()) && cidr({outer}).prefixLength() <= cidr({inner}).prefixLength())"
    )
}

/// The groups of `text`, a part of an IPv6 address, as numbers; one zero if it is empty.
fn groups(text: &str) -> String {
    format!(
        "{text}.split(':', 8).map(g, [0, 1, 2, 3].map(k, k < size(g) ? {DIGITS}.indexOf(g.charAt(size(g) - 1 - k)) * [1, 16, 256, 4096][k] : 0).sum())"
    )
}

/// The address `text` as a list of numbers: four octets, or eight groups.
fn numbers(text: &str) -> String {
    let lower = format!("{text}.lowerAscii()");
    let left = groups(&format!("{lower}.substring(0, {text}.indexOf('::'))"));
    let right = groups(&format!("{lower}.substring({text}.indexOf('::') + 2)"));
    let filled = format!(
        "[[{left}, {right}]].map(h, {EIGHT}.map(i, i < size(h[0]) ? h[0][i] : i >= 8 - size(h[1]) ? h[1][i - 8 + size(h[1])] : 0))[0]"
    );
    let whole = groups(&lower);
    format!(
        "(!{text}.contains(':') ? {text}.split('.', 4).map(o, int(o)) : {text}.contains('::') ? {filled} : {whole})"
    )
}

/// Whether the address `one` comes before the address `other`, which is of its family.
pub(super) fn before(one: &str, other: &str) -> String {
    let (one, other) = (numbers(one), numbers(other));
    format!(
        "[[{one}, {other}]].exists(n, [{EIGHT}.filter(i, i < size(n[0]) && n[0][i] != n[1][i])].exists(d, size(d) > 0 && n[0][d[0]] < n[1][d[0]]))"
    )
}

/// Whether `name` contains the address `text` in hexadecimal digits, 8 or 32, followed by `tail` characters.
pub(super) fn spelled(name: &str, text: &str, tail: &str) -> String {
    let numbers = numbers(text);
    let digit = |width: u32, position: &str, from_end: u32| {
        format!(
            "{DIGITS}.indexOf({name}.charAt(size({name}) - {tail} - {from_end} + {width} * i + {position}))"
        )
    };
    let octet = format!("{} * 16 + {}", digit(2, "0", 8), digit(2, "1", 8));
    let group = format!(
        "[0, 1, 2, 3].map(k, {} * [4096, 256, 16, 1][k]).sum()",
        digit(4, "k", 32)
    );
    format!(
        "[{numbers}].all(n, size({name}) > {tail} + 8 * (size(n) == 4 ? 1 : 4) && {EIGHT}.all(i, i >= size(n) || (size(n) == 4 ? {octet} : {group}) == n[i]))"
    )
}

/// Whether the entry `e` is an address, a network or `first-last`, in order.
pub(super) fn entry(e: &str) -> String {
    let (first, last) = ends(e);
    format!(
        "({one} || (isCIDR({e}) && {masked}) || ({e}.contains('-') && {from} && {to} && ip({first}).family() == ip({last}).family() && !{inverted}))",
        one = address(e),
        masked = masked(e),
        from = address(&first),
        to = address(&last),
        inverted = before(&last, &first),
    )
}

/// Whether the entry `e`, which is one, lies in the network `subnet`, which is one.
pub(super) fn within(e: &str, subnet: &str) -> String {
    let (first, last) = ends(e);
    format!(
        "({e}.contains('-') ? cidr({subnet}).containsIP({first}) && cidr({subnet}).containsIP({last}) : {e}.contains('/') ? {inside} : cidr({subnet}).containsIP({e}))",
        inside = contains(subnet, e),
    )
}

fn ends(e: &str) -> (String, String) {
    (
        format!("{e}.substring(0, {e}.indexOf('-'))"),
        format!("{e}.substring({e}.indexOf('-') + 1)"),
    )
}
