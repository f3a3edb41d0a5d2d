// SPDX-License-Identifier: Apache-2.0
use crate::netlink::{IpvlanMode, Link, LinkInfo, LinkLayer};
use crate::packet::{ETH_P_ARP, ETH_P_IPV6, Frame};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

pub(crate) const ETH_P_IP: u16 = 0x0800;

/// ARP hardware types (RFC 826 for Ethernet, RFC 4391 § 9.1.1 for InfiniBand).
const ARP_ETHERNET: u16 = 1;
const ARP_INFINIBAND: u16 = 32;
pub(crate) const ARP_REQUEST: u16 = 1;
const ARP_REPLY: u16 = 2;

const ALL_NODES: Ipv6Addr = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 1);
pub(crate) const ICMPV6: u8 = 58;
pub(crate) const NEIGHBOUR_ADVERTISEMENT: u8 = 136;
/// Override, not solicited, not a router (RFC 4861 § 4.4).
const OVERRIDE: u8 = 0x20;
pub(crate) const TARGET_LINK_LAYER_ADDRESS: u8 = 2;
/// Options are counted in units of this many bytes.
pub(crate) const OPTION_UNIT: usize = 8;

/// How a link addresses its neighbours.
pub(crate) struct Layer<'l> {
    /// ARP's number for the kind of hardware.
    pub(crate) hardware: u16,
    /// The link's own hardware address.
    pub(crate) own: &'l [u8],
    /// The hardware address that reaches every neighbour.
    pub(crate) broadcast: &'l [u8],
}

impl<'l> Layer<'l> {
    /// Returns `None` for a link that has no neighbours. An ipvlan child in L3 or L3S mode has none: the kernel drops its
    /// broadcasts, and the sender gets `ENOBUFS` (`ipvlan_process_outbound` of `drivers/net/ipvlan/ipvlan_core.c`).
    pub(crate) fn of(link: &'l Link) -> Option<Self> {
        if let LinkInfo::Ipvlan {
            mode: IpvlanMode::L3 | IpvlanMode::L3s,
        } = link.info
        {
            return None;
        }
        let (hardware, length) = match link.layer {
            LinkLayer::Ethernet => (ARP_ETHERNET, 6),
            LinkLayer::Infiniband => (ARP_INFINIBAND, 20),
            LinkLayer::Loopback | LinkLayer::Other(_) => return None,
        };
        let (own, broadcast) = (link.address.as_bytes(), link.broadcast.as_bytes());
        (own.len() == length && broadcast.len() == length).then_some(Self {
            hardware,
            own,
            broadcast,
        })
    }
}

/// Builds the announcements of `addresses` on `link`: for each IPv4 address an ARP request and an ARP reply,
/// for each IPv6 address an unsolicited neighbour advertisement.
///
/// RFC 5227 § 3 prescribes the ARP request, but some hosts refresh their cache only on a reply. Linux accepts
/// both. The list is empty if the link has no neighbours, or if `addresses` is empty.
pub fn frames(link: &Link, addresses: &[IpAddr]) -> Vec<Frame> {
    let Some(layer) = Layer::of(link) else {
        return Vec::new();
    };
    let nobody = vec![0; layer.own.len()];
    let announce = |address: &IpAddr| match address {
        IpAddr::V4(v4) => {
            vec![
                arp(&layer, ARP_REQUEST, (*v4, *v4), &nobody),
                arp(&layer, ARP_REPLY, (*v4, *v4), layer.own),
            ]
        }
        IpAddr::V6(v6) => vec![advertisement(layer.own, layer.broadcast, *v6)],
    };
    addresses.iter().flat_map(announce).collect()
}

/// Builds an ARP packet to all neighbours, from the first address of `addresses` about the second (RFC 826).
///
/// An announcement names one address twice. `target` is the target's hardware address. It is zero in a
/// request and the sender's own in a reply: Linux accepts a reply as an announcement only then (`arp_is_garp`
/// of `net/ipv4/arp.c`).
pub(crate) fn arp(
    layer: &Layer<'_>,
    operation: u16,
    addresses: (Ipv4Addr, Ipv4Addr),
    target: &[u8],
) -> Frame {
    let own = layer.own;
    let mut bytes = Vec::with_capacity(16 + own.len() * 2);
    bytes.extend(layer.hardware.to_be_bytes());
    bytes.extend(ETH_P_IP.to_be_bytes());
    // 6 or 20, and the length of an IPv4 address.
    bytes.extend([u8::try_from(own.len()).unwrap_or(0), 4]);
    bytes.extend(operation.to_be_bytes());
    bytes.extend(own);
    bytes.extend(addresses.0.octets());
    bytes.extend(target);
    bytes.extend(addresses.1.octets());
    Frame {
        protocol: ETH_P_ARP,
        destination: layer.broadcast.to_vec(),
        bytes,
    }
}

/// Builds an unsolicited neighbour advertisement to all nodes (RFC 4861 § 7.2.6), with its IPv6 header.
fn advertisement(own: &[u8], broadcast: &[u8], address: Ipv6Addr) -> Frame {
    let mut body = vec![NEIGHBOUR_ADVERTISEMENT, 0, 0, 0, OVERRIDE, 0, 0, 0];
    body.extend(address.octets());
    body.extend(link_layer_option(own));
    icmpv6(address, ALL_NODES, body, broadcast)
}

/// Builds an ICMPv6 message to the multicast group `group`, with its IPv6 header. `body` has a checksum of 0.
pub(crate) fn icmpv6(source: Ipv6Addr, group: Ipv6Addr, mut body: Vec<u8>, broadcast: &[u8]) -> Frame {
    let sum = checksum(source, group, &body);
    body[2..4].copy_from_slice(&sum.to_be_bytes());

    let mut bytes = vec![0x60, 0, 0, 0];
    bytes.extend(u16::try_from(body.len()).unwrap_or(0).to_be_bytes());
    // A hop limit of 255 proves that no router forwarded the message (RFC 4861 § 7.1.2).
    bytes.extend([ICMPV6, 255]);
    bytes.extend(source.octets());
    bytes.extend(group.octets());
    bytes.extend(body);
    Frame {
        protocol: ETH_P_IPV6,
        destination: multicast(group, broadcast),
        bytes,
    }
}

/// Builds the option that carries our hardware address: 1 unit on Ethernet, 3 on InfiniBand, where two zero
/// bytes precede the address (RFC 4391 § 9.3).
fn link_layer_option(own: &[u8]) -> Vec<u8> {
    let units = (2 + own.len()).div_ceil(OPTION_UNIT);
    let padding = units * OPTION_UNIT - 2 - own.len();
    let mut option = vec![TARGET_LINK_LAYER_ADDRESS, u8::try_from(units).unwrap_or(0)];
    option.extend(vec![0; padding]);
    option.extend(own);
    option
}

/// Returns the hardware address of a multicast group on a link with this broadcast address.
///
/// Source: `ipv6_ib_mc_map` of `include/net/if_inet6.h` for InfiniBand, RFC 2464 § 7 for Ethernet.
fn multicast(group: Ipv6Addr, broadcast: &[u8]) -> Vec<u8> {
    let group = group.octets();
    if broadcast.len() != 20 {
        return [&[0x33, 0x33], &group[12..]].concat();
    }
    // QPN of multicast; scope, IPv6 signature and P_Key of the partition (RFC 4391 § 4); the group's low 80 bits.
    let mut address = vec![
        0,
        0xff,
        0xff,
        0xff,
        0xff,
        0x10 | (broadcast[5] & 0x0f),
        0x60,
        0x1b,
    ];
    address.extend(&broadcast[8..10]);
    address.extend(&group[6..]);
    address
}

/// Computes the Internet checksum of an ICMPv6 message with its pseudo header (RFC 4443 § 2.3).
fn checksum(source: Ipv6Addr, destination: Ipv6Addr, body: &[u8]) -> u16 {
    let length = u32::try_from(body.len()).unwrap_or(0).to_be_bytes();
    let pseudo = [
        &source.octets()[..],
        &destination.octets(),
        &length,
        &[0, 0, 0, ICMPV6],
        body,
    ]
    .concat();
    let words = pseudo
        .chunks(2)
        .map(|pair| u32::from(pair[0]) << 8 | pair.get(1).map_or(0, |low| u32::from(*low)));
    let mut sum: u32 = words.sum();
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    !u16::try_from(sum).unwrap_or(0)
}

#[cfg(test)]
mod tests;
