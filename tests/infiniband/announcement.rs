// SPDX-License-Identifier: Apache-2.0
//! An address moves to another pod: the plugin announces it to the neighbours, in frames with 20-byte hardware
//! addresses.

use crate::fabric::{network, reaches, run, soon};
use common::netlink::HwAddress;
use nix::sys::socket::{
    AddressFamily, MsgFlags, SockFlag, SockProtocol, SockType, recv, setsockopt, socket,
    sockopt::ReceiveTimeout,
};
use nix::sys::time::TimeVal;
use std::net::{Ipv4Addr, Ipv6Addr};
use std::os::fd::{AsRawFd, OwnedFd};
use std::time::{Duration, Instant};
use tests::{Conf, Node, Pod, json};

const V4: Ipv4Addr = Ipv4Addr::new(10, 7, 0, 5);
const V6: Ipv6Addr = Ipv6Addr::new(0xfd00, 7, 0, 0, 0, 0, 0, 5);

/// A network that gives every pod the same addresses.
fn one_address(node: &Node, master: &str) -> Conf {
    let addresses = json!([{"address": format!("{V4}/24")}, {"address": format!("{V6}/64")}]);
    network(
        node,
        &json!({"master": master, "ipam": {"type": "static", "addresses": addresses}}),
    )
}

fn peer(node: &Node) -> (Pod<'_>, Conf) {
    let addresses = json!([{"address": "10.7.0.9/24"}, {"address": "fd00:7::9/64"}]);
    let conf = network(
        node,
        &json!({"name": "peers", "ipam": {"type": "static", "addresses": addresses}}),
    );
    let pod = node.pod();
    pod.attach(&conf, "net1");
    (pod, conf)
}

/// Opens a socket that receives every packet of the pod, without its link-layer header.
fn listen(pod: &Pod<'_>) -> OwnedFd {
    let open = || {
        socket(
            AddressFamily::Packet,
            SockType::Datagram,
            SockFlag::SOCK_CLOEXEC,
            SockProtocol::EthAll,
        )
    };
    let socket_of_pod = pod.open().run(open).unwrap().unwrap();
    setsockopt(&socket_of_pod, ReceiveTimeout, &TimeVal::new(1, 0)).unwrap();
    socket_of_pod
}

/// Receives packets until they are `complete`, for at most a minute.
fn received(socket_of_pod: &OwnedFd, complete: impl Fn(&[Vec<u8>]) -> bool) -> Vec<Vec<u8>> {
    let deadline = Instant::now() + Duration::from_secs(60);
    let mut packets = Vec::new();
    let mut buffer = [0; 4096];
    while !complete(&packets) && Instant::now() < deadline {
        // Without a packet, recv returns after a second.
        if let Ok(length) = recv(socket_of_pod.as_raw_fd(), &mut buffer, MsgFlags::empty()) {
            packets.push(buffer[..length].to_vec());
        }
    }
    packets
}

/// Gratuitous ARP on InfiniBand: hardware type 32, addresses of 20 and 4 bytes (RFC 4391 § 9.1.1).
fn arp(operation: u8, sender: &HwAddress) -> Vec<u8> {
    [
        &[0, 32, 8, 0, 20, 4, 0, operation][..],
        sender.as_bytes(),
        &V4.octets(),
    ]
    .concat()
}

/// Whether `packet` is an unsolicited neighbour advertisement of [`V6`] with the 20-byte address of `sender`
/// (RFC 4391 § 9.3).
fn is_advertisement(packet: &[u8], sender: &HwAddress) -> bool {
    let option = [&[2, 3, 0, 0][..], sender.as_bytes()].concat();
    packet.len() == 40 + 24 + 24
        && packet[6] == 58
        && packet[7] == 255
        && packet[40] == 136
        && packet[44] == 0x20
        && packet[48..64] == V6.octets()
        && packet[64..] == option
}

#[test]
fn the_addresses_of_a_new_pod_are_announced_with_its_20_byte_address() {
    run(|node| {
        let (peer, peers) = peer(node);
        let socket_of_pod = listen(&peer);
        let (pod, conf) = (node.pod(), one_address(node, "ib1"));
        pod.attach(&conf, "net1");
        let own = pod.link("net1").address;
        assert_eq!(own.len(), 20);
        let has_arp = |packets: &[Vec<u8>], operation| {
            let expected = arp(operation, &own);
            let is_it = |packet: &Vec<u8>| packet.starts_with(&expected) && packet.ends_with(&V4.octets());
            packets.iter().any(is_it)
        };
        let has_advertisement =
            |packets: &[Vec<u8>]| packets.iter().any(|packet| is_advertisement(packet, &own));
        let packets = received(&socket_of_pod, |packets| {
            has_arp(packets, 1) && has_arp(packets, 2) && has_advertisement(packets)
        });
        for operation in [1, 2] {
            assert!(
                has_arp(&packets, operation),
                "no ARP of operation {operation} from {own} for {V4} in {packets:02x?}"
            );
        }
        assert!(
            has_advertisement(&packets),
            "no advertisement of {V6} with {own} in {packets:02x?}"
        );
        pod.detach(&conf, "net1");
        peer.detach(&peers, "net1");
    });
}

#[test]
fn a_neighbour_follows_an_address_to_another_pod_at_once() {
    run(|node| {
        let (peer, peers) = peer(node);
        for family in ["ipv4", "ipv6"] {
            // Otherwise the kernel probes an entry five seconds after its use, and ignores an advertisement if the probe failed.
            let delay = format!("-w net.{family}.neigh.net1.delay_first_probe_time=600");
            assert!(peer.exec("sysctl", &delay).status.success());
        }
        let entry = |address: String| peer.ip(&format!("neigh show {address} dev net1"));
        for (round, master) in ["ib1", "ib2", "ib1"].iter().enumerate() {
            let (pod, conf) = (node.pod(), one_address(node, master));
            pod.attach(&conf, "net1");
            let own = pod.link("net1").address.to_string();
            // In the first round no entry exists, and the kernel creates none for an announcement.
            if round > 0 {
                for address in [V4.to_string(), V6.to_string()] {
                    soon(
                        &format!("the neighbour entry of {address} is {own}, without a request"),
                        || entry(address.clone()).contains(&own),
                    );
                }
            }
            reaches(&peer, &V4.to_string());
            reaches(&peer, &V6.to_string());
            for address in [V4.to_string(), V6.to_string()] {
                assert!(
                    entry(address.clone()).contains(&own),
                    "{address}: {}",
                    entry(address.clone())
                );
            }
            pod.detach(&conf, "net1");
        }
        peer.detach(&peers, "net1");
    });
}
