// SPDX-License-Identifier: Apache-2.0
//! Asks the neighbours on a link whether another host uses an address.
//!
//! Invariant: no frame of a probe names the address as the sender's own, so a probe changes no neighbour's cache
//! (RFC 5227 § 2.1.1 for IPv4, RFC 4862 § 5.4.2 for IPv6).
//!
//! A silent network proves nothing: a host that is down, or that drops ARP, does not answer. The IPAM plugin
//! makes addresses unique. A probe reports a mistake there as an error at once, before it shows as a broken
//! connection.

mod wire;

use crate::netlink::{HwAddress, Link, LinkInfo, LinkLayer};
use crate::packet::PacketSocket;
use std::collections::BTreeSet;
use std::hash::{BuildHasher, RandomState};
use std::io;
use std::net::{IpAddr, Ipv6Addr, UdpSocket};
use std::time::{Duration, Instant};

pub use wire::{Nonce, Probe};

/// How long a probe waits for an answer after each of its questions. One question is not enough, because a network
/// may drop it.
const PAUSES: [Duration; 3] = [Duration::from_millis(100); 3];

/// [`PAUSES`] on `InfiniBand`, where the subnet administrator must respond before a question or an answer is sent. A new
/// port joins one multicast group after the other: those of its link-local address first, then that of an IPv6 address
/// in a question. The host that answers needs the path to the new port.
const INFINIBAND_PAUSES: [Duration; 3] = [
    Duration::from_millis(100),
    Duration::from_millis(300),
    Duration::from_millis(600),
];

/// Another host that uses an address, or probes for it at this moment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Claim {
    /// The address.
    pub address: IpAddr,
    /// The hardware address in the host's answer. A neighbour advertisement may come without one, and a
    /// solicitation of a host that probes for the address has none.
    pub hardware: Option<HwAddress>,
    /// Whether the host only probes for the address.
    pub probes: bool,
}

/// Asks whether another host on `link` uses one of `addresses`, or probes for it at this moment. Returns the first
/// that answers, or `None` after 300 ms, on `InfiniBand` after 1 s.
///
/// Call it inside [`Netns::run`](crate::netns::Netns::run) of the link's namespace. The link must have
/// carrier and none of the addresses. `replies` is a socket on the link of [`receiver_of_replies`]. A link
/// without neighbours (a loopback, a tunnel, an ipvlan child in L3 mode) returns `None` at once.
///
/// # Errors
/// As [`PacketSocket::arp_receiver`] and [`PacketSocket::send`].
pub fn probe(link: &Link, addresses: &[IpAddr], replies: Option<&PacketSocket>) -> io::Result<Option<Claim>> {
    let probe = Probe {
        link,
        addresses,
        nonce: nonce(),
    };
    let questions = probe.questions();
    if questions.is_empty() {
        tracing::warn!(link = %link.name, ?addresses, "addresses not probed: the link has no neighbours");
        return Ok(None);
    }
    let sockets = open_receivers(link.index, addresses)?;
    let _member = join_groups(link, addresses);
    let receivers: Vec<&PacketSocket> = sockets.iter().chain(replies).collect();
    let Some(sender) = receivers.first() else {
        return Ok(None);
    };
    let pauses = match link.layer {
        LinkLayer::Infiniband => INFINIBAND_PAUSES,
        _ => PAUSES,
    };
    for pause in pauses {
        questions.iter().try_for_each(|question| sender.send(question))?;
        let deadline = Instant::now() + pause;
        while let Some(frame) = PacketSocket::receive(&receivers, deadline)? {
            if let Some(claim) = probe.claim(&frame) {
                return Ok(Some(claim));
            }
        }
    }
    Ok(None)
}

/// Opens one receiver for each family of `addresses`, because the close of each takes milliseconds.
fn open_receivers(index: u32, addresses: &[IpAddr]) -> io::Result<Vec<PacketSocket>> {
    let mut sockets = Vec::new();
    if addresses.iter().any(IpAddr::is_ipv4) {
        sockets.push(PacketSocket::arp_receiver(index)?);
    }
    if addresses.iter().any(IpAddr::is_ipv6) {
        sockets.push(PacketSocket::ipv6_receiver(index)?);
    }
    Ok(sockets)
}

/// A random number: the standard library seeds its maps with bytes of the kernel, as an attacker must not know them.
fn nonce() -> Nonce {
    let [_, _, nonce @ ..] = RandomState::new().hash_one(()).to_be_bytes();
    nonce
}

/// Joins the groups to which another host sends its solicitations for one of `addresses`, for the life of the socket.
/// Only a member of the group receives them on a macvlan child and on `InfiniBand`. A probe that could not join still
/// finds every host that has an address.
fn join_groups(link: &Link, addresses: &[IpAddr]) -> Option<UdpSocket> {
    let groups: BTreeSet<Ipv6Addr> = addresses
        .iter()
        .filter_map(|address| match address {
            IpAddr::V4(_) => None,
            IpAddr::V6(v6) => Some(wire::solicited_node(*v6)),
        })
        .collect();
    if groups.is_empty() {
        return None;
    }
    let warn = |error: io::Error| tracing::warn!(link = %link.name, %error, "cannot join the group of a probed address: another probe of it at this moment stays unseen");
    let socket = UdpSocket::bind((Ipv6Addr::UNSPECIFIED, 0)).map_err(warn).ok()?;
    for group in &groups {
        let _ = socket.join_multicast_v6(group, link.index).map_err(warn);
    }
    Some(socket)
}

/// The index of the link that receives the replies to an ARP probe of `link`, if that is another link: the
/// parent of an ipvlan child.
///
/// A reply has the target 0.0.0.0, as the probe has this sender. ipvlan looks for the child with this
/// address, and leaves the reply to the parent (`ipvlan_handle_mode_l2` of
/// `drivers/net/ipvlan/ipvlan_core.c`). A neighbour advertisement goes to a multicast group, and every child
/// receives it.
pub fn receiver_of_replies(link: &Link) -> Option<u32> {
    match link.info {
        LinkInfo::Ipvlan { .. } => link.parent,
        _ => None,
    }
}

#[cfg(test)]
mod tests;
