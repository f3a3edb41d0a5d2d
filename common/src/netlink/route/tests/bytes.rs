// SPDX-License-Identifier: Apache-2.0
//! The messages of IPoIB and bonds byte by byte, from `include/uapi/linux/if_link.h` and
//! `drivers/infiniband/ulp/ipoib/ipoib_netlink.c`. The numbers are little endian, so other machines skip
//! these tests at compile time.
#![cfg(target_endian = "little")]

use super::super::super::socket::request;
use super::super::super::{
    AddrGenMode, BondMode, FailOverMac, FunctionState, IpoibMode, Ipv4Settings, Link, LinkChange, LinkInfo,
    LinkLayer, NewLink, NewLinkKind, PacketLimits, XdpMode,
};
use super::super::virtual_function::{encode, encode_state, state_of};
use super::new;
use crate::rdma::{Guid, Pkey};
use netlink_packet_core::{NLM_F_ACK, NLM_F_CREATE, NLM_F_EXCL, Parseable};
use netlink_packet_route::RouteNetlinkMessage as Message;
use netlink_packet_route::link::LinkMessage;
use std::os::fd::BorrowedFd;

/// `ip link add link #5 name net1 netns FD type ipoib pkey 0x8001 mode connected umcast 1`
#[rustfmt::skip]
const NEW_CHILD: &[u8] = &[
    0x68, 0, 0, 0,  0x10, 0,  0x05, 0x06,  9, 0, 0, 0,  0, 0, 0, 0,      // 104 bytes, RTM_NEWLINK, flags, sequence 9
    0, 0, 0, 0,  0, 0, 0, 0,  0, 0, 0, 0,  0, 0, 0, 0,                   // struct ifinfomsg
    0x09, 0, 0x03, 0,  b'n', b'e', b't', b'1', 0, 0, 0, 0,               // IFLA_IFNAME
    0x08, 0, 0x05, 0,  0x05, 0, 0, 0,                                    // IFLA_LINK
    0x08, 0, 0x1c, 0,  0, 0, 0, 0,                                       // IFLA_NET_NS_FD
    0x2c, 0, 0x12, 0x00,                                                 // IFLA_LINKINFO
    0x0a, 0, 0x01, 0,  b'i', b'p', b'o', b'i', b'b', 0, 0, 0,            // IFLA_INFO_KIND
    0x1c, 0, 0x02, 0x00,                                                 // IFLA_INFO_DATA
    0x06, 0, 0x01, 0,  0x01, 0x80, 0, 0,                                 // IFLA_IPOIB_PKEY
    0x06, 0, 0x02, 0,  0x01, 0, 0, 0,                                    // IFLA_IPOIB_MODE
    0x06, 0, 0x03, 0,  0x01, 0, 0, 0,                                    // IFLA_IPOIB_UMCAST
];

#[test]
fn the_request_for_an_ipoib_child_has_the_kernels_layout() {
    let kind = NewLinkKind::Ipoib {
        pkey: Some(Pkey(0x8001)),
        mode: Some(IpoibMode::Connected),
        umcast: Some(true),
    };
    let stdin = std::io::stdin();
    let netns: BorrowedFd<'_> = std::os::fd::AsFd::as_fd(&stdin);
    let child = NewLink {
        parent: 5,
        netns: Some(netns),
        ..new("net1", kind)
    };
    let bytes = request(
        Message::NewLink(child.encode()),
        NLM_F_ACK | NLM_F_CREATE | NLM_F_EXCL,
        9,
    );
    assert_eq!(hex(&bytes), hex(NEW_CHILD));
}

/// The child above as `ip link show` reports it, reduced to the attributes that the parser reads.
#[rustfmt::skip]
const CHILD: &[u8] = &[
    0, 0, 0x20, 0,  7, 0, 0, 0,  0x43, 0x10, 0x01, 0,  0, 0, 0, 0,       // ARPHRD_INFINIBAND, UP|BROADCAST|RUNNING|MULTICAST|LOWER_UP
    0x09, 0, 0x03, 0,  b'n', b'e', b't', b'1', 0, 0, 0, 0,               // IFLA_IFNAME
    0x08, 0, 0x04, 0,  0xfc, 0x07, 0, 0,                                 // IFLA_MTU 2044
    0x08, 0, 0x33, 0,  0xec, 0xff, 0, 0,                                 // IFLA_MAX_MTU 65516
    0x08, 0, 0x05, 0,  0x05, 0, 0, 0,                                    // IFLA_LINK
    0x08, 0, 0x25, 0,  0, 0, 0, 0,                                       // IFLA_LINK_NETNSID
    0x05, 0, 0x10, 0,  6, 0, 0, 0,                                       // IFLA_OPERSTATE
    0x18, 0, 0x01, 0,  0, 0, 0x10, 0x49, 0xfe, 0x80, 0, 0, 0, 0, 0, 0,   // IFLA_ADDRESS
    0x24, 0x8a, 0x07, 0x03, 0, 0xb4, 0x0c, 0x5e,
    0x18, 0, 0x02, 0,  0, 0xff, 0xff, 0xff, 0xff, 0x12, 0x40, 0x1b, 0x80, 0x01, 0, 0, // IFLA_BROADCAST
    0, 0, 0, 0, 0xff, 0xff, 0xff, 0xff,
    0x2c, 0, 0x12, 0,                                                    // IFLA_LINKINFO
    0x0a, 0, 0x01, 0,  b'i', b'p', b'o', b'i', b'b', 0, 0, 0,            // IFLA_INFO_KIND
    0x1c, 0, 0x02, 0,                                                    // IFLA_INFO_DATA
    0x06, 0, 0x01, 0,  0x01, 0x80, 0, 0,
    0x06, 0, 0x02, 0,  0x01, 0, 0, 0,
    0x06, 0, 0x03, 0,  0x01, 0, 0, 0,
    0x10, 0, 0x1a, 0,  0x0c, 0, 0x0a, 0,  0x05, 0, 0x08, 0,  1, 0, 0, 0, // IFLA_AF_SPEC, AF_INET6, IFLA_INET6_ADDR_GEN_MODE
];

#[test]
fn an_ipoib_child_is_read_from_the_kernels_layout() {
    let link = Link::decode(LinkMessage::parse(CHILD).unwrap());
    assert_eq!(
        (link.index, link.name.as_str(), link.layer),
        (7, "net1", LinkLayer::Infiniband)
    );
    assert_eq!(
        (link.mtu, link.max_mtu, link.up, link.carrier),
        (2044, Some(65516), true, true)
    );
    assert_eq!((link.parent, link.parent_netnsid), (Some(5), Some(0)));
    assert_eq!(link.kind.as_deref(), Some("ipoib"));
    let info = LinkInfo::Ipoib {
        pkey: Pkey(0x8001),
        mode: IpoibMode::Connected,
        umcast: true,
    };
    assert_eq!(link.info, info);
    assert_eq!(link.address.port_guid(), Some(Guid(0x248a_0703_00b4_0c5e)));
    assert_eq!(link.broadcast.as_bytes()[8..10], [0x80, 0x01]);
    assert_eq!(link.addr_gen_mode, Some(AddrGenMode::None));
}

#[test]
fn a_link_that_is_its_own_parent_in_the_same_namespace_has_none() {
    let mut message = LinkMessage::parse(CHILD).unwrap();
    message.header.index = 5;
    assert_eq!(
        Link::decode(message.clone()).parent,
        Some(5),
        "the parent is number 5 of another namespace"
    );
    message
        .attributes
        .retain(|a| !matches!(a, netlink_packet_route::link::LinkAttribute::LinkNetNsId(_)));
    assert_eq!(Link::decode(message).parent, None);
}

/// `ip link set #7 up addrgenmode none`
#[rustfmt::skip]
const CHANGE: &[u8] = &[
    0x30, 0, 0, 0,  0x13, 0,  0x01, 0,  3, 0, 0, 0,  0, 0, 0, 0,         // 48 bytes, RTM_SETLINK, sequence 3
    0, 0, 0, 0,  7, 0, 0, 0,  1, 0, 0, 0,  1, 0, 0, 0,                   // IFF_UP and its mask
    0x10, 0, 0x1a, 0,  0x0c, 0, 0x0a, 0,  0x05, 0, 0x08, 0,  1, 0, 0, 0,
];

#[test]
fn the_request_to_change_a_link_has_the_kernels_layout() {
    let change = LinkChange {
        up: Some(true),
        addr_gen_mode: Some(AddrGenMode::None),
        ..LinkChange::default()
    };
    let bytes = request(Message::SetLink(change.encode(7)), 0, 3);
    assert_eq!(hex(&bytes), hex(CHANGE));
}

/// `ip link set #7 up arp off txqueuelen 77` and, in the same request, `xdpgeneric off`.
#[rustfmt::skip]
const PACKET_SETTINGS: &[u8] = &[
    0x3c, 0, 0, 0,  0x13, 0,  0x01, 0,  3, 0, 0, 0,  0, 0, 0, 0,         // 60 bytes, RTM_SETLINK, sequence 3
    0, 0, 0, 0,  7, 0, 0, 0,  0x81, 0x10, 0, 0,  0xa5, 0xf3, 0, 0,       // IFF_UP, IFF_NOARP, IFF_MULTICAST and their mask
    0x08, 0, 0x0d, 0,  77, 0, 0, 0,                                      // IFLA_TXQLEN
    0x14, 0, 0x2b, 0,                                                    // IFLA_XDP
    0x08, 0, 0x01, 0,  0xff, 0xff, 0xff, 0xff,                           // IFLA_XDP_FD: none
    0x08, 0, 0x03, 0,  2, 0, 0, 0,                                       // IFLA_XDP_FLAGS: XDP_FLAGS_SKB_MODE
];

#[test]
fn the_request_for_packet_settings_has_the_kernels_layout() {
    let change = LinkChange {
        up: Some(true),
        flags: Some(0x1080),
        tx_queue: Some(77),
        without_xdp: Some(XdpMode::Generic),
        ..LinkChange::default()
    };
    let bytes = request(Message::SetLink(change.encode(7)), 0, 3);
    assert_eq!(hex(&bytes), hex(PACKET_SETTINGS));
}

/// `ip link set #7 mode dormant gso_max_size 65536 gso_max_segs 128 gro_max_size 65535 gso_ipv4_max_size 65534
/// gro_ipv4_max_size 65533`, which `ip` sends as two requests
#[rustfmt::skip]
const LIMITS: &[u8] = &[
    0x50, 0, 0, 0,  0x13, 0,  0x01, 0,  3, 0, 0, 0,  0, 0, 0, 0,         // 80 bytes, RTM_SETLINK, sequence 3
    0, 0, 0, 0,  7, 0, 0, 0,  0, 0, 0, 0,  0, 0, 0, 0,                   // struct ifinfomsg
    0x05, 0, 0x11, 0,  1, 0, 0, 0,                                       // IFLA_LINKMODE
    0x08, 0, 0x29, 0,  0, 0, 1, 0,                                       // IFLA_GSO_MAX_SIZE
    0x08, 0, 0x28, 0,  0x80, 0, 0, 0,                                    // IFLA_GSO_MAX_SEGS
    0x08, 0, 0x3a, 0,  0xff, 0xff, 0, 0,                                 // IFLA_GRO_MAX_SIZE
    0x08, 0, 0x3f, 0,  0xfe, 0xff, 0, 0,                                 // IFLA_GSO_IPV4_MAX_SIZE
    0x08, 0, 0x40, 0,  0xfd, 0xff, 0, 0,                                 // IFLA_GRO_IPV4_MAX_SIZE
];

#[test]
fn the_request_for_packet_limits_has_the_kernels_layout() {
    let change = LinkChange {
        link_mode: Some(1),
        limits: Some(PacketLimits {
            gso_max_size: Some(65536),
            gso_max_segs: Some(128),
            gro_max_size: Some(65535),
            gso_ipv4_max_size: Some(65534),
            gro_ipv4_max_size: Some(65533),
        }),
        ..LinkChange::default()
    };
    let bytes = request(Message::SetLink(change.encode(7)), 0, 3);
    assert_eq!(hex(&bytes), hex(LIMITS));
}

/// A change of IPv4 settings and of address generation. `ip` has no such command; the layout is that of
/// `inet_set_link_af` of `net/ipv4/devinet.c`.
#[rustfmt::skip]
const SETTINGS: &[u8] = &[
    0x50, 0, 0, 0,  0x13, 0,  0x01, 0,  4, 0, 0, 0,  0, 0, 0, 0,         // 80 bytes, RTM_SETLINK, sequence 4
    0, 0, 0, 0,  7, 0, 0, 0,  0, 0, 0, 0,  0, 0, 0, 0,                   // struct ifinfomsg
    0x30, 0, 0x1a, 0,                                                    // IFLA_AF_SPEC
    0x20, 0, 0x02, 0,                                                    // AF_INET
    0x1c, 0, 0x01, 0x80,                                                 // IFLA_INET_CONF, nested
    0x08, 0, 0x08, 0,  2, 0, 0, 0,                                       // IPV4_DEVCONF_RP_FILTER
    0x08, 0, 0x13, 0,  1, 0, 0, 0,                                       // IPV4_DEVCONF_ARP_IGNORE
    0x08, 0, 0x16, 0,  1, 0, 0, 0,                                       // IPV4_DEVCONF_ARP_NOTIFY
    0x0c, 0, 0x0a, 0,  0x05, 0, 0x08, 0,  1, 0, 0, 0,                    // AF_INET6, IFLA_INET6_ADDR_GEN_MODE
];

#[test]
fn the_request_for_ipv4_settings_has_the_kernels_layout() {
    let ipv4 = Ipv4Settings {
        arp_notify: 1,
        arp_ignore: 1,
        rp_filter: 2,
        ..Ipv4Settings::default()
    };
    let change = LinkChange {
        ipv4: Some(ipv4),
        addr_gen_mode: Some(AddrGenMode::None),
        ..LinkChange::default()
    };
    let bytes = request(Message::SetLink(change.encode(7)), 0, 4);
    assert_eq!(hex(&bytes), hex(SETTINGS));
}

/// `ip link add net1 type bond mode active-backup miimon 100 fail_over_mac active num_grat_arp 5`
#[rustfmt::skip]
const NEW_BOND: &[u8] = &[
    0x60, 0, 0, 0,  0x10, 0,  0x05, 0x06,  9, 0, 0, 0,  0, 0, 0, 0,      // 96 bytes, RTM_NEWLINK, flags, sequence 9
    0, 0, 0, 0,  0, 0, 0, 0,  0, 0, 0, 0,  0, 0, 0, 0,                   // struct ifinfomsg
    0x09, 0, 0x03, 0,  b'n', b'e', b't', b'1', 0, 0, 0, 0,               // IFLA_IFNAME
    0x34, 0, 0x12, 0,                                                    // IFLA_LINKINFO
    0x09, 0, 0x01, 0,  b'b', b'o', b'n', b'd', 0, 0, 0, 0,               // IFLA_INFO_KIND
    0x24, 0, 0x02, 0,                                                    // IFLA_INFO_DATA
    0x05, 0, 0x01, 0,  1, 0, 0, 0,                                       // IFLA_BOND_MODE
    0x08, 0, 0x03, 0,  100, 0, 0, 0,                                     // IFLA_BOND_MIIMON
    0x05, 0, 0x0d, 0,  1, 0, 0, 0,                                       // IFLA_BOND_FAIL_OVER_MAC
    0x05, 0, 0x10, 0,  5, 0, 0, 0,                                       // IFLA_BOND_NUM_PEER_NOTIF
];

#[test]
fn the_request_for_a_bond_has_the_kernels_layout() {
    let kind = NewLinkKind::Bond {
        mode: BondMode::ActiveBackup,
        miimon: 100,
        fail_over_mac: FailOverMac::Active,
        peer_notifications: 5,
    };
    let bytes = request(
        Message::NewLink(new("net1", kind).encode()),
        NLM_F_ACK | NLM_F_CREATE | NLM_F_EXCL,
        9,
    );
    assert_eq!(hex(&bytes), hex(NEW_BOND));
}

/// That bond with an active port, reduced to the attributes that the parser reads.
#[rustfmt::skip]
const BOND: &[u8] = &[
    0, 0, 0x20, 0,  4, 0, 0, 0,  0x43, 0x14, 0x01, 0,  0, 0, 0, 0,       // ARPHRD_INFINIBAND, UP|BROADCAST|RUNNING|MASTER|MULTICAST|LOWER_UP
    0x09, 0, 0x03, 0,  b'n', b'e', b't', b'1', 0, 0, 0, 0,               // IFLA_IFNAME
    0x34, 0, 0x12, 0,                                                    // IFLA_LINKINFO
    0x09, 0, 0x01, 0,  b'b', b'o', b'n', b'd', 0, 0, 0, 0,               // IFLA_INFO_KIND
    0x24, 0, 0x02, 0,                                                    // IFLA_INFO_DATA
    0x05, 0, 0x01, 0,  1, 0, 0, 0,                                       // IFLA_BOND_MODE
    0x08, 0, 0x02, 0,  7, 0, 0, 0,                                       // IFLA_BOND_ACTIVE_SLAVE
    0x08, 0, 0x03, 0,  100, 0, 0, 0,                                     // IFLA_BOND_MIIMON
    0x05, 0, 0x0d, 0,  1, 0, 0, 0,                                       // IFLA_BOND_FAIL_OVER_MAC
];

#[test]
fn a_bond_is_read_from_the_kernels_layout() {
    let link = Link::decode(LinkMessage::parse(BOND).unwrap());
    assert_eq!(
        (link.kind.as_deref(), link.layer),
        (Some("bond"), LinkLayer::Infiniband)
    );
    let info = LinkInfo::Bond {
        mode: BondMode::ActiveBackup,
        active: Some(7),
        miimon: 100,
        fail_over_mac: FailOverMac::Active,
    };
    assert_eq!(link.info, info);
}

/// `ip link set #7 master #4`
#[rustfmt::skip]
const ENSLAVE: &[u8] = &[
    0x28, 0, 0, 0,  0x13, 0,  0x01, 0,  3, 0, 0, 0,  0, 0, 0, 0,         // 40 bytes, RTM_SETLINK, sequence 3
    0, 0, 0, 0,  7, 0, 0, 0,  0, 0, 0, 0,  0, 0, 0, 0,
    0x08, 0, 0x0a, 0,  4, 0, 0, 0,                                       // IFLA_MASTER
];

#[test]
fn the_request_to_join_a_bond_has_the_kernels_layout() {
    let change = LinkChange {
        master: Some(4),
        ..LinkChange::default()
    };
    let bytes = request(Message::SetLink(change.encode(7)), 0, 3);
    assert_eq!(hex(&bytes), hex(ENSLAVE));
}

/// Formats four bytes a word, which makes differences easy to see.
fn hex(bytes: &[u8]) -> Vec<String> {
    bytes.chunks(4).map(|word| format!("{word:02x?}")).collect()
}

/// `ip link set #5 vf 3 node_guid 00:02:c9:03:00:00:00:01` and `port_guid …02` in one request. Each has its own
/// `IFLA_VF_INFO`: the kernel sets only the first GUID of one.
#[rustfmt::skip]
const FUNCTION_GUIDS: &[u8] = &[
    0x54, 0, 0, 0,  0x13, 0,  0x05, 0,  9, 0, 0, 0,  0, 0, 0, 0,         // 84 bytes, RTM_SETLINK, flags, sequence 9
    0, 0, 0, 0,  5, 0, 0, 0,  0, 0, 0, 0,  0, 0, 0, 0,                   // struct ifinfomsg
    0x34, 0, 0x16, 0x00,                                                 // IFLA_VFINFO_LIST
    0x18, 0, 0x01, 0x00,                                                 // IFLA_VF_INFO
    0x14, 0, 0x0a, 0,  3, 0, 0, 0,  0, 0, 0, 0,                          // IFLA_VF_IB_NODE_GUID: struct ifla_vf_guid
    0x01, 0, 0, 0,  0x03, 0xc9, 0x02, 0x00,
    0x18, 0, 0x01, 0x00,                                                 // IFLA_VF_INFO
    0x14, 0, 0x0b, 0,  3, 0, 0, 0,  0, 0, 0, 0,                          // IFLA_VF_IB_PORT_GUID
    0x02, 0, 0, 0,  0x03, 0xc9, 0x02, 0x00,
];

#[test]
fn the_request_for_vf_guids_has_the_kernels_layout() {
    let (node, port) = (Guid(0x0002_c903_0000_0001), Guid(0x0002_c903_0000_0002));
    let message = encode(5, 3, node, port);
    let bytes = request(Message::SetLink(message), NLM_F_ACK, 9);
    assert_eq!(hex(&bytes), hex(FUNCTION_GUIDS));
}

#[rustfmt::skip]
const FUNCTION_STATE: &[u8] = &[
    0x34, 0, 0, 0,  0x13, 0,  0x05, 0,  9, 0, 0, 0,  0, 0, 0, 0,         // 52 bytes, RTM_SETLINK, flags, sequence 9
    0, 0, 0, 0,  5, 0, 0, 0,  0, 0, 0, 0,  0, 0, 0, 0,                   // struct ifinfomsg
    0x14, 0, 0x16, 0x00,                                                 // IFLA_VFINFO_LIST
    0x10, 0, 0x01, 0x00,                                                 // IFLA_VF_INFO
    0x0c, 0, 0x05, 0,  3, 0, 0, 0,  2, 0, 0, 0,                          // IFLA_VF_LINK_STATE: struct ifla_vf_link_state
];

#[test]
fn the_request_for_a_vf_link_state_has_the_kernels_layout_and_is_read_back() {
    let message = encode_state(5, 3, FunctionState::Disable);
    assert_eq!(state_of(&message, 3), Some(FunctionState::Disable));
    assert_eq!(state_of(&message, 2), None, "another function");
    let bytes = request(Message::SetLink(message), NLM_F_ACK, 9);
    assert_eq!(hex(&bytes), hex(FUNCTION_STATE));
}
