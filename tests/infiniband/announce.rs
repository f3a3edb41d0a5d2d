// SPDX-License-Identifier: Apache-2.0
//! A new pod tells its neighbours where its addresses are now, in frames that fit InfiniBand's 20-byte hardware address.

use crate::fabric::{network, on_fabric, pings, soon};
use nix::sys::socket::sockopt::ReceiveTimeout;
use nix::sys::socket::{AddressFamily, SockFlag, SockProtocol, SockType, recv, setsockopt, socket};
use nix::sys::time::TimeVal;
use std::net::{Ipv4Addr, Ipv6Addr};
use std::os::fd::{AsRawFd, OwnedFd};
use std::time::{Duration, Instant};
use tests::{Conf, Node, Pod, json};

/// A network in which a pod asks for one IPv4 and one IPv6 address.
fn asking(node: &Node, master: &str, v4: Ipv4Addr, v6: Ipv6Addr) -> Conf {
    network(
        node,
        master,
        &json!({"runtimeConfig": {"ips": [v4.to_string(), v6.to_string()]}}),
    )
}

/// Listens to everything that arrives in a pod, from the network header on.
fn listen(pod: &Pod<'_>) -> OwnedFd {
    let open = || {
        socket(
            AddressFamily::Packet,
            SockType::Datagram,
            SockFlag::SOCK_CLOEXEC,
            SockProtocol::EthAll,
        )
        .unwrap()
    };
    let socket = pod.open().run(open).unwrap();
    setsockopt(&socket, ReceiveTimeout, &TimeVal::new(0, 200_000)).unwrap();
    socket
}

/// Reads until both are seen: an ARP frame that says `v4` is at `mac`, and a neighbour advertisement that says so of `v6`.
fn heard(socket: &OwnedFd, mac: &[u8], v4: Ipv4Addr, v6: Ipv6Addr) -> (bool, bool) {
    let (mut arp, mut advertisement) = (false, false);
    let mut buffer = [0; 4096];
    let start = Instant::now();
    while !(arp && advertisement) && start.elapsed() < Duration::from_secs(10) {
        let Ok(size) = recv(
            socket.as_raw_fd(),
            &mut buffer,
            nix::sys::socket::MsgFlags::empty(),
        ) else {
            continue;
        };
        let frame = &buffer[..size];
        arp |= is_arp(frame, mac, v4);
        advertisement |= is_advertisement(frame, mac, v6);
    }
    (arp, advertisement)
}

/// RFC 4391 § 9.1.1: hardware type 32, 20 bytes; the sender tells its own address.
fn is_arp(frame: &[u8], mac: &[u8], v4: Ipv4Addr) -> bool {
    frame.starts_with(&[0, 32, 8, 0, 20, 4])
        && frame.get(8..28) == Some(mac)
        && frame.get(28..32) == Some(&v4.octets())
}

/// RFC 4861 § 4.4: type 136, override; RFC 4391 § 9.2: the address in an option of three units.
fn is_advertisement(frame: &[u8], mac: &[u8], v6: Ipv6Addr) -> bool {
    let Some(body) = frame.get(40..).filter(|_| frame[0] >> 4 == 6 && frame[6] == 58) else {
        return false;
    };
    body.first() == Some(&136)
        && body[4] & 0x20 != 0
        && body.get(8..24) == Some(&v6.octets())
        && body.windows(20).any(|window| window == mac)
}

#[test]
fn both_families_are_announced_with_the_twenty_byte_address() {
    on_fabric(|node| {
        let (v4, v6) = ("10.7.0.50".parse().unwrap(), "fd00:7::50".parse().unwrap());
        let (listener, pod) = (node.pod(), node.pod());
        let peers = network(node, "ib1", &json!({}));
        listener.attach(&peers, "net1");
        let socket = listen(&listener);
        let conf = asking(node, "ib0", v4, v6);
        pod.attach(&conf, "net1");
        let mac = pod.link("net1").address;
        assert_eq!(
            heard(&socket, mac.as_bytes(), v4, v6),
            (true, true),
            "(ARP, neighbour advertisement)"
        );
        drop(socket);
        pod.detach(&conf, "net1");
        listener.detach(&peers, "net1");
    });
}

#[test]
fn neighbours_learn_at_once_that_an_address_moved_to_another_pod() {
    on_fabric(|node| {
        let (v4, v6) = ("10.7.0.50".parse().unwrap(), "fd00:7::50".parse().unwrap());
        let peer = node.pod();
        let peers = network(node, "ib1", &json!({}));
        peer.attach(&peers, "net1");
        let (first, second) = (node.pod(), node.pod());
        let (on_ib0, on_ib2) = (asking(node, "ib0", v4, v6), asking(node, "ib2", v4, v6));
        first.attach(&on_ib0, "net1");
        for address in [v4.to_string(), v6.to_string()] {
            assert!(pings(&peer, &address));
            assert!(
                knows(&peer, &address, &first),
                "{address} is not at the first pod"
            );
        }
        first.detach(&on_ib0, "net1");
        second.attach(&on_ib2, "net1");
        for address in [v4.to_string(), v6.to_string()] {
            assert!(
                soon(|| knows(&peer, &address, &second)),
                "the peer still has {}",
                peer.ip("neigh show")
            );
            assert!(pings(&peer, &address));
        }
        second.detach(&on_ib2, "net1");
        peer.detach(&peers, "net1");
    });
}

/// Whether the neighbour table of `peer` has `address` at the interface of `pod`.
fn knows(peer: &Pod<'_>, address: &str, pod: &Pod<'_>) -> bool {
    let mac = pod.link("net1").address.to_string();
    peer.ip(&format!("neigh show {address} dev net1")).contains(&mac)
}
