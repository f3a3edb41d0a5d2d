// SPDX-License-Identifier: Apache-2.0
use super::super::super::{Added, AddressOptions, Route, RouteEntry, Socket, TABLE_MAIN};
use super::{bring_up, cable};
use crate::netns::Netns;
use ipnetwork::IpNetwork;
use nix::errno::Errno;
use std::net::{IpAddr, Ipv4Addr};

const NO_DAD: AddressOptions = AddressOptions { no_dad: true };

fn net(text: &str) -> IpNetwork {
    text.parse().unwrap()
}

fn ip(text: &str) -> IpAddr {
    text.parse().unwrap()
}

/// A veth pair with both ends up; `v0` has an IPv4 and an IPv6 address.
fn connected() -> (Netns, Socket<Route>, u32) {
    let (netns, mut socket, v0, v1) = cable();
    for index in [v0, v1] {
        bring_up(&mut socket, index);
    }
    for address in ["10.1.0.2/24", "fd00:1::2/64"] {
        assert_eq!(socket.add_address(v0, net(address), NO_DAD).unwrap(), Added::New);
    }
    (netns, socket, v0)
}

/// The entry that the kernel lists for a route.
fn shown(route: &RouteEntry) -> RouteEntry {
    let v4 = route.dst.is_ipv4();
    let link_scope = v4 && route.gateway.is_none();
    RouteEntry {
        table: Some(route.table.unwrap_or(TABLE_MAIN)),
        priority: route.priority.or((!v4).then_some(1024)),
        scope: route.scope.or(Some(if link_scope { 253 } else { 0 })),
        ..route.clone()
    }
}

#[test]
fn addresses_are_added_once_listed_and_deleted_once() {
    let (_netns, mut socket, v0) = connected();
    assert_eq!(
        socket
            .add_address(v0, net("10.1.0.2/24"), AddressOptions::default())
            .unwrap(),
        Added::Present
    );
    assert_eq!(
        socket.add_address(v0, net("fd00:1::2/64"), NO_DAD).unwrap(),
        Added::Present
    );
    let addresses = socket.addresses(v0).unwrap();
    let v4 = addresses
        .iter()
        .find(|a| a.address == net("10.1.0.2/24"))
        .unwrap();
    assert!(v4.permanent && !v4.tentative && v4.scope == 0);
    let v6 = addresses
        .iter()
        .find(|a| a.address == net("fd00:1::2/64"))
        .unwrap();
    assert!(v6.permanent && v6.no_dad && !v6.tentative && !v6.dad_failed);
    assert!(socket.delete_address(v0, v4.address).unwrap());
    assert!(!socket.delete_address(v0, v4.address).unwrap());
    assert!(!socket.delete_address(4711, v4.address).unwrap());
    assert!(
        socket
            .addresses(v0)
            .unwrap()
            .iter()
            .all(|a| a.address != net("10.1.0.2/24"))
    );
    assert_eq!(socket.addresses(4711).unwrap(), []);
}

#[test]
fn no_dad_turns_duplicate_address_detection_off() {
    let (_netns, mut socket, v0) = connected();
    socket
        .add_address(v0, net("fd00:2::2/64"), AddressOptions::default())
        .unwrap();
    let addresses = socket.addresses(v0).unwrap();
    let checked = addresses
        .iter()
        .find(|a| a.address == net("fd00:2::2/64"))
        .unwrap();
    assert!(checked.tentative && !checked.no_dad);
}

#[test]
fn a_long_list_is_read_whole() {
    let (_netns, mut socket, v0) = connected();
    for number in 0..1500_u32 {
        let address = Ipv4Addr::from(0x0a02_0000 + number);
        let address = IpNetwork::new(address.into(), 32).unwrap();
        socket
            .add_address(v0, address, AddressOptions::default())
            .unwrap();
    }
    let listed = socket
        .addresses(v0)
        .unwrap()
        .iter()
        .filter(|a| a.address.prefix() == 32)
        .count();
    assert_eq!(listed, 1500);
}

/// A pod may give its link so many that the kernel's usual buffer for a list has no room for the link.
#[test]
fn a_link_with_hundreds_of_altnames_is_read() {
    let (netns, mut socket, v0) = connected();
    for number in 0..300 {
        let name = format!("{number:0>127}");
        assert!(socket.add_altname(v0, &name).unwrap());
    }
    let link = socket.link_by_index(v0).unwrap().unwrap();
    assert_eq!(link.altnames.len(), 300);
    assert_eq!(socket.link(&link.name).unwrap().as_ref(), Some(&link));
    // The buffer of another socket has not grown yet.
    let listed = Socket::<Route>::open_in(&netns).unwrap().links().unwrap();
    assert!(listed.contains(&link));
}

#[test]
fn a_missing_link_has_no_addresses_and_no_routes() {
    let (_netns, mut socket, _) = connected();
    assert_eq!(socket.addresses(4711).unwrap(), []);
    assert_eq!(socket.routes(4711).unwrap(), []);
}

#[test]
fn routes_are_listed_as_they_were_added() {
    let (_netns, mut socket, v0) = connected();
    let plain = RouteEntry::new(net("192.0.2.0/24"), v0);
    let all = RouteEntry {
        gateway: Some(ip("10.1.0.1")),
        mtu: Some(1400),
        advmss: Some(1360),
        priority: Some(50),
        table: Some(1000),
        ..RouteEntry::new(net("198.51.100.0/24"), v0)
    };
    let default = RouteEntry {
        gateway: Some(ip("10.1.0.1")),
        ..RouteEntry::new(net("0.0.0.0/0"), v0)
    };
    let onlink = RouteEntry {
        gateway: Some(ip("172.16.0.1")),
        onlink: true,
        ..RouteEntry::new(net("203.0.113.0/24"), v0)
    };
    let v6 = RouteEntry {
        gateway: Some(ip("fd00:1::1")),
        mtu: Some(1300),
        ..RouteEntry::new(net("2001:db8::/32"), v0)
    };
    let v4_over_v6 = RouteEntry {
        gateway: Some(ip("fd00:1::1")),
        ..RouteEntry::new(net("198.18.0.0/15"), v0)
    };
    for route in [&plain, &all, &default, &onlink, &v6, &v4_over_v6] {
        assert_eq!(socket.add_route(route).unwrap(), Added::New, "{route:?}");
        assert_eq!(socket.add_route(route).unwrap(), Added::Present, "{route:?}");
        let routes = socket.routes(v0).unwrap();
        assert!(
            routes.contains(&shown(route)),
            "{route:?} is not among {routes:#?}"
        );
    }
}

#[test]
fn two_routes_to_one_destination_coexist() {
    let (_netns, mut socket, v0) = connected();
    for (dst, gateways) in [
        ("192.0.2.0/24", ["10.1.0.1", "10.1.0.9"]),
        ("2001:db8::/32", ["fd00:1::1", "fd00:1::9"]),
    ] {
        let routes = gateways.map(|via| RouteEntry {
            gateway: Some(ip(via)),
            ..RouteEntry::new(net(dst), v0)
        });
        for route in &routes {
            assert_eq!(socket.add_route(route).unwrap(), Added::New);
        }
        let listed = socket.routes(v0).unwrap();
        for route in &routes {
            assert!(
                listed.contains(&shown(route)),
                "{route:?} is not among {listed:#?}"
            );
        }
    }
}

#[test]
fn a_gateway_that_is_not_a_neighbour_is_refused() {
    let (_netns, mut socket, v0) = connected();
    let route = RouteEntry {
        gateway: Some(ip("172.16.0.1")),
        ..RouteEntry::new(net("192.0.2.0/24"), v0)
    };
    assert_eq!(
        socket.add_route(&route).unwrap_err().errno(),
        Some(Errno::ENETUNREACH)
    );
}

#[test]
fn routes_of_other_links_are_not_listed() {
    let (_netns, mut socket, v0) = connected();
    assert!(!socket.routes(v0).unwrap().is_empty());
    assert_eq!(socket.routes(1).unwrap(), []);
}
