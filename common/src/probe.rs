// SPDX-License-Identifier: Apache-2.0
//! Asks the neighbours on a link whether another host uses an address.
//!
//! Invariant: no frame of a probe names the address as the sender's own, so a probe changes no neighbour's cache
//! (RFC 5227 § 2.1.1 for IPv4, RFC 4862 § 5.4.2 for IPv6).
//!
//! A silent network proves nothing: an owner that is down, or that drops ARP, does not answer. The IPAM plugin makes
//! addresses unique; a probe turns an error of that into a message instead of a broken connection.

mod wire;

use crate::netlink::{HwAddress, Link};
use crate::packet::PacketSocket;
use std::io;
use std::net::IpAddr;
use std::time::{Duration, Instant};

pub use wire::{claim, questions};

/// How often a probe asks. More than once, because an `IPoIB` link joins a multicast group when it first sends to the
/// group, and because the fabric may drop a datagram.
const TIMES: u32 = 3;

/// How long a probe waits after each question. A probe without an answer takes [`TIMES`] times as long.
const PAUSE: Duration = Duration::from_millis(100);

/// Another host that uses an address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Claim {
    /// The address.
    pub address: IpAddr,
    /// The hardware address that the host answered with. A neighbour advertisement may come without one.
    pub hardware: Option<HwAddress>,
}

/// Asks whether another host on `link` uses one of `addresses`; returns the first that answers, or `None` after 300 ms.
///
/// Call it inside [`Netns::run`](crate::netns::Netns::run) of the link's namespace, on a link that has carrier and none
/// of the addresses. A link without neighbours (a loopback, a tunnel) is not asked.
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
