// SPDX-License-Identifier: Apache-2.0
use super::{Claim, Nonce, Probe, probe, receiver_of_replies};
use crate::announce::frames;
use crate::announce::send::tests::cable;
use crate::netlink::{
    AddressOptions, HwAddress, IpvlanMode, Link, LinkChange, LinkInfo, LinkLayer, MacvlanMode, NewLink,
    NewLinkKind, Route, Socket, new,
};
use crate::netns::Netns;
use crate::packet::{Frame, PacketSocket};
use proptest::prelude::{any, prop_assert, proptest};
use std::net::IpAddr;
use std::sync::atomic::{AtomicBool, Ordering};

const OWN: &str = "00:00:10:49:fe:80:00:00:00:00:00:00:24:8a:07:03:00:b4:0c:5e";
const OTHER: &str = "00:00:20:50:fe:80:00:00:00:00:00:00:24:8a:07:03:00:b4:0c:5e";

fn infiniband(address: &str) -> Link {
    Link {
        address: address.parse().unwrap(),
        broadcast: "00:ff:ff:ff:ff:12:40:1b:80:01:00:00:00:00:00:00:ff:ff:ff:ff"
            .parse()
            .unwrap(),
        ..Link::new(7, "net1", LinkLayer::Infiniband)
    }
}

fn ethernet(address: &str) -> Link {
    Link {
        address: address.parse().unwrap(),
        broadcast: "ff:ff:ff:ff:ff:ff".parse().unwrap(),
        ..Link::new(7, "net1", LinkLayer::Ethernet)
    }
}

fn ip(text: &str) -> IpAddr {
    text.parse().unwrap()
}

fn bytes(hex: &str) -> Vec<u8> {
    let digits: String = hex.split_whitespace().collect();
    (0..digits.len())
        .step_by(2)
        .map(|at| u8::from_str_radix(&digits[at..at + 2], 16).unwrap())
        .collect()
}

const NONCE: Nonce = [1, 2, 3, 4, 5, 6];

fn probe_of<'p>(link: &'p Link, addresses: &'p [IpAddr]) -> Probe<'p> {
    Probe {
        link,
        addresses,
        nonce: NONCE,
    }
}

fn questions(link: &Link, addresses: &[IpAddr]) -> Vec<Frame> {
    probe_of(link, addresses).questions()
}

fn claim(link: &Link, addresses: &[IpAddr], frame: &[u8]) -> Option<Claim> {
    probe_of(link, addresses).claim(frame)
}

#[test]
fn an_arp_probe_has_no_sender_address() {
    let [question] = &questions(&ethernet("02:00:00:00:0a:0b"), &[ip("10.1.0.2")])[..] else {
        panic!("one request for one address");
    };
    let expected = "0001 0800 06 04 0001  0200 0000 0a0b 0000 0000  0000 0000 0000 0a01 0002";
    assert_eq!(question.bytes, bytes(expected));
    assert_eq!(question.destination, [0xff; 6]);
}

// The checksum was computed by another program from RFC 4443 § 2.3.
#[test]
fn a_solicitation_goes_to_the_solicited_node_group_of_the_partition() {
    let [question] = &questions(&infiniband(OWN), &[ip("fd00:1::12:3456")])[..] else {
        panic!("one request for one address");
    };
    let header = "6000 0000 0020 3a ff 0000 0000 0000 0000 0000 0000 0000 0000 ff02 0000 0000 0000 0000 0001 ff12 3456";
    let body = "87 00 fdc0 0000 0000 fd00 0001 0000 0000 0000 0000 0012 3456 0e01 0102 0304 0506";
    assert_eq!(question.bytes, bytes(&format!("{header}{body}")));
    let group = "00ff ffff ff12 601b 8001 0000 0000 0001 ff12 3456";
    assert_eq!(question.destination, bytes(group));
}

#[test]
fn a_link_without_neighbours_is_not_asked() {
    let tunnel = Link::new(7, "tun0", LinkLayer::Other(65534));
    assert_eq!(questions(&tunnel, &[ip("10.1.0.2"), ip("fd00::2")]), []);
}

/// The kernel drops every broadcast of such a child, and the sender gets `ENOBUFS`.
#[test]
fn an_ipvlan_child_is_asked_and_announced_only_in_l2_mode() {
    let addresses = [ip("10.1.0.2"), ip("fd00::2")];
    for (mode, asked) in [
        (IpvlanMode::L2, true),
        (IpvlanMode::L3, false),
        (IpvlanMode::L3s, false),
    ] {
        let child = Link {
            info: LinkInfo::Ipvlan { mode },
            ..ethernet("02:00:00:00:0a:0b")
        };
        assert_eq!(!questions(&child, &addresses).is_empty(), asked, "{mode:?}");
        assert_eq!(!frames(&child, &addresses).is_empty(), asked, "{mode:?}");
    }
}

#[test]
fn an_announcement_of_another_host_is_a_claim_with_its_hardware_address() {
    for (own, other) in [
        (infiniband(OWN), infiniband(OTHER)),
        (ethernet("02:00:00:00:0a:0b"), ethernet("02:00:00:00:0a:0c")),
    ] {
        for address in [ip("10.1.0.2"), ip("fd00:1::2")] {
            for frame in frames(&other, &[address]) {
                let found = claim(&own, &[address], &frame.bytes).expect("a claim");
                assert_eq!(
                    (found.address, found.hardware.as_ref()),
                    (address, Some(&other.address))
                );
            }
        }
    }
}

#[test]
fn children_of_one_port_are_distinguished_by_their_full_addresses() {
    let probe = &questions(&infiniband(OTHER), &[ip("10.1.0.2")])[0];
    let found = claim(&infiniband(OWN), &[ip("10.1.0.2")], &probe.bytes).expect("a claim");
    assert_eq!(found.hardware.unwrap().to_string(), OTHER);
}

#[test]
fn a_links_own_probe_and_other_addresses_are_no_claim() {
    let own = infiniband(OWN);
    for address in [ip("10.1.0.2"), ip("fd00::2")] {
        let probe = &questions(&own, &[address])[0];
        assert_eq!(claim(&own, &[address], &probe.bytes), None);
    }
    for frame in frames(&infiniband(OTHER), &[ip("10.1.0.3"), ip("fd00::3")]) {
        assert_eq!(claim(&own, &[ip("10.1.0.2"), ip("fd00::2")], &frame.bytes), None);
    }
}

#[test]
fn a_solicitation_of_another_probe_or_of_dad_is_a_claim() {
    let asked = [ip("fd00:1::2")];
    for (own, other) in [
        (infiniband(OWN), infiniband(OTHER)),
        (ethernet("02:00:00:00:0a:0b"), ethernet("02:00:00:00:0a:0c")),
    ] {
        let of_other = |address: &str, nonce| {
            let addresses = [ip(address)];
            let nonce = Probe {
                nonce,
                ..probe_of(&other, &addresses)
            };
            nonce.questions().remove(0).bytes
        };
        let found = claim(&own, &asked, &of_other("fd00:1::2", [9; 6])).expect("a claim");
        assert_eq!(
            (found.address, found.hardware, found.probes),
            (asked[0], None, true)
        );
        // A kernel without RFC 7527 sends no nonce.
        let mut without = of_other("fd00:1::2", NONCE);
        without.truncate(without.len() - 8);
        without[5] -= 8;
        assert!(claim(&own, &asked, &without).is_some());
        assert_eq!(
            claim(&own, &asked, &of_other("fd00:1::2", NONCE)),
            None,
            "its own"
        );
        assert_eq!(claim(&own, &asked, &of_other("fd00:1::3", [9; 6])), None);
    }
}

/// A host that solicits a neighbour has an address of its own, and looks for that of the neighbour.
#[test]
fn a_solicitation_of_a_host_with_an_address_is_no_claim() {
    let asked = [ip("fd00:1::2")];
    let own = ethernet("02:00:00:00:0a:0b");
    let mut frame = Probe {
        nonce: [9; 6],
        ..probe_of(&own, &asked)
    }
    .questions()
    .remove(0)
    .bytes;
    assert!(claim(&own, &asked, &frame).is_some());
    frame[8] = 0xfd;
    assert_eq!(claim(&own, &asked, &frame), None);
}

/// RFC 4861 § 7.1.1: such a solicitation is discarded.
#[test]
fn a_solicitation_that_is_not_valid_is_no_claim() {
    let asked = [ip("fd00:1::2")];
    let own = ethernet("02:00:00:00:0a:0b");
    let of_other = Probe {
        nonce: [9; 6],
        ..probe_of(&own, &asked)
    };
    let valid = of_other.questions().remove(0).bytes;
    assert!(claim(&own, &asked, &valid).is_some());
    let padded = [valid.as_slice(), &[0; 5]].concat();
    assert!(claim(&own, &asked, &padded).is_some(), "a link may append bytes");
    // The length of the packet, the hop limit, the last byte of the group, the length of the option.
    for (at, value) in [(5, 33), (5, 31), (7, 254), (39, 0), (65, 0), (65, 2)] {
        let mut frame = valid.clone();
        frame[at] = value;
        assert_eq!(claim(&own, &asked, &frame), None, "byte {at} is {value}");
    }
}

/// Both addresses have one group, which a socket cannot join twice.
#[test]
fn two_addresses_with_the_same_last_bytes_are_probed() {
    let asked = [ip("fd00:1::2"), ip("fd00:2::2")];
    let found = found_beside_probe_of(&asked, &asked[1..]);
    assert_eq!(found.map(|claim| claim.address), Some(asked[1]));
}

#[test]
fn an_advertisement_forwarded_by_a_router_is_no_claim() {
    let mut frame = frames(&infiniband(OTHER), &[ip("fd00::2")]).remove(0);
    frame.bytes[7] = 254;
    assert_eq!(claim(&infiniband(OWN), &[ip("fd00::2")], &frame.bytes), None);
}

proptest! {
    #[test]
    fn any_frame_is_parsed_without_a_panic_or_a_foreign_address(
        start in 0..5_usize, noise in proptest::collection::vec(any::<u8>(), 0..120), at in 0..120_usize
    ) {
        let asked = [ip("10.1.0.2"), ip("fd00::2")];
        let mut valid = frames(&infiniband(OTHER), &asked);
        valid.extend(questions(&infiniband(OTHER), &asked));
        let mut frame = valid[start].bytes.clone();
        for (offset, byte) in noise.into_iter().enumerate() {
            if let Some(place) = frame.get_mut(at + offset) {
                *place = byte;
            }
        }
        frame.truncate(at.max(1) * 2);
        let found = claim(&infiniband(OWN), &asked, &frame);
        prop_assert!(found.is_none_or(|claim| asked.contains(&claim.address)));
    }
}

/// Adds an address that is usable at once to the link `v1` of `netns`. Returns the link's hardware address.
fn give(netns: &Netns, address: &str) -> HwAddress {
    let mut socket = Socket::<Route>::open_in(netns).unwrap();
    let link = socket.link("v1").unwrap().unwrap();
    let options = AddressOptions { no_dad: true };
    socket
        .add_address(link.index, address.parse().unwrap(), options)
        .unwrap();
    link.address
}

#[test]
fn the_kernel_of_another_host_answers_a_probe_with_its_hardware_address() {
    for (address, subnet) in [("10.1.0.2", "10.1.0.2/24"), ("fd00:1::2", "fd00:1::2/64")] {
        let (here, there, index) = cable();
        let owner = give(&there, subnet);
        let link = Socket::<Route>::open_in(&here)
            .unwrap()
            .link_by_index(index)
            .unwrap()
            .unwrap();
        let ask = |address| here.run(|| probe(&link, &[ip(address)], None)).unwrap().unwrap();
        let found = ask(address).expect("a claim");
        assert_eq!((found.address, found.hardware), (ip(address), Some(owner)));
    }
}

/// Creates a macvlan child of the link `parent` of `netns`, and brings it up.
fn child(netns: &Netns, parent: u32) -> Link {
    let mut socket = Socket::<Route>::open_in(netns).unwrap();
    let mode = MacvlanMode::Bridge;
    let kind = NewLinkKind::Macvlan {
        mode,
        bc_queue_len: None,
    };
    let child = NewLink {
        parent,
        ..new("child", kind)
    };
    socket.add_link(&child).unwrap();
    let child = socket.link("child").unwrap().unwrap();
    let up = LinkChange {
        up: Some(true),
        ..LinkChange::default()
    };
    socket.change_link(child.index, &up).unwrap();
    child
}

/// Such a child that asks with the parent's hardware address, as an ipvlan child does.
fn child_with_address_of(netns: &Netns, parent: u32) -> Link {
    let child = child(netns, parent);
    let mut socket = Socket::<Route>::open_in(netns).unwrap();
    let parent = socket.link_by_index(parent).unwrap().unwrap();
    Link {
        address: parent.address,
        ..child
    }
}

/// Ends the other thread, also if this one panics.
struct Done<'d>(&'d AtomicBool);

impl Drop for Done<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// What a probe of `asked` finds while a host behind the cable probes for `other`. Both ask from a macvlan child, which
/// receives only the groups of which it is a member, like a port of `InfiniBand`.
fn found_beside_probe_of(asked: &[IpAddr], other: &[IpAddr]) -> Option<Claim> {
    let (here, there, index) = cable();
    let mut socket = Socket::<Route>::open_in(&there).unwrap();
    let far_end = socket.link("v1").unwrap().unwrap().index;
    let (first, second) = (child(&here, index), child(&there, far_end));
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let _done = Done(&done);
        // The other host repeats its probe, because a busy machine may run one probe after the other.
        scope.spawn(|| {
            while !done.load(Ordering::Relaxed) {
                there.run(|| probe(&second, other, None)).unwrap().unwrap();
            }
        });
        (0..100).find_map(|_| here.run(|| probe(&first, asked, None)).unwrap().unwrap())
    })
}

#[test]
fn two_probes_for_one_address_at_the_same_moment_find_each_other() {
    for address in ["10.1.0.2", "fd00:1::2"] {
        let asked = [ip(address)];
        assert!(found_beside_probe_of(&asked, &asked).is_some(), "{address}");
    }
}

#[test]
fn a_reply_that_only_the_parent_receives_is_a_claim() {
    let (here, there, parent) = cable();
    let owner = give(&there, "10.1.0.2/24");
    let child = child_with_address_of(&here, parent);
    let asked = [ip("10.1.0.2")];
    let ask = |replies| here.run(|| probe(&child, &asked, replies)).unwrap().unwrap();
    assert_eq!(ask(None), None, "the child receives the reply");
    let replies = here.run(|| PacketSocket::arp_receiver(parent)).unwrap().unwrap();
    let found = ask(Some(&replies)).expect("a claim");
    assert_eq!((found.address, found.hardware), (asked[0], Some(owner)));
}

#[test]
fn only_an_ipvlan_child_has_its_replies_at_its_parent() {
    let ipvlan = |parent| Link {
        info: LinkInfo::Ipvlan { mode: IpvlanMode::L2 },
        parent,
        ..ethernet("02:00:00:00:0a:0b")
    };
    let macvlan = Link {
        info: LinkInfo::Macvlan {
            mode: MacvlanMode::Bridge,
        },
        ..ipvlan(Some(4))
    };
    assert_eq!(receiver_of_replies(&ipvlan(Some(4))), Some(4));
    assert_eq!(receiver_of_replies(&ipvlan(None)), None);
    assert_eq!(receiver_of_replies(&macvlan), None);
}

#[test]
fn an_unused_address_gets_no_answer() {
    let (here, there, index) = cable();
    give(&there, "10.1.0.2/24");
    give(&there, "fd00:1::2/64");
    let link = Socket::<Route>::open_in(&here)
        .unwrap()
        .link_by_index(index)
        .unwrap()
        .unwrap();
    let silent = [ip("10.1.0.3"), ip("fd00:1::3")];
    assert_eq!(here.run(|| probe(&link, &silent, None)).unwrap().unwrap(), None);
}

#[test]
fn a_link_that_is_down_is_an_error_and_not_a_free_address() {
    let netns = crate::netns::tests::fresh();
    let link = Link {
        address: "02:00:00:00:0a:0b".parse().unwrap(),
        broadcast: "ff:ff:ff:ff:ff:ff".parse().unwrap(),
        ..Link::new(1, "lo", LinkLayer::Ethernet)
    };
    let error = netns
        .run(|| probe(&link, &[ip("10.1.0.2")], None))
        .unwrap()
        .unwrap_err();
    assert_eq!(error.raw_os_error(), Some(libc::ENETDOWN));
}
