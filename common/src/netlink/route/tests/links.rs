// SPDX-License-Identifier: Apache-2.0
use super::super::super::{
    AddrGenMode, HwAddress, Ipv4Settings, Link, LinkChange, LinkInfo, LinkLayer, MacvlanMode, NewLink,
    NewLinkKind, PacketLimits, Route, Socket,
};
use super::{cable, new, socket};
use crate::netns::tests::fresh;
use netlink_packet_core::{NLM_F_APPEND, NLM_F_CREATE, NLM_F_EXCL};
use netlink_packet_route::RouteNetlinkMessage as Message;
use netlink_packet_route::link::{LinkAttribute, LinkMessage, Prop};
use nix::errno::Errno;
use std::fs;
use std::os::fd::AsFd;
use std::thread;
use std::time::{Duration, Instant};

fn change(socket: &mut Socket<Route>, index: u32, change: LinkChange<'_>) {
    socket.change_link(index, &change).unwrap();
}

fn up(socket: &mut Socket<Route>, index: u32) {
    change(
        socket,
        index,
        LinkChange {
            up: Some(true),
            ..LinkChange::default()
        },
    );
}

#[test]
fn a_representor_is_known_by_the_name_of_its_port() {
    let is_representor = |name: &str| {
        let mut message = LinkMessage::default();
        message.attributes = vec![LinkAttribute::PhysPortName(name.to_owned())];
        Link::decode(message).is_representor()
    };
    for name in [
        "pf0", "pf0vf0", "pf1vf12", "pf0sf88", "c1pf0", "c1pf0vf3", "c2pf1sf4", "p0pf0vf0",
    ] {
        assert!(is_representor(name), "{name}");
    }
    for name in [
        "p0", "p1s3", "l2p1", "0", "pf", "pfvf", "pf0vf", "pf0xf1", "pf0vf1x", "",
    ] {
        assert!(!is_representor(name), "{name}");
    }
    assert!(!Link::decode(LinkMessage::default()).is_representor());
}

#[test]
fn a_link_is_found_by_name_altname_and_index() {
    let (_netns, mut socket, v0, v1) = cable();
    let long = "a-name-longer-than-fifteen-bytes";
    for altname in ["rail0", long] {
        let mut message = LinkMessage::default();
        message.header.index = v0;
        message
            .attributes
            .push(LinkAttribute::PropList(vec![Prop::AltIfName(altname.to_owned())]));
        socket
            .change(
                Message::NewLinkProp(message),
                NLM_F_CREATE | NLM_F_EXCL | NLM_F_APPEND,
            )
            .unwrap();
    }
    let link = socket.link("v0").unwrap().unwrap();
    assert_eq!(link.altnames, ["rail0", long]);
    assert!(link.is_called("v0") && link.is_called(long) && !link.is_called("v1"));
    for name in ["rail0", long] {
        assert_eq!(socket.link(name).unwrap().as_ref(), Some(&link), "{name}");
    }
    assert_eq!(socket.link_by_index(v0).unwrap(), Some(link.clone()));
    assert_eq!(
        (link.index, link.layer, link.kind.as_deref()),
        (v0, LinkLayer::Ethernet, Some("veth"))
    );
    assert_eq!(
        (link.parent, link.parent_netnsid, link.up, link.carrier),
        (Some(v1), None, false, false)
    );
    assert_eq!(
        (link.address.len(), link.broadcast.to_string().as_str()),
        (6, "ff:ff:ff:ff:ff:ff")
    );
    assert_eq!((link.mtu, link.max_mtu), (1500, Some(65535)));
}

#[test]
fn a_missing_link_is_none() {
    let mut socket = socket(&fresh());
    let longest = "x".repeat(127);
    for name in [
        "net1",
        "",
        "a\0b",
        "a name longer than fifteen bytes",
        &longest,
        &format!("{longest}x"),
    ] {
        assert_eq!(socket.link(name).unwrap(), None, "{name:?}");
    }
    assert_eq!(socket.link_by_index(4711).unwrap(), None);
    assert!(!socket.delete_link(4711).unwrap());
}

#[test]
fn a_child_is_created_in_the_pod_with_its_final_name() {
    let (_host, mut host, v0, _) = cable();
    let pod = fresh();
    let address: HwAddress = "02:00:00:00:0a:0b".parse().unwrap();
    let kind = NewLinkKind::Macvlan {
        mode: MacvlanMode::Bridge,
        bc_queue_len: Some(2000),
    };
    let mut child = NewLink {
        parent: v0,
        netns: Some(pod.as_fd()),
        ..new("net1", kind)
    };
    (child.mtu, child.address, child.group) = (Some(1400), Some(&address), 7);
    host.add_link(&child).unwrap();
    let link = socket(&pod).link("net1").unwrap().unwrap();
    assert_eq!(link.kind.as_deref(), Some("macvlan"));
    assert_eq!(
        link.info,
        LinkInfo::Macvlan {
            mode: MacvlanMode::Bridge
        }
    );
    assert_eq!((link.mtu, link.group, &link.address), (1400, 7, &address));
    assert_eq!(link.parent, Some(v0));
    assert!(link.parent_netnsid.is_some());
    assert_eq!(
        host.links().unwrap().len(),
        3,
        "lo, v0 and v1 are all the host has"
    );
}

#[test]
fn a_child_named_like_a_host_link_leaves_that_link_unchanged() {
    let (_host, mut host, v0, v1) = cable();
    let before = host.link_by_index(v1).unwrap();
    let pod = fresh();
    let kind = NewLinkKind::Macvlan {
        mode: MacvlanMode::Bridge,
        bc_queue_len: None,
    };
    let child = NewLink {
        parent: v0,
        netns: Some(pod.as_fd()),
        mtu: Some(1400),
        ..new("v1", kind)
    };
    let born = match host.add_link(&child) {
        Ok(()) => true,
        Err(e) => {
            assert_eq!(e.errno(), Some(Errno::EEXIST), "the answer of older kernels");
            false
        }
    };
    assert_eq!(socket(&pod).link("v1").unwrap().is_some(), born);
    assert_eq!(host.link_by_index(v1).unwrap(), before);
}

#[test]
fn a_link_name_that_is_in_use_is_refused() {
    let (_netns, mut socket, ..) = cable();
    let error = socket.add_link(&new("v0", NewLinkKind::Bridge)).unwrap_err();
    assert_eq!(error.errno(), Some(Errno::EEXIST));
}

#[test]
fn the_link_mode_and_the_limits_of_packets_change() {
    let (_netns, mut socket, v0, _) = cable();
    let before = socket.link_by_index(v0).unwrap().unwrap();
    assert_eq!(before.link_mode, 0);
    let limits = PacketLimits {
        gso_max_size: Some(4000),
        gso_max_segs: Some(7),
        ..before.limits
    };
    let both = LinkChange {
        link_mode: Some(1),
        limits: Some(limits),
        ..LinkChange::default()
    };
    change(&mut socket, v0, both);
    let link = socket.link_by_index(v0).unwrap().unwrap();
    assert_eq!((link.link_mode, link.limits), (1, limits));
    let back = LinkChange {
        link_mode: Some(0),
        limits: Some(before.limits),
        ..LinkChange::default()
    };
    change(&mut socket, v0, back);
    assert_eq!(socket.link_by_index(v0).unwrap().unwrap(), before);
}

#[test]
fn everything_changes_in_one_request() {
    let (netns, mut socket, v0, _) = cable();
    let address: HwAddress = "02:00:00:00:00:99".parse().unwrap();
    let all = LinkChange {
        name: Some("net1"),
        mtu: Some(9000),
        alias: Some("of a pod"),
        up: Some(true),
        addr_gen_mode: Some(AddrGenMode::None),
        address: Some(&address),
        group: Some(3),
        flags: Some(0x1380),
        tx_queue: Some(77),
        ipv4: Some(Ipv4Settings {
            arp_notify: 1,
            arp_announce: 2,
            arp_ignore: 1,
            rp_filter: 2,
        }),
        ..LinkChange::default()
    };
    change(&mut socket, v0, all);
    let link = socket.link_by_index(v0).unwrap().unwrap();
    assert_eq!(
        (link.name.as_str(), link.mtu, link.alias.as_deref()),
        ("net1", 9000, Some("of a pod"))
    );
    assert_eq!(
        (link.up, link.addr_gen_mode, link.group),
        (true, Some(AddrGenMode::None), 3)
    );
    assert_eq!(link.address, address);
    assert_eq!((link.flags, link.tx_queue), (0x1380, 77));
    assert!(link.xdp.is_empty(), "{:?}", link.xdp);
    let setting = |key: &str| fs::read_to_string(format!("/proc/sys/net/ipv4/conf/net1/{key}")).unwrap();
    let settings = netns
        .run(|| {
            [
                "arp_notify",
                "arp_announce",
                "arp_ignore",
                "rp_filter",
                "arp_accept",
            ]
            .map(setting)
        })
        .unwrap();
    assert_eq!(settings, ["1\n", "2\n", "1\n", "2\n", "0\n"]);
    change(
        &mut socket,
        v0,
        LinkChange {
            up: Some(false),
            alias: Some(""),
            ..LinkChange::default()
        },
    );
    let link = socket.link_by_index(v0).unwrap().unwrap();
    assert_eq!((link.up, link.alias, link.mtu), (false, None, 9000));
}

#[test]
fn a_link_becomes_a_port_and_is_freed_again() {
    let (_netns, mut socket, v0, _) = cable();
    socket.add_link(&new("br0", NewLinkKind::Bridge)).unwrap();
    let bridge = socket.link("br0").unwrap().unwrap().index;
    for (master, seen) in [(bridge, Some(bridge)), (0, None)] {
        let port = LinkChange {
            master: Some(master),
            ..LinkChange::default()
        };
        change(&mut socket, v0, port);
        assert_eq!(socket.link_by_index(v0).unwrap().unwrap().master, seen);
    }
}

#[test]
fn a_link_moves_to_another_namespace() {
    let (_netns, mut host, v0, _) = cable();
    let pod = fresh();
    let moved = LinkChange {
        netns: Some(pod.as_fd()),
        name: Some("net1"),
        ..LinkChange::default()
    };
    change(&mut host, v0, moved);
    assert_eq!(host.link("v0").unwrap(), None);
    assert!(socket(&pod).link("net1").unwrap().is_some());
}

#[test]
fn an_error_contains_the_kernels_explanation() {
    let (_netns, mut socket, v0, _) = cable();
    let error = socket
        .change_link(
            v0,
            &LinkChange {
                mtu: Some(70_000),
                ..LinkChange::default()
            },
        )
        .unwrap_err();
    assert_eq!(
        error.to_string(),
        "the kernel refused: EINVAL: Invalid argument (mtu greater than device maximum)"
    );
}

#[test]
fn a_link_without_address_generation_gets_no_link_local_address() {
    let (_netns, mut socket, v0, v1) = cable();
    change(
        &mut socket,
        v0,
        LinkChange {
            addr_gen_mode: Some(AddrGenMode::None),
            ..LinkChange::default()
        },
    );
    for index in [v0, v1] {
        up(&mut socket, index);
    }
    assert!(socket.wait_for_carrier(v0, Duration::from_secs(60)).unwrap());
    // The peer has an address, so the wait was long enough for both.
    let start = Instant::now();
    while socket.addresses(v1).unwrap().is_empty() {
        assert!(
            start.elapsed() < Duration::from_secs(60),
            "v1 gets no link-local address; is IPv6 off?"
        );
        thread::sleep(Duration::from_millis(5));
    }
    assert_eq!(socket.addresses(v0).unwrap(), []);
}

#[test]
fn waiting_for_carrier_ends_at_the_timeout() {
    let (netns, mut waiting, v0, v1) = cable();
    up(&mut waiting, v0);
    let start = Instant::now();
    assert!(!waiting.wait_for_carrier(v0, Duration::from_millis(60)).unwrap());
    assert!(start.elapsed() >= Duration::from_millis(60));
    let plug = thread::spawn(move || {
        thread::sleep(Duration::from_millis(60));
        up(&mut socket(&netns), v1);
    });
    assert!(waiting.wait_for_carrier(v0, Duration::from_secs(10)).unwrap());
    plug.join().unwrap();
    assert!(
        waiting.wait_for_carrier(v0, Duration::ZERO).unwrap(),
        "a look without waiting"
    );
    assert!(
        !waiting.wait_for_carrier(4711, Duration::from_secs(10)).unwrap(),
        "a link that is gone"
    );
}

#[test]
fn deleting_a_link_reports_whether_it_existed() {
    let (_netns, mut socket, v0, _) = cable();
    assert!(socket.delete_link(v0).unwrap());
    assert!(!socket.delete_link(v0).unwrap());
    assert_eq!(socket.link("v1").unwrap(), None);
}
