// SPDX-License-Identifier: Apache-2.0
//! The frames of a probe and of its answers.

use super::Claim;
use crate::announce::frame::{
    ARP_REQUEST, ETH_P_IP, ICMPV6, Layer, NEIGHBOUR_ADVERTISEMENT, OPTION_UNIT, TARGET_LINK_LAYER_ADDRESS,
    arp, icmpv6,
};
use crate::netlink::{HwAddress, Link};
use crate::packet::Frame;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

const NEIGHBOUR_SOLICITATION: u8 = 135;
/// RFC 3971 § 5.3.2.
const NONCE: u8 = 14;

/// ARP: hardware type, protocol, two lengths, operation.
const ARP_HEADER: usize = 8;
const IPV6_HEADER: usize = 40;
/// Type, code, checksum, flags and target of a solicitation or an advertisement (RFC 4861 § 4.3, § 4.4).
const MESSAGE_HEADER: usize = 24;

/// The number in the solicitations of one probe (RFC 7527 § 4.1). Two probes have different ones.
pub type Nonce = [u8; 6];

/// One probe of some addresses on a link.
#[derive(Clone, Copy, Debug)]
pub struct Probe<'p> {
    /// The link.
    pub link: &'p Link,
    /// The addresses.
    pub addresses: &'p [IpAddr],
    /// Distinguishes the solicitations of this probe from those of another host.
    pub nonce: Nonce,
}

impl Probe<'_> {
    /// Builds the questions: for each IPv4 address an ARP probe, for each IPv6 address the neighbour solicitation
    /// of duplicate address detection. Empty if the link has no neighbours.
    pub fn questions(&self) -> Vec<Frame> {
        let Some(layer) = Layer::of(self.link) else {
            return Vec::new();
        };
        self.addresses
            .iter()
            .map(|address| match address {
                IpAddr::V4(v4) => arp(
                    &layer,
                    ARP_REQUEST,
                    (Ipv4Addr::UNSPECIFIED, *v4),
                    &vec![0; layer.own.len()],
                ),
                IpAddr::V6(v6) => solicitation(*v6, self.nonce, layer.broadcast),
            })
            .collect()
    }

    /// Returns the claim in a received frame if another host uses one of the addresses.
    ///
    /// An ARP packet is a claim if its sender has the address. A neighbour advertisement is a claim if its target is
    /// the address. An ARP probe or a solicitation of another host that probes for the address at this moment is a
    /// claim too. Every other frame, damaged or not, is `None`.
    pub fn claim(&self, frame: &[u8]) -> Option<Claim> {
        let claim = match frame.first()? >> 4 {
            6 => neighbour_claim(frame, self.nonce),
            _ => arp_claim(self.link, frame),
        }?;
        self.addresses.contains(&claim.address).then_some(claim)
    }
}

/// A neighbour solicitation from the unspecified address, which carries no hardware address (RFC 4861 § 4.3), and
/// has a nonce (RFC 7527 § 4.1).
fn solicitation(address: Ipv6Addr, nonce: Nonce, broadcast: &[u8]) -> Frame {
    let mut body = vec![NEIGHBOUR_SOLICITATION, 0, 0, 0, 0, 0, 0, 0];
    body.extend(address.octets());
    body.extend([NONCE, 1]);
    body.extend(nonce);
    icmpv6(Ipv6Addr::UNSPECIFIED, solicited_node(address), body, broadcast)
}

/// The multicast group of all hosts whose address has the same last 24 bits as `address` (RFC 4291 § 2.7.1).
pub(super) fn solicited_node(address: Ipv6Addr) -> Ipv6Addr {
    let [.., a, b, c] = address.octets();
    let low = u16::from_be_bytes([b, c]);
    Ipv6Addr::new(0xff02, 0, 0, 0, 0, 1, 0xff00 | u16::from(a), low)
}

fn arp_claim(link: &Link, frame: &[u8]) -> Option<Claim> {
    let layer = Layer::of(link)?;
    let length = layer.own.len();
    let (header, rest) = frame.split_at_checked(ARP_HEADER)?;
    let [a, b] = layer.hardware.to_be_bytes();
    let [c, d] = ETH_P_IP.to_be_bytes();
    if header[..6] != [a, b, c, d, u8::try_from(length).ok()?, 4] {
        return None;
    }
    let (hardware, rest) = rest.split_at_checked(length)?;
    let sender = Ipv4Addr::from(*rest.first_chunk::<4>()?);
    let target = Ipv4Addr::from(*rest.get(4 + length..)?.first_chunk::<4>()?);
    // An ARP probe.
    let probes = sender.is_unspecified();
    let address = if probes {
        // A network may return a broadcast to its sender.
        (hardware != layer.own).then_some(target)?
    } else {
        sender
    };
    Some(Claim {
        address: address.into(),
        hardware: Some(HwAddress::new(hardware)),
        probes,
    })
}

fn neighbour_claim(frame: &[u8], nonce: Nonce) -> Option<Claim> {
    let (header, message) = frame.split_at_checked(IPV6_HEADER)?;
    // Next header and hop limit. A router would have lowered the hop limit.
    if header[6..8] != [ICMPV6, 255] {
        return None;
    }
    // A link may append bytes to the packet.
    let length = u16::from_be_bytes([header[4], header[5]]);
    let message = message.get(..usize::from(length))?;
    let (message, options) = message.split_at_checked(MESSAGE_HEADER)?;
    let options = parsed(options)?;
    let target = Ipv6Addr::from(*message.last_chunk::<16>()?);
    let claim = |hardware, probes| Claim {
        address: target.into(),
        hardware,
        probes,
    };
    match message[..2] {
        [NEIGHBOUR_ADVERTISEMENT, 0] => Some(claim(hardware_of(&options), false)),
        [NEIGHBOUR_SOLICITATION, 0] => {
            // A host with an address looks for a neighbour. A network may return a multicast to its sender.
            let probes = header[8..24] == [0; 16] && header[24..] == solicited_node(target).octets();
            (probes && nonce_of(&options) != Some(nonce)).then(|| claim(None, true))
        }
        _ => None,
    }
}

/// The options of a message, each with its header of two bytes: the kind, and the length in units. `None` if one has no
/// length or does not end with the message (RFC 4861 § 7.1).
fn parsed(mut options: &[u8]) -> Option<Vec<&[u8]>> {
    let mut all = Vec::new();
    while !options.is_empty() {
        let length = usize::from(*options.get(1)?) * OPTION_UNIT;
        let (option, rest) = options.split_at_checked(length).filter(|_| length > 0)?;
        all.push(option);
        options = rest;
    }
    Some(all)
}

/// The target's hardware address among the options of an advertisement: the last 6 bytes of an option of one
/// unit, the last 20 bytes of an option of three (RFC 2464 § 6, RFC 4391 § 9.3).
fn hardware_of(options: &[&[u8]]) -> Option<HwAddress> {
    let of_kind = |option: &&&[u8]| option[0] == TARGET_LINK_LAYER_ADDRESS;
    options
        .iter()
        .filter(of_kind)
        .find_map(|option| match option.len() / OPTION_UNIT {
            1 => Some(HwAddress::new(option.last_chunk::<6>()?)),
            3 => Some(HwAddress::new(option.last_chunk::<20>()?)),
            _ => None,
        })
}

/// The nonce among the options of a solicitation, if it is as long as ours.
fn nonce_of(options: &[&[u8]]) -> Option<Nonce> {
    let nonce = options
        .iter()
        .find(|option| option[0] == NONCE && option.len() == OPTION_UNIT)?;
    nonce.last_chunk().copied()
}
