// SPDX-License-Identifier: Apache-2.0
//! A bond as a parent.
//!
//! On Ethernet the child is on the bond, like on any other link. The kernel has no `IPoIB` child of a bond,
//! so there the pod gets a child of each port and its own bond. That bond fails over by itself, whatever
//! happens to the node's bond.

use super::{Child, JOIN_TIMEOUT, Way, of_link, shape};
use crate::config::{BondUse, Config, Mode};
use crate::error::Error;
use crate::host::{Bond, BondPort, Host};
use crate::kernel::Side;
use crate::mark::Mark;
use common::cni::IfName;
use common::netlink::{AddrGenMode, BondMode, FailOverMac, LinkInfo, LinkLayer, NewLinkKind};
use common::rdma::{Pkey, PortState};
use std::time::Duration;

/// The interval at which the pod's bond checks its ports. A failure is noticed within this time, and costs
/// one or two pings.
const MIIMON_MS: u32 = 100;

/// How many times a failover is announced to the neighbours, one [`MIIMON_MS`] apart: on InfiniBand the
/// hardware address changes with the port, and a datagram may be lost.
const PEER_NOTIFICATIONS: u8 = 5;

/// The longest name of a link (`IFNAMSIZ` without the final zero).
const NAME_BYTES: usize = 15;

/// The name in the pod of port `number` of the bond `ifname`: `net1p0`, `net1p1`, ... If that is too long for
/// the kernel, the name is made from the attachment's mark.
pub(crate) fn port_name(ifname: &IfName, mark: &Mark, number: usize) -> String {
    let name = format!("{ifname}p{number}");
    if name.len() <= NAME_BYTES {
        name
    } else {
        format!("rb{:08x}p{number}", mark.group)
    }
}

/// Refuses a bond that the configuration excludes.
pub(super) fn require_wanted(mode: Mode, config: &Config, host: &Host, bond: &Bond) -> Result<(), Error> {
    match (config.bond, host.master.layer) {
        (BondUse::Refuse, layer) => Err(Error::WrongKind {
            master: host.master.name.clone(),
            what: "a bond, and bond is \"refuse\"".to_owned(),
            mode,
            remedy: match layer {
                LinkLayer::Infiniband => format!("{}, or change bond", name_a_port(bond)),
                _ => "name another link, or change bond".to_owned(),
            },
        }),
        (BondUse::Active, LinkLayer::Ethernet) => Err(Error::Unsupported {
            key: "bond",
            value: BondUse::Active.to_string(),
            remedy: "a port of an Ethernet bond carries no child; remove bond, and the child sits on the bond itself",
        }),
        _ => Ok(()),
    }
}

/// Plans the child of a bond of InfiniBand ports.
pub(super) fn child(config: &Config, host: &Host, bond: &Bond) -> Result<Child, Error> {
    require_ipoib(host, bond)?;
    require_working(host, bond)?;
    match config.bond {
        BondUse::Active => {
            let active = bond.active().ok_or_else(|| carries_nothing(host, bond))?;
            of_link(Mode::Ipoib, config, &as_parent(host, active))
        }
        BondUse::InPod | BondUse::Refuse => in_pod(config, host, bond),
    }
}

/// Plans one child of each port, and a bond of them. It includes a port that carries no traffic now: the pod
/// may outlive that state, and need the port when another one fails.
fn in_pod(config: &Config, host: &Host, bond: &Bond) -> Result<Child, Error> {
    require_no_address(config, host)?;
    require_one_subnet(host, bond)?;
    require_one_partition(config, host, bond)?;
    let ports = bond
        .active_first()
        .into_iter()
        .map(|port| child_of(config, host, port));
    let ports = ports.collect::<Result<Vec<Child>, Error>>()?;
    let first = bond.active_first().into_iter().find(|port| carries(port));
    Ok(Child {
        mode: Mode::Ipoib,
        kind: NewLinkKind::Bond {
            mode: BondMode::ActiveBackup,
            miimon: MIIMON_MS,
            fail_over_mac: FailOverMac::Active,
            peer_notifications: PEER_NOTIFICATIONS,
        },
        parent: host.master.name.clone(),
        parent_index: 0,
        // A bond has no parent. Requested in the pod, its name cannot conflict with a name on the host.
        side: Side::Pod,
        way: Way::Direct,
        mtu: config.mtu,
        address: None,
        addr_gen_mode: Some(AddrGenMode::Random),
        carrier_timeout: JOIN_TIMEOUT,
        pci: first.and_then(|port| port.pci),
        ports,
    })
}

/// Plans the child of one port. The `P_Key` table of a port without a link may change when the link comes up.
fn child_of(config: &Config, host: &Host, port: &BondPort) -> Result<Child, Error> {
    let mut parent = as_parent(host, port);
    let working = carries(port);
    if !working {
        parent.port = None;
    }
    let child = shape(Mode::Ipoib, config, &parent)?;
    Ok(Child {
        mtu: None,
        carrier_timeout: if working { JOIN_TIMEOUT } else { Duration::ZERO },
        ..child
    })
}

/// The port as a master.
fn as_parent(host: &Host, port: &BondPort) -> Host {
    Host {
        side: host.side,
        master: port.link.clone(),
        root: port.root.clone(),
        port: port.port.clone(),
        pci: port.pci,
        drivers: port.drivers.clone(),
        bond: None,
        enslaved_to: Some(host.master.clone()),
    }
}

fn require_ipoib(host: &Host, bond: &Bond) -> Result<(), Error> {
    let other = bond
        .ports
        .iter()
        .find(|port| !matches!(port.link.info, LinkInfo::Ipoib { .. }));
    let Some(BondPort { link, .. }) = other else {
        return Ok(());
    };
    let kind = link.kind.as_deref().unwrap_or("unknown");
    Err(Error::WrongKind {
        master: host.master.name.clone(),
        what: match kind {
            "bond" => format!("a bond of bonds ({})", link.name),
            _ => format!("a bond whose port {} is a link of kind {kind}", link.name),
        },
        mode: Mode::Ipoib,
        remedy: match kind {
            "bond" => format!("name {}", link.name),
            _ => "name an IPoIB link".to_owned(),
        },
    })
}

/// Fails unless the bond is up and one of its ports carries traffic.
fn require_working(host: &Host, bond: &Bond) -> Result<(), Error> {
    let master = &host.master.name;
    if !host.master.up {
        return Err(Error::MasterDown {
            master: master.clone(),
            reason: format!("is down; bring it up: ip link set {master} up"),
        });
    }
    if bond.ports.iter().any(carries) {
        Ok(())
    } else {
        Err(carries_nothing(host, bond))
    }
}

/// Whether a pod can be reached through `port` now.
fn carries(port: &BondPort) -> bool {
    let up = port.link.up && port.root.up;
    up && match &port.port {
        Some(rdma) => rdma.state == PortState::Active,
        None => port.link.carrier,
    }
}

fn carries_nothing(host: &Host, bond: &Bond) -> Error {
    Error::MasterDown {
        master: host.master.name.clone(),
        reason: reason(&host.master.name, bond),
    }
}

/// Why the bond `name` carries no traffic: the state of each of its ports.
pub(super) fn reason(name: &str, bond: &Bond) -> String {
    if bond.ports.is_empty() {
        return format!(
            "has no ports; was it restarted without them? put them back: ip link set PORT master {name}"
        );
    }
    let ports: Vec<String> = bond.ports.iter().map(condition).collect();
    format!(
        "carries nothing: {}; check cables, switch ports and, on InfiniBand, the subnet manager",
        ports.join(", ")
    )
}

fn condition(port: &BondPort) -> String {
    let name = &port.link.name;
    match &port.port {
        _ if !port.link.up => format!("{name} is down"),
        _ if !port.root.up => format!("{name} is a child of {}, which is down", port.root.name),
        Some(rdma) if rdma.state != PortState::Active => {
            format!(
                "{name} on {} port {} is {} ({})",
                rdma.device, rdma.number, rdma.state, rdma.phys_state
            )
        }
        None if !port.link.carrier => format!("{name} has no carrier"),
        _ => format!("{name} is not active in the bond"),
    }
}

/// Fails if an address was requested: the bond has the address of its active port.
fn require_no_address(config: &Config, host: &Host) -> Result<(), Error> {
    let refused = |key, value| {
        Err(Error::AddressOfBond {
            key,
            value,
            master: host.master.name.clone(),
        })
    };
    match (&config.mac, config.guid) {
        (Some(mac), _) => refused("mac", mac.to_string()),
        (_, Some(guid)) => refused("infinibandGUID", guid.to_string()),
        _ => Ok(()),
    }
}

/// Fails if the ports are in different subnets: after a failover no neighbour would answer.
fn require_one_subnet(host: &Host, bond: &Bond) -> Result<(), Error> {
    // A port that carries no traffic has no subnet prefix yet.
    let working = bond.ports.iter().filter(|port| carries(port));
    let subnets: Vec<_> = working
        .filter_map(|port| Some((&port.link.name, port.root.address.subnet_prefix()?)))
        .collect();
    let Some((_, first)) = subnets.first() else {
        return Ok(());
    };
    if subnets.iter().all(|(_, prefix)| prefix == first) {
        return Ok(());
    }
    let listed: Vec<String> = subnets
        .iter()
        .map(|(name, prefix)| format!("{name} in 0x{prefix:016x}"))
        .collect();
    Err(Error::WrongKind {
        master: host.master.name.clone(),
        what: format!(
            "a bond of ports on different fabrics (subnet prefix: {})",
            listed.join(", ")
        ),
        mode: Mode::Ipoib,
        remedy: format!("{}, or set bond to \"active\"", name_a_port(bond)),
    })
}

fn require_one_partition(config: &Config, host: &Host, bond: &Bond) -> Result<(), Error> {
    let pkeys = bond.ports.iter().filter_map(|port| match port.link.info {
        LinkInfo::Ipoib { pkey, .. } => Some((&port.link.name, pkey)),
        _ => None,
    });
    let pkeys: Vec<(&String, Pkey)> = pkeys.collect();
    let same = pkeys.windows(2).all(|pair| pair[0].1.matches(pair[1].1));
    if config.pkey.is_some() || same {
        return Ok(());
    }
    let listed: Vec<String> = pkeys
        .iter()
        .map(|(name, pkey)| format!("{name} in {pkey}"))
        .collect();
    Err(Error::WrongKind {
        master: host.master.name.clone(),
        what: format!("a bond of ports in different partitions ({})", listed.join(", ")),
        mode: Mode::Ipoib,
        remedy: "set pkey".to_owned(),
    })
}

fn name_a_port(bond: &Bond) -> String {
    match bond.names().as_slice() {
        [] => "name another link".to_owned(),
        names => format!("name one of its ports: {}", names.join(", ")),
    }
}
