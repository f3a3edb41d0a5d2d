// SPDX-License-Identifier: Apache-2.0
use super::super::hardware::HwAddress;
use super::kind::{AddrGenMode, BondMode, FailOverMac, IpoibMode, IpvlanMode, MacvlanMode};
use super::limits::PacketLimits;
use super::xdp::XdpMode;
use crate::id::Pkey;
use netlink_packet_route::link::{
    AfSpecInet6, AfSpecUnspec, InfoBond, InfoData, InfoIpVlan, InfoIpoib, InfoMacVlan, LinkAttribute,
    LinkFlags, LinkInfo as WireInfo, LinkLayerType, LinkMessage, Prop, State,
};

/// A link, as the kernel reports it (`RTM_NEWLINK`).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Link {
    /// Number of the link in its namespace, from 1.
    pub index: u32,
    /// Name, at most 15 bytes. A byte that is not UTF-8 is a character from U+F700 to U+F7FF here, and in altnames
    /// and alias.
    pub name: String,
    /// Further names, at most 127 bytes each.
    pub altnames: Vec<String>,
    /// Its link layer.
    pub layer: LinkLayer,
    /// Hardware address; empty if the link layer has none.
    pub address: HwAddress,
    /// Broadcast hardware address; on IPoIB, bytes 8 and 9 hold the P_Key.
    pub broadcast: HwAddress,
    /// The permanent address of the hardware, if the driver reports it (Linux 5.6).
    pub perm_address: Option<HwAddress>,
    /// Largest packet, in bytes.
    pub mtu: u32,
    /// The largest MTU that the driver accepts; `None` if the driver reports none.
    pub max_mtu: Option<u32>,
    /// Index of the link below this one (`IFLA_LINK`), in the parent's namespace.
    ///
    /// The kernel never reports [`parent_netnsid`](Self::parent_netnsid) for an IPoIB child in a pod
    /// (`ipoib_link_ops` has no `get_link_net`). It omits even the parent if both links have the same index
    /// in their namespaces.
    pub parent: Option<u32>,
    /// The id of the parent's namespace in this namespace; `None` if it is this one.
    pub parent_netnsid: Option<i32>,
    /// Index of the bridge, bond or VRF this link is a port of.
    pub master: Option<u32>,
    /// Administratively up (`IFF_UP`).
    pub up: bool,
    /// The link has carrier (`IFF_LOWER_UP`).
    pub carrier: bool,
    /// The state of RFC 2863.
    pub oper_state: OperState,
    /// Description, set by an administrator or a program.
    pub alias: Option<String>,
    /// Group, 0 by default.
    pub group: u32,
    /// Kind of a virtual link, e.g. `ipoib`.
    pub kind: Option<String>,
    /// Properties of the kind.
    pub info: LinkInfo,
    /// The hardware device below the link, equal in every namespace: its bus and name, e.g.
    /// `pci/0000:3b:00.0` (Linux 5.14; `None` for a virtual link).
    pub device: Option<String>,
    /// The name of the port of the adapter or switch (`IFLA_PHYS_PORT_NAME`), e.g. `p0`.
    pub phys_port_name: Option<String>,
    /// How the kernel makes its IPv6 link-local address; `None` without IPv6.
    pub addr_gen_mode: Option<AddrGenMode>,
    /// The flags that an administrator may set, besides up (`IFF_*` of `include/uapi/linux/if.h`): usually 0x1000,
    /// multicast.
    pub flags: u32,
    /// The largest number of packets that wait for transmission (`txqueuelen`).
    pub tx_queue: u32,
    /// The highest state of RFC 2863 that it reaches by itself (`IFLA_LINKMODE`): 0, up; 1, dormant (`mode dormant` of
    /// `ip link`).
    pub link_mode: u8,
    /// How large the packets are that the kernel builds and joins.
    pub limits: PacketLimits,
    /// Where XDP programs process its packets.
    pub xdp: Vec<XdpMode>,
}

/// On a link with a lower MTU, in bytes, the kernel has no IPv6 (`include/uapi/linux/ipv6.h`).
pub const IPV6_MIN_MTU: u32 = 1280;

/// The flags that `ip link set` changes (`__dev_change_flags` of `net/core/dev.c`), without `IFF_UP`.
pub(super) const SETTABLE: LinkFlags = LinkFlags::Debug
    .union(LinkFlags::Notrailers)
    .union(LinkFlags::Noarp)
    .union(LinkFlags::Promisc)
    .union(LinkFlags::Allmulti)
    .union(LinkFlags::Multicast)
    .union(LinkFlags::Portsel)
    .union(LinkFlags::Automedia)
    .union(LinkFlags::Dynamic);

/// The link layer (`ARPHRD_*` of `include/uapi/linux/if_arp.h`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LinkLayer {
    /// 1.
    Ethernet,
    /// 32.
    Infiniband,
    /// 772.
    Loopback,
    /// Any other number.
    Other(u16),
}

/// The state of RFC 2863 (`IF_OPER_*` of `include/uapi/linux/if.h`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OperState {
    /// The driver reports no state.
    Unknown,
    /// The hardware is absent.
    NotPresent,
    /// Cannot carry traffic.
    Down,
    /// The link below is down.
    LowerLayerDown,
    /// In a test mode.
    Testing,
    /// Waits for an event, e.g. authentication.
    Dormant,
    /// Carries traffic.
    Up,
}

/// Properties of the kind of a link.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LinkInfo {
    /// IP over InfiniBand.
    Ipoib {
        /// Partition, always as a full member.
        pkey: Pkey,
        /// Transport.
        mode: IpoibMode,
        /// Whether user space decides which multicast groups are joined (`IFLA_IPOIB_UMCAST`).
        umcast: bool,
    },
    /// Another address on an Ethernet parent.
    Macvlan {
        /// Which macvlans exchange frames.
        mode: MacvlanMode,
    },
    /// The same address on an Ethernet parent.
    Ipvlan {
        /// Shared layer.
        mode: IpvlanMode,
    },
    /// Several links under one name.
    Bond {
        /// How frames are spread.
        mode: BondMode,
        /// Index of the port that carries the traffic, in the modes that have one; `None` while every port is
        /// down.
        active: Option<u32>,
        /// Milliseconds between two checks of the ports' carrier; 0 means no checks.
        miimon: u32,
        /// Whose hardware address it has.
        fail_over_mac: FailOverMac,
    },
    /// Any other kind, or a mode unknown to this program.
    Other,
}

impl Link {
    /// The flag `IFF_NOARP` (`arp off` of `ip link`).
    pub const NO_ARP: u32 = LinkFlags::Noarp.bits();

    /// A link with these properties, down, without addresses, MTU 0.
    pub fn new(index: u32, name: impl Into<String>, layer: LinkLayer) -> Self {
        Self {
            index,
            name: name.into(),
            altnames: Vec::new(),
            layer,
            address: HwAddress::default(),
            broadcast: HwAddress::default(),
            perm_address: None,
            mtu: 0,
            max_mtu: None,
            parent: None,
            parent_netnsid: None,
            master: None,
            up: false,
            carrier: false,
            oper_state: OperState::Unknown,
            alias: None,
            group: 0,
            kind: None,
            info: LinkInfo::Other,
            device: None,
            phys_port_name: None,
            addr_gen_mode: None,
            flags: LinkFlags::Multicast.bits(),
            tx_queue: 0,
            link_mode: 0,
            limits: PacketLimits::default(),
            xdp: Vec::new(),
        }
    }

    /// Whether `name` is the name or an altname.
    pub fn is_called(&self, name: &str) -> bool {
        self.name == name || self.altnames.iter().any(|altname| altname == name)
    }

    /// Whether it is a bond.
    pub fn is_bond(&self) -> bool {
        self.kind.as_deref() == Some("bond")
    }

    /// Whether it is a VRF: it routes the packets of its ports, and does not take their frames as a bond does.
    pub fn is_vrf(&self) -> bool {
        self.kind.as_deref() == Some("vrf")
    }

    /// Whether it is a representor: a link of an adapter in switchdev mode that reaches only the physical function, virtual
    /// function or subfunction that it represents.
    pub fn is_representor(&self) -> bool {
        self.phys_port_name.as_deref().is_some_and(is_representor_port)
    }

    /// The link that `message` describes.
    pub fn decode(message: LinkMessage) -> Self {
        let header = &message.header;
        let mut link = Self::new(header.index, "", LinkLayer::decode(header.link_layer_type));
        link.up = header.flags.contains(LinkFlags::Up);
        link.carrier = header.flags.contains(LinkFlags::LowerUp);
        link.flags = header.flags.intersection(SETTABLE).bits();
        let (mut bus, mut device) = (None, None);
        for attribute in message.attributes {
            match attribute {
                LinkAttribute::ParentDevBusName(name) => bus = Some(name),
                LinkAttribute::ParentDevName(name) => device = Some(name),
                other => link.read(other),
            }
        }
        link.device = bus.zip(device).map(|(bus, device)| format!("{bus}/{device}"));
        // A hardware link reports itself as its parent, unless the index belongs to another namespace.
        if link.parent_netnsid.is_none() {
            link.parent = link.parent.filter(|parent| *parent != link.index && *parent != 0);
        }
        link
    }

    fn read(&mut self, attribute: LinkAttribute) {
        match attribute {
            LinkAttribute::IfName(name) => self.name = name,
            LinkAttribute::PropList(props) => {
                self.altnames.extend(props.into_iter().filter_map(|p| match p {
                    Prop::AltIfName(name) => Some(name),
                    _ => None,
                }));
            }
            LinkAttribute::Address(bytes) => self.address = HwAddress::new(bytes),
            LinkAttribute::Broadcast(bytes) => self.broadcast = HwAddress::new(bytes),
            LinkAttribute::PermAddress(bytes) => self.perm_address = Some(HwAddress::new(bytes)),
            LinkAttribute::Mtu(mtu) => self.mtu = mtu,
            // 0 means that the driver has no limit.
            LinkAttribute::MaxMtu(mtu) => self.max_mtu = (mtu != 0).then_some(mtu),
            LinkAttribute::Link(index) => self.parent = Some(index),
            LinkAttribute::LinkNetNsId(id) => self.parent_netnsid = Some(id),
            LinkAttribute::Controller(index) => self.master = Some(index),
            LinkAttribute::OperState(state) => self.oper_state = OperState::decode(state),
            LinkAttribute::IfAlias(alias) => self.alias = Some(alias),
            LinkAttribute::Group(group) => self.group = group,
            LinkAttribute::LinkInfo(infos) => self.read_info(infos),
            LinkAttribute::TxQueueLen(packets) => self.tx_queue = packets,
            LinkAttribute::Mode(mode) => self.link_mode = mode.into(),
            LinkAttribute::PhysPortName(name) => self.phys_port_name = Some(name),
            LinkAttribute::Xdp(attributes) => self.xdp = XdpMode::decode(&attributes),
            LinkAttribute::AfSpecUnspec(families) => self.addr_gen_mode = addr_gen_mode(&families),
            other => self.limits.read(&other),
        }
    }

    fn read_info(&mut self, infos: Vec<WireInfo>) {
        for info in infos {
            match info {
                WireInfo::Kind(kind) => self.kind = Some(kind.to_string()),
                WireInfo::Data(data) => self.info = LinkInfo::decode(&data).unwrap_or(LinkInfo::Other),
                _ => {}
            }
        }
    }
}

impl LinkInfo {
    fn decode(data: &InfoData) -> Option<Self> {
        match data {
            InfoData::Bond(nlas) => Self::decode_bond(nlas),
            InfoData::Ipoib(nlas) => {
                let (mut pkey, mut mode, mut umcast) = (None, None, false);
                for nla in nlas {
                    match nla {
                        InfoIpoib::Pkey(value) => pkey = Some(Pkey(*value)),
                        InfoIpoib::Mode(value) => mode = IpoibMode::decode(*value),
                        InfoIpoib::UmCast(value) => umcast = *value != 0,
                        _ => {}
                    }
                }
                Some(Self::Ipoib {
                    pkey: pkey?,
                    mode: mode?,
                    umcast,
                })
            }
            InfoData::MacVlan(nlas) => nlas.iter().find_map(|nla| match nla {
                InfoMacVlan::Mode(mode) => MacvlanMode::decode(*mode).map(|mode| Self::Macvlan { mode }),
                _ => None,
            }),
            InfoData::IpVlan(nlas) => nlas.iter().find_map(|nla| match nla {
                InfoIpVlan::Mode(mode) => IpvlanMode::decode(*mode).map(|mode| Self::Ipvlan { mode }),
                _ => None,
            }),
            _ => None,
        }
    }

    fn decode_bond(nlas: &[InfoBond]) -> Option<Self> {
        let (mut mode, mut active, mut miimon, mut fail_over_mac) = (None, None, 0, FailOverMac::None);
        for nla in nlas {
            match nla {
                InfoBond::Mode(value) => mode = BondMode::decode(*value),
                InfoBond::ActivePort(index) => active = Some(*index).filter(|index| *index != 0),
                InfoBond::MiiMon(milliseconds) => miimon = *milliseconds,
                InfoBond::FailOverMac(value) => fail_over_mac = FailOverMac::decode(*value)?,
                _ => {}
            }
        }
        Some(Self::Bond {
            mode: mode?,
            active,
            miimon,
            fail_over_mac,
        })
    }
}

impl LinkLayer {
    fn decode(kind: LinkLayerType) -> Self {
        match kind {
            LinkLayerType::Ether => Self::Ethernet,
            LinkLayerType::Infiniband => Self::Infiniband,
            LinkLayerType::Loopback => Self::Loopback,
            other => Self::Other(other.into()),
        }
    }
}

impl OperState {
    fn decode(state: State) -> Self {
        match state {
            State::NotPresent => Self::NotPresent,
            State::Down => Self::Down,
            State::LowerLayerDown => Self::LowerLayerDown,
            State::Testing => Self::Testing,
            State::Dormant => Self::Dormant,
            State::Up => Self::Up,
            _ => Self::Unknown,
        }
    }
}

fn addr_gen_mode(families: &[AfSpecUnspec]) -> Option<AddrGenMode> {
    let inet6 = families.iter().find_map(|family| match family {
        AfSpecUnspec::Inet6(attributes) => Some(attributes),
        _ => None,
    })?;
    inet6.iter().find_map(|attribute| match attribute {
        AfSpecInet6::AddrGenMode(mode) => AddrGenMode::decode(*mode),
        _ => None,
    })
}

/// Whether the link with this `IFLA_PHYS_PORT_NAME` is a representor. Such a link has `pf0`, `pf0vf3` or `pf0sf4` as name of its
/// port, also after the number of a controller (`c1pf0vf3`) or port (`p0pf0vf3`). The uplink has `p0`.
///
/// Source: `__devlink_port_phys_port_name_get` in `net/devlink/port.c`, `efx_ef100_rep_get_phys_port_name` in
/// `drivers/net/ethernet/sfc/ef100_rep.c`.
fn is_representor_port(name: &str) -> bool {
    let Some((_, function)) = name.rsplit_once("pf") else {
        return false;
    };
    let part = |kind| function.split_once(kind);
    let (physical, below) = match part("vf").or_else(|| part("sf")) {
        Some((physical, below)) => (physical, Some(below)),
        None => (function, None),
    };
    let is_number = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    is_number(physical) && below.is_none_or(is_number)
}
