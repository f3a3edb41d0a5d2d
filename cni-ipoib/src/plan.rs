// SPDX-License-Identifier: Apache-2.0
//! The plan of ADD: plain data, made from [`Config`] and [`Host`] without side effects.
//!
//! Every refusal that can be known in advance is found here, so that nothing must be undone for it.

pub(crate) mod bond;
mod way;

pub use way::Way;

use crate::config::preferences::layer;
use crate::config::{Config, Mode, require_fitting_keys};
use crate::error::Error;
use crate::host::{Host, Port};
use crate::intent::Grant;
use crate::kernel::Side;
use crate::mark::Mark;
use crate::rdma::Interface;
use common::cni::IfName;
use common::netlink::{
    AddrGenMode, HwAddress, IpoibMode, Link, LinkInfo, LinkLayer, MacvlanMode, NewLinkKind,
};
use common::rdma::{PciAddress, Pkey, PortState};
use std::time::Duration;

/// The largest `IPoIB` datagram: the largest InfiniBand MTU less the 4-byte encapsulation header (RFC 4391 §
/// 7).
const DATAGRAM_MTU_MAX: u32 = 4096 - 4;

/// The largest `IPoIB` packet in connected mode (`IPOIB_CM_MTU`, drivers/infiniband/ulp/ipoib/ipoib.h; RFC
/// 4755).
const CONNECTED_MTU_MAX: u32 = 65520;

/// How long an `IPoIB` child may take to join its multicast groups. A subnet manager during a sweep of a
/// large fabric answers within seconds.
const JOIN_TIMEOUT: Duration = Duration::from_secs(10);

/// An Ethernet child has its parent's carrier at once, or not at all.
const ETHERNET_TIMEOUT: Duration = Duration::from_millis(200);

/// The child of a parent.
#[derive(Clone, Debug)]
pub struct Child {
    /// Its kind of interface.
    pub mode: Mode,
    /// The link to request from the kernel.
    pub kind: NewLinkKind<'static>,
    /// The name of the parent, for messages.
    pub parent: String,
    /// The parent's index.
    pub parent_index: u32,
    /// The namespace the parent is in.
    pub side: Side,
    /// How it gets into the pod.
    pub way: Way,
    /// The MTU to set and to check.
    pub mtu: Option<u32>,
    /// Its hardware address, if one was requested.
    pub address: Option<HwAddress>,
    /// How the kernel makes its link-local address; `None` is the default.
    pub addr_gen_mode: Option<AddrGenMode>,
    /// How long it may take to get carrier.
    pub carrier_timeout: Duration,
    /// The PCI address of the parent's device.
    pub pci: Option<PciAddress>,
    /// The ports of a bond; empty for every other kind. Their names, MTU and settings follow from the bond's.
    pub ports: Vec<Child>,
}

/// The properties of every planned interface, whatever its kind.
#[derive(Clone, Debug)]
pub struct PodInterface {
    /// Its name in the pod.
    pub ifname: IfName,
    /// The mark of its attachment.
    pub mark: Mark,
    /// Its RDMA device.
    pub rdma: Option<Grant>,
    /// The routing table for packets from its addresses; `None` without policy routing.
    pub policy_table: Option<u32>,
}

/// A child and its attachment.
#[derive(Clone, Debug)]
pub struct Plan {
    /// The link to create.
    pub child: Child,
    /// The interface that it becomes.
    pub interface: PodInterface,
}

impl Plan {
    /// Whether a link of the plan is on the host before it is in the pod.
    pub(crate) fn is_moved(&self) -> bool {
        let moved = |child: &Child| child.way == Way::Moved;
        moved(&self.child) || self.child.ports.iter().any(moved)
    }

    /// The names of a bond's ports in the pod.
    pub(crate) fn port_names(&self) -> impl Iterator<Item = String> {
        (0..self.child.ports.len())
            .map(|number| bond::port_name(&self.interface.ifname, &self.interface.mark, number))
    }
}

impl Child {
    /// Whether it takes the frames of its parent, a link of the host.
    pub(crate) fn takes_frames_of_host(&self) -> bool {
        let is_passthru = matches!(
            self.kind,
            NewLinkKind::Macvlan {
                mode: MacvlanMode::Passthru,
                ..
            }
        );
        is_passthru && self.side == Side::Host
    }
}

/// Plans the child for `config` on `host`.
///
/// # Errors
/// The parent does not support the requested child, or carries no traffic now.
pub fn child(config: &Config, host: &Host) -> Result<Child, Error> {
    let mode = mode_on(config, &host.master);
    require_link_layer(mode, host)?;
    require_fitting_keys(&config.only_for, mode)?;
    let Some(bond) = &host.bond else {
        return of_link(mode, config, host);
    };
    bond::require_wanted(mode, config, host, bond)?;
    match mode {
        Mode::Ipoib => bond::child(config, host, bond),
        _ => of_link(mode, config, host),
    }
}

/// The kind of interface that `config` makes on `master`.
pub(crate) fn mode_on(config: &Config, master: &Link) -> Mode {
    config.mode.unwrap_or(match master.layer {
        LinkLayer::Infiniband => Mode::Ipoib,
        _ => Mode::Macvlan,
    })
}

/// The index of the parent that the kernel gives to a child of `kind` of `master`, and the namespace of that parent if it is
/// not the one of `master`. A child of a child of the same kind becomes its sibling.
///
/// Source: `macvlan_common_newlink` of `drivers/net/macvlan.c`, `ipvlan_link_new` of `drivers/net/ipvlan/ipvlan_main.c`.
pub(crate) fn given_parent(master: &Link, kind: &str) -> (u32, Option<i32>) {
    let is_sibling = match master.kind.as_deref() {
        Some("macvlan" | "macvtap") => kind == "macvlan",
        Some("ipvlan" | "ipvtap") => kind == "ipvlan",
        _ => false,
    };
    match master.parent {
        Some(index) if is_sibling => (index, master.parent_netnsid),
        _ => (master.index, None),
    }
}

/// The child that `config` makes on an Ethernet link.
pub(crate) fn ethernet_kind(mode: Mode, config: &Config) -> NewLinkKind<'static> {
    match mode {
        Mode::Ipvlan => NewLinkKind::Ipvlan {
            mode: config.ipvlan_mode,
        },
        _ => NewLinkKind::Macvlan {
            mode: config.macvlan_mode,
            bc_queue_len: config.bc_queue_len,
        },
    }
}

/// Plans one child of the parent.
fn of_link(mode: Mode, config: &Config, host: &Host) -> Result<Child, Error> {
    let child = shape(mode, config, host)?;
    require_up(mode, host)?;
    Ok(child)
}

/// Plans one child of the parent, whether the parent carries traffic or not.
fn shape(mode: Mode, config: &Config, host: &Host) -> Result<Child, Error> {
    let (kind, largest) = match mode {
        Mode::Ipoib => ipoib(config, host)?,
        Mode::Macvlan | Mode::Ipvlan => (
            ethernet(mode, config, host)?,
            (host.master.mtu, "an Ethernet frame"),
        ),
        Mode::Device => {
            return Err(Error::Unsupported {
                key: "mode",
                value: mode.to_string(),
                remedy: "a link that is moved whole has no child",
            });
        }
    };
    let (max, what) = largest;
    if let Some(mtu) = config.mtu.filter(|mtu| *mtu > max) {
        return Err(Error::MtuTooLarge {
            mtu,
            master: host.master.name.clone(),
            what,
            max,
        });
    }
    Ok(Child {
        mode,
        kind,
        parent: host.root.name.clone(),
        parent_index: host.root.index,
        side: host.side,
        way: match (mode, host.side) {
            (Mode::Ipoib, Side::Host) => Way::of(&host.drivers),
            // The child is created beside its parent, or is of a kind that may be created in any namespace.
            _ => Way::Direct,
        },
        mtu: config.mtu,
        address: address(mode, config, host)?,
        // All children of a port share its GUID. Link-local addresses made from it would be equal.
        addr_gen_mode: (mode == Mode::Ipoib).then_some(AddrGenMode::Random),
        carrier_timeout: if mode == Mode::Ipoib {
            JOIN_TIMEOUT
        } else {
            ETHERNET_TIMEOUT
        },
        pci: host.pci,
        ports: Vec::new(),
    })
}

fn require_link_layer(mode: Mode, host: &Host) -> Result<(), Error> {
    let wrong = |want, instead| {
        Err(Error::WrongLinkLayer {
            master: host.master.name.clone(),
            layer: layer(host.master.layer),
            mode,
            want,
            instead,
        })
    };
    match (mode, host.master.layer) {
        (Mode::Ipoib, LinkLayer::Infiniband) | (Mode::Macvlan | Mode::Ipvlan, LinkLayer::Ethernet) => Ok(()),
        (Mode::Macvlan | Mode::Ipvlan, LinkLayer::Infiniband) => wrong("Ethernet", "mode ipoib"),
        (Mode::Ipoib, LinkLayer::Ethernet) => wrong("InfiniBand", "mode macvlan or ipvlan"),
        (Mode::Ipoib, _) => wrong("InfiniBand", "an InfiniBand master"),
        _ => wrong("Ethernet", "an Ethernet master"),
    }
}

type LargestMtu = (u32, &'static str);

fn ipoib(config: &Config, host: &Host) -> Result<(NewLinkKind<'static>, LargestMtu), Error> {
    let LinkInfo::Ipoib {
        pkey: masters,
        mode: parents,
        umcast: parents_umcast,
        ..
    } = &host.master.info
    else {
        return Err(no_ipoib(host));
    };
    let pkey = config.pkey.unwrap_or(*masters);
    if let Some(port) = &host.port {
        require_pkey(pkey, port)?;
    }
    let mode = config.ipoib_mode.unwrap_or(*parents);
    if mode == IpoibMode::Connected && *parents != mode {
        require_connected_mode(host)?;
    }
    let largest = match mode {
        IpoibMode::Connected => (CONNECTED_MTU_MAX, "connected mode"),
        IpoibMode::Datagram => (DATAGRAM_MTU_MAX, "datagram mode"),
    };
    Ok((
        NewLinkKind::Ipoib {
            pkey: Some(pkey),
            mode: Some(mode),
            // The kernel does not copy it to children (`ipoib_child_init` of ipoib_vlan.c).
            umcast: config.umcast.or(Some(*parents_umcast)),
        },
        largest,
    ))
}

/// The kernel's own answer would be `EINVAL`, after the child was created. What a child takes, its parent takes.
fn require_connected_mode(host: &Host) -> Result<(), Error> {
    if host.root.address.takes_connections() {
        return Ok(());
    }
    Err(Error::NoConnectedMode {
        master: host.root.name.clone(),
        driver: host
            .drivers
            .link
            .clone()
            .unwrap_or_else(|| "(unknown)".to_owned()),
    })
}

fn require_pkey(pkey: Pkey, port: &Port) -> Result<(), Error> {
    if port.pkeys.iter().any(|of_port| of_port.matches(pkey)) {
        return Ok(());
    }
    Err(Error::PkeyAbsent {
        pkey,
        port: format!("{} port {}", port.device, port.number),
        table: port.pkeys.clone(),
    })
}

/// The error for a link such as a team: it has the link layer of its InfiniBand ports, but no `IPoIB`
/// children.
fn no_ipoib(host: &Host) -> Error {
    let kind = host.master.kind.as_deref().unwrap_or("unknown");
    Error::WrongKind {
        master: host.master.name.clone(),
        what: format!("a link of kind {kind}"),
        mode: Mode::Ipoib,
        remedy: "name an IPoIB link".to_owned(),
    }
}

/// A port of a bond or a bridge passes its frames to it, and the kernel refuses a child with `EBUSY`. A VRF takes no
/// frames of its ports, and has none for a child (`IFF_NO_RX_HANDLER` of `drivers/net/vrf.c`).
fn ethernet(mode: Mode, config: &Config, host: &Host) -> Result<NewLinkKind<'static>, Error> {
    let refuse = |what: String, remedy: String| {
        Err(Error::WrongKind {
            master: host.master.name.clone(),
            what,
            mode,
            remedy,
        })
    };
    if host.master.is_vrf() {
        return refuse("a VRF".to_owned(), "name one of its ports".to_owned());
    }
    if let Some(upper) = host.enslaved_to.as_ref().filter(|upper| !upper.is_vrf()) {
        return refuse(
            format!("a port of {}", upper.name),
            format!("name {}", upper.name),
        );
    }
    Ok(ethernet_kind(mode, config))
}

/// Fails if the parent carries no traffic. An `IPoIB` parent may lack carrier only because *its* partition
/// has no group, so the state of the port decides there.
fn require_up(mode: Mode, host: &Host) -> Result<(), Error> {
    let down = |link: &str, reason: String| {
        Err(Error::MasterDown {
            master: link.to_owned(),
            reason,
        })
    };
    for link in [&host.root, &host.master] {
        if !link.up {
            return down(
                &link.name,
                format!("is down; bring it up: ip link set {} up", link.name),
            );
        }
    }
    match (&host.port, mode) {
        (Some(port), Mode::Ipoib) if port.state == PortState::Active => Ok(()),
        (Some(port), Mode::Ipoib) => down(&host.root.name, format!("carries nothing: {}", port.trouble())),
        _ if host.root.carrier => Ok(()),
        _ => down(
            &host.root.name,
            match &host.bond {
                Some(bond) => bond::reason(&host.root.name, bond),
                None => "has no carrier; check cable and switch port".to_owned(),
            },
        ),
    }
}

/// The hardware address to request.
fn address(mode: Mode, config: &Config, host: &Host) -> Result<Option<HwAddress>, Error> {
    match (mode, &config.mac) {
        (Mode::Ipoib, _) => require_port_guid(config, host).map(|()| None),
        (_, _) if config.guid.is_some() => Err(Error::KeyOfOtherMode {
            key: "infinibandGUID",
            its: Mode::Ipoib,
            mode,
        }),
        (Mode::Ipvlan, Some(_)) => Err(Error::KeyOfOtherMode {
            key: "mac",
            its: Mode::Macvlan,
            mode,
        }),
        (_, Some(mac)) if mac.len() != 6 => Err(Error::BadValue {
            key: "mac",
            value: mac.to_string(),
            want: "6 bytes for an Ethernet master".to_owned(),
        }),
        // `macvlan_common_newlink` of `drivers/net/macvlan.c` replaces any requested address.
        (_, Some(mac)) if config.macvlan_mode == MacvlanMode::Passthru && *mac != host.master.address => {
            let (parent, own) = (&host.master.name, &host.master.address);
            Err(Error::BadValue {
                key: "mac",
                value: mac.to_string(),
                want: format!(
                    "{own}, the address of {parent}, which the kernel gives to a macvlan child in mode passthru; remove mac, or use another macvlan mode"
                ),
            })
        }
        (_, mac) => Ok(mac.clone()),
    }
}

/// An `IPoIB` child is reached at its port's GUID, whatever link-layer address it has.
fn require_port_guid(config: &Config, host: &Host) -> Result<(), Error> {
    let Some(guid) = host.root.address.port_guid() else {
        return Ok(());
    };
    let refuse = |key, value: String| {
        Err(Error::AddressOfPort {
            key,
            value,
            master: host.root.name.clone(),
            guid,
        })
    };
    match (&config.mac, config.guid) {
        (Some(mac), _) if mac.port_guid() != Some(guid) => refuse("mac", mac.to_string()),
        (_, Some(asked)) if asked != guid => refuse("infinibandGUID", asked.to_string()),
        _ => Ok(()),
    }
}

/// The interface of a child that is created on `host`, for the choice of its RDMA device.
pub fn rdma_interface(host: &Host, mode: Mode) -> Interface<'_> {
    let root = &host.root.name;
    Interface {
        side: host.side,
        link: &host.master,
        moving: match mode {
            Mode::Ipoib if host.bond.is_some() => Err(format!(
                "it is the device of a port of {root}, which would lose it"
            )),
            Mode::Ipoib => Err(format!(
                "moving it would destroy {root}, and with it the children of every pod on {root}"
            )),
            Mode::Macvlan | Mode::Ipvlan | Mode::Device => Ok(()),
        },
    }
}

#[cfg(test)]
mod tests;
