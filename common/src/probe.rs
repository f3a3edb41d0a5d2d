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

use crate::netlink::{HwAddress, Link};
use crate::packet::PacketSocket;
use std::io;
use std::net::IpAddr;
use std::time::{Duration, Instant};

pub use wire::{claim, questions};

/// How many times a probe asks. One datagram is not enough: an `IPoIB` link joins a multicast group when it
/// first sends to the group, and the fabric may drop a datagram.
const TIMES: u32 = 3;

/// How long a probe waits after each question. A probe without an answer takes [`TIMES`] times this long.
const PAUSE: Duration = Duration::from_millis(100);

/// Another host that uses an address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Claim {
    /// The address.
    pub address: IpAddr,
    /// The hardware address in the host's answer. A neighbour advertisement may come without one.
    pub hardware: Option<HwAddress>,
}

/// Asks whether another host on `link` uses one of `addresses`. Returns the first that answers, or `None`
/// after 300 ms.
///
/// Call it inside [`Netns::run`](crate::netns::Netns::run) of the link's namespace. The link must have
/// carrier and none of the addresses. A link without neighbours (a loopback, a tunnel) returns `None` at
/// once.
///
/// # Errors
/// As [`PacketSocket::receiver`] and [`PacketSocket::send`].
pub fn probe(link: &Link, addresses: &[IpAddr]) -> io::Result<Option<Claim>> {
    let questions = questions(link, addresses);
    if questions.is_empty() {
        return Ok(None);
    }
    let socket = PacketSocket::receiver(link.index)?;
    for _ in 0..TIMES {
        questions.iter().try_for_each(|question| socket.send(question))?;
        let deadline = Instant::now() + PAUSE;
        while let Some(frame) = socket.receive(deadline)? {
            if let Some(claim) = claim(link, addresses, &frame) {
                return Ok(Some(claim));
            }
        }
    }
    Ok(None)
}

#[cfg(test)]
mod tests;
