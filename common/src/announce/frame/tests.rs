// SPDX-License-Identifier: Apache-2.0
use super::frames;
use crate::netlink::{HwAddress, Link, LinkLayer};
use crate::packet::Frame;
use std::net::IpAddr;

/// A link with only the properties that an announcement needs.
fn link(layer: LinkLayer, address: &str, broadcast: &str) -> Link {
    let hardware = |text: &str| text.parse::<HwAddress>().unwrap();
    Link {
        address: hardware(address),
        broadcast: hardware(broadcast),
        ..Link::new(7, "net1", layer)
    }
}

fn ethernet() -> Link {
    link(LinkLayer::Ethernet, "02:00:00:00:0a:0b", "ff:ff:ff:ff:ff:ff")
}

/// Partition 0x8001, subnet-local scope.
fn infiniband() -> Link {
    let address = "00:00:10:49:fe:80:00:00:00:00:00:00:24:8a:07:03:00:b4:0c:5e";
    let broadcast = "00:ff:ff:ff:ff:12:40:1b:80:01:00:00:00:00:00:00:ff:ff:ff:ff";
    link(LinkLayer::Infiniband, address, broadcast)
}

fn bytes(hex: &str) -> Vec<u8> {
    let digits: String = hex.split_whitespace().collect();
    (0..digits.len())
        .step_by(2)
        .map(|at| u8::from_str_radix(&digits[at..at + 2], 16).unwrap())
        .collect()
}

fn ip(text: &str) -> IpAddr {
    text.parse().unwrap()
}

#[test]
fn an_ipv4_address_is_announced_by_an_arp_request_and_a_reply() {
    let broadcast = vec![0xff; 6];
    let request = "0001 0800 06 04 0001  0200 0000 0a0b 0a01 0002  0000 0000 0000 0a01 0002";
    let reply = "0001 0800 06 04 0002  0200 0000 0a0b 0a01 0002  0200 0000 0a0b 0a01 0002";
    let expected = [request, reply].map(|hex| Frame {
        protocol: 0x0806,
        destination: broadcast.clone(),
        bytes: bytes(hex),
    });
    assert_eq!(frames(&ethernet(), &[ip("10.1.0.2")]), expected);
}

#[test]
fn an_arp_packet_on_infiniband_holds_20_byte_addresses() {
    let own = "0000 1049 fe80 0000 0000 0000 248a 0703 00b4 0c5e";
    let zeros = "00".repeat(20);
    let broadcast = bytes("00ff ffff ff12 401b 8001 0000 0000 0000 ffff ffff");
    let expected = [(1, zeros.as_str()), (2, own)].map(|(operation, target)| Frame {
        protocol: 0x0806,
        destination: broadcast.clone(),
        bytes: bytes(&format!(
            "0020 0800 14 04 {operation:04x} {own} 0a010002 {target} 0a010002"
        )),
    });
    assert_eq!(frames(&infiniband(), &[ip("10.1.0.2")]), expected);
}

// The checksums were computed by another program from RFC 4443 § 2.3.
#[test]
fn an_ipv6_address_on_ethernet_is_an_advertisement_of_one_unit() {
    let header = "6000 0000 0020 3a ff fd00 0001 0000 0000 0000 0000 0000 0002 ff02 0000 0000 0000 0000 0000 0000 0001";
    let body = "88 00 508d 2000 0000 fd00 0001 0000 0000 0000 0000 0000 0002 02 01 0200 0000 0a0b";
    let expected = Frame {
        protocol: 0x86dd,
        destination: bytes("3333 0000 0001"),
        bytes: bytes(&format!("{header}{body}")),
    };
    assert_eq!(frames(&ethernet(), &[ip("fd00:1::2")]), [expected]);
}

#[test]
fn an_ipv6_address_on_infiniband_is_an_advertisement_of_three_units() {
    let header = "6000 0000 0030 3a ff fd00 0001 0000 0000 0000 0000 0000 0002 ff02 0000 0000 0000 0000 0000 0000 0001";
    let body = "88 00 151d 2000 0000 fd00 0001 0000 0000 0000 0000 0000 0002
                02 03 0000 0000 1049 fe80 0000 0000 0000 248a 0703 00b4 0c5e";
    let expected = Frame {
        protocol: 0x86dd,
        destination: bytes("00ff ffff ff12 601b 8001 0000 0000 0000 0000 0001"),
        bytes: bytes(&format!("{header}{body}")),
    };
    assert_eq!(frames(&infiniband(), &[ip("fd00:1::2")]), [expected]);
}

#[test]
fn every_address_is_announced() {
    let all = frames(&ethernet(), &[ip("10.1.0.2"), ip("fd00:1::2"), ip("10.1.0.3")]);
    let protocols: Vec<u16> = all.iter().map(|frame| frame.protocol).collect();
    assert_eq!(protocols, [0x0806, 0x0806, 0x86dd, 0x0806, 0x0806]);
}

#[test]
fn links_without_neighbours_get_no_frames() {
    let addresses = [ip("10.1.0.2"), ip("fd00:1::2")];
    assert_eq!(
        frames(
            &link(LinkLayer::Loopback, "00:00:00:00:00:00", "00:00:00:00:00:00"),
            &addresses
        ),
        []
    );
    assert_eq!(
        frames(&Link::new(7, "tun0", LinkLayer::Other(65534)), &addresses),
        []
    );
    assert_eq!(
        frames(
            &link(LinkLayer::Infiniband, "02:00:00:00:0a:0b", "ff:ff:ff:ff:ff:ff"),
            &addresses
        ),
        []
    );
}
