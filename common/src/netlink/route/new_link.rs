// SPDX-License-Identifier: Apache-2.0
use super::super::hardware::HwAddress;
use super::super::text::{self, IFLA_IFALIAS, IFLA_IFNAME};
use super::kind::{AddrGenMode, BondMode, FailOverMac, IpoibMode, IpvlanMode, MacvlanMode};
use super::limits::PacketLimits;
use super::link::SETTABLE;
use super::xdp::XdpMode;
use crate::id::Pkey;
use netlink_packet_route::link::{
    AfSpecInet, AfSpecInet6, AfSpecUnspec, InetDevConf, InfoBond, InfoData, InfoIpVlan, InfoIpoib, InfoKind,
    InfoMacVlan, InfoVeth, LinkAttribute, LinkFlags, LinkInfo, LinkMessage,
};
use std::os::fd::{AsRawFd, BorrowedFd};

/// A link to create (`RTM_NEWLINK`).
#[derive(Clone, Copy, Debug)]
pub struct NewLink<'a> {
    /// Name, at most 15 bytes.
    pub name: &'a str,
    /// Index of the parent in the socket's namespace; 0 for kinds without one.
    pub parent: u32,
    /// The namespace of the new link; `None` is the socket's own namespace.
    pub netns: Option<BorrowedFd<'a>>,
    /// MTU in bytes; `None` leaves it to the driver. IPoIB sets its own when it joins the broadcast group.
    pub mtu: Option<u32>,
    /// Hardware address; `None` leaves it to the driver.
    pub address: Option<&'a HwAddress>,
    /// Group, 0 by default.
    pub group: u32,
    /// Its kind.
    pub kind: NewLinkKind<'a>,
}

/// The kind of a new link. The driver chooses each `None`.
#[derive(Clone, Copy, Debug)]
pub enum NewLinkKind<'a> {
    /// An IPoIB child of an IPoIB link that is not itself a child (`ipoib_new_child_link`).
    Ipoib {
        /// Partition; `None` takes the parent's. The kernel makes it a full member.
        pkey: Option<Pkey>,
        /// Transport; the default is datagram.
        mode: Option<IpoibMode>,
        /// Whether user space decides which multicast groups are joined.
        umcast: Option<bool>,
    },
    /// Another address on an Ethernet parent.
    Macvlan {
        /// Which macvlans exchange frames.
        mode: MacvlanMode,
        /// How many broadcast frames may wait (`IFLA_MACVLAN_BC_QUEUE_LEN`, Linux 5.11). The kernel uses the
        /// largest value of all macvlans of the parent.
        bc_queue_len: Option<u32>,
    },
    /// The same address on an Ethernet parent.
    Ipvlan {
        /// Shared layer.
        mode: IpvlanMode,
    },
    /// Several links under one name. It takes the link layer of its first port. Unlike every other kind it
    /// cannot move to another namespace.
    Bond {
        /// How frames are spread.
        mode: BondMode,
        /// Milliseconds between two checks of the ports' carrier.
        miimon: u32,
        /// Whose hardware address it has.
        fail_over_mac: FailOverMac,
        /// How many times a new active port is announced to the neighbours, one `miimon` apart.
        peer_notifications: u8,
    },
    /// A link that drops every frame.
    Dummy,
    /// One end of a cable.
    Veth {
        /// Name of the other end, which is made beside the link.
        peer: &'a str,
    },
    /// A bridge in software.
    Bridge,
}

/// IPv4 settings of a link, as in `/proc/sys/net/ipv4/conf` (`Documentation/networking/ip-sysctl.rst`). Zero
/// leaves a setting unchanged.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Ipv4Settings {
    /// 1: the kernel announces the addresses when the link comes up.
    pub arp_notify: i32,
    /// 2: only addresses of the link's own subnets are the source of its ARP requests.
    pub arp_announce: i32,
    /// 1: the link answers ARP requests for its own addresses only.
    pub arp_ignore: i32,
    /// 2: a packet is dropped if no link leads to its source.
    pub rp_filter: i32,
}

/// Changes of a link; `None` leaves a property unchanged (`RTM_SETLINK`).
#[derive(Clone, Copy, Debug, Default)]
pub struct LinkChange<'a> {
    /// New name, at most 15 bytes. Before Linux 6.2 only for a link that is down (`EBUSY`).
    pub name: Option<&'a str>,
    /// MTU in bytes.
    pub mtu: Option<u32>,
    /// Description; empty removes it.
    pub alias: Option<&'a str>,
    /// Administratively up or down.
    pub up: Option<bool>,
    /// How the kernel makes the IPv6 link-local address; applied after `up`, see
    /// [`change_link`](super::super::Socket::change_link).
    pub addr_gen_mode: Option<AddrGenMode>,
    /// IPv4 settings; applied after `up` too.
    pub ipv4: Option<Ipv4Settings>,
    /// Hardware address.
    pub address: Option<&'a HwAddress>,
    /// Hardware address of broadcasts.
    pub broadcast: Option<&'a HwAddress>,
    /// Group.
    pub group: Option<u32>,
    /// The flags of [`Link::flags`](super::link::Link::flags).
    pub flags: Option<u32>,
    /// The largest number of packets that wait for transmission.
    pub tx_queue: Option<u32>,
    /// The highest state that the link reaches by itself ([`Link::link_mode`](super::link::Link::link_mode)).
    pub link_mode: Option<u8>,
    /// How large the packets are that the kernel builds and joins.
    pub limits: Option<PacketLimits>,
    /// Removes the XDP program of this mode. The kernel refuses it while a process holds the program by a BPF link
    /// (`EBUSY`).
    pub without_xdp: Option<XdpMode>,
    /// Index of the bond, bridge or VRF whose port the link becomes; 0 releases it. A bond accepts only links
    /// that are down, sets its own MTU on them and brings them up.
    pub master: Option<u32>,
    /// The new namespace of the link. Its name must be free there.
    pub netns: Option<BorrowedFd<'a>>,
}

impl NewLink<'_> {
    pub(super) fn encode(&self) -> LinkMessage {
        let mut message = LinkMessage::default();
        let attributes = &mut message.attributes;
        attributes.push(LinkAttribute::IfName(self.name.to_owned()));
        if self.parent != 0 {
            attributes.push(LinkAttribute::Link(self.parent));
        }
        attributes.extend(self.netns.map(|fd| LinkAttribute::NetNsFd(fd.as_raw_fd())));
        attributes.extend(self.mtu.map(LinkAttribute::Mtu));
        attributes.extend(
            self.address
                .map(|address| LinkAttribute::Address(address.as_bytes().to_vec())),
        );
        if self.group != 0 {
            attributes.push(LinkAttribute::Group(self.group));
        }
        attributes.push(LinkAttribute::LinkInfo(self.kind.encode()));
        message
    }
}

impl NewLinkKind<'_> {
    /// The name of the kernel driver, as in [`Link::kind`](super::link::Link::kind).
    pub fn name(self) -> &'static str {
        match self {
            Self::Ipoib { .. } => "ipoib",
            Self::Macvlan { .. } => "macvlan",
            Self::Ipvlan { .. } => "ipvlan",
            Self::Bond { .. } => "bond",
            Self::Dummy => "dummy",
            Self::Veth { .. } => "veth",
            Self::Bridge => "bridge",
        }
    }

    fn encode(self) -> Vec<LinkInfo> {
        let (kind, data) = match self {
            Self::Ipoib { pkey, mode, umcast } => {
                let nlas = pkey
                    .map(|pkey| InfoIpoib::Pkey(pkey.0))
                    .into_iter()
                    .chain(mode.map(|mode| InfoIpoib::Mode(mode.encode())))
                    .chain(umcast.map(|umcast| InfoIpoib::UmCast(umcast.into())));
                (InfoKind::Ipoib, Some(InfoData::Ipoib(nlas.collect())))
            }
            Self::Macvlan { mode, bc_queue_len } => {
                let mut nlas = vec![InfoMacVlan::Mode(mode.encode())];
                nlas.extend(bc_queue_len.map(InfoMacVlan::BcQueueLen));
                (InfoKind::MacVlan, Some(InfoData::MacVlan(nlas)))
            }
            Self::Ipvlan { mode } => (
                InfoKind::IpVlan,
                Some(InfoData::IpVlan(vec![InfoIpVlan::Mode(mode.encode())])),
            ),
            Self::Bond {
                mode,
                miimon,
                fail_over_mac,
                peer_notifications,
            } => {
                let nlas = vec![
                    InfoBond::Mode(mode.encode()),
                    InfoBond::MiiMon(miimon),
                    InfoBond::FailOverMac(fail_over_mac.encode()),
                    InfoBond::NumPeerNotif(peer_notifications),
                ];
                (InfoKind::Bond, Some(InfoData::Bond(nlas)))
            }
            Self::Dummy => (InfoKind::Dummy, None),
            Self::Bridge => (InfoKind::Bridge, None),
            Self::Veth { peer } => {
                let mut message = LinkMessage::default();
                message.attributes.push(LinkAttribute::IfName(peer.to_owned()));
                (InfoKind::Veth, Some(InfoData::Veth(InfoVeth::Peer(message))))
            }
        };
        std::iter::once(LinkInfo::Kind(kind))
            .chain(data.map(LinkInfo::Data))
            .collect()
    }
}

/// A request to change an existing IPoIB link: its kind and its new properties (`rtnl_changelink`).
pub(super) fn ipoib_change(index: u32, mode: IpoibMode, umcast: bool) -> LinkMessage {
    let mut message = LinkMessage::default();
    message.header.index = index;
    let kind = NewLinkKind::Ipoib {
        pkey: None,
        mode: Some(mode),
        umcast: Some(umcast),
    };
    message.attributes.push(LinkAttribute::LinkInfo(kind.encode()));
    message
}

impl LinkChange<'_> {
    pub(super) fn encode(&self, index: u32) -> LinkMessage {
        let mut message = LinkMessage::default();
        message.header.index = index;
        if let Some(up) = self.up {
            message.header.change_mask = LinkFlags::Up;
            message.header.flags = if up { LinkFlags::Up } else { LinkFlags::empty() };
        }
        if let Some(flags) = self.flags {
            message.header.change_mask |= SETTABLE;
            message.header.flags |= LinkFlags::from_bits_retain(flags).intersection(SETTABLE);
        }
        let attributes = &mut message.attributes;
        let text = |kind| move |text| LinkAttribute::Other(text::attribute(kind, text));
        attributes.extend(self.name.map(text(IFLA_IFNAME)));
        attributes.extend(self.mtu.map(LinkAttribute::Mtu));
        attributes.extend(self.tx_queue.map(LinkAttribute::TxQueueLen));
        attributes.extend(self.link_mode.map(|mode| LinkAttribute::Mode(mode.into())));
        attributes.extend(self.limits.into_iter().flat_map(PacketLimits::encode));
        attributes.extend(self.without_xdp.map(XdpMode::removal));
        attributes.extend(self.alias.map(text(IFLA_IFALIAS)));
        attributes.extend(
            self.address
                .map(|address| LinkAttribute::Address(address.as_bytes().to_vec())),
        );
        attributes.extend(
            self.broadcast
                .map(|address| LinkAttribute::Broadcast(address.as_bytes().to_vec())),
        );
        attributes.extend(self.group.map(LinkAttribute::Group));
        attributes.extend(self.master.map(LinkAttribute::Controller));
        attributes.extend(self.netns.map(|fd| LinkAttribute::NetNsFd(fd.as_raw_fd())));
        let inet = self
            .ipv4
            .map(|settings| AfSpecUnspec::Inet(vec![settings.encode()]));
        let inet6 = self
            .addr_gen_mode
            .map(|mode| AfSpecUnspec::Inet6(vec![AfSpecInet6::AddrGenMode(mode.encode())]));
        let families: Vec<_> = inet.into_iter().chain(inet6).collect();
        if !families.is_empty() {
            attributes.push(LinkAttribute::AfSpecUnspec(families));
        }
        message
    }
}

impl Ipv4Settings {
    fn encode(self) -> AfSpecInet {
        // The type has more fields with each release, so it cannot be built with a struct expression.
        let mut conf = InetDevConf::default();
        conf.arp_notify = self.arp_notify;
        conf.arp_announce = self.arp_announce;
        conf.arp_ignore = self.arp_ignore;
        conf.rp_filter = self.rp_filter;
        AfSpecInet::DevConfRequest(conf)
    }
}
