// SPDX-License-Identifier: Apache-2.0
//! Describes the ports and bonds of a node from its links and sysfs.

use super::attachments::{Attached, Attachments, User};
use super::facts::{BondFacts, LinkState, PortFacts};
use cni_ipoib::host::Drivers;
use cni_ipoib::mark;
use cni_ipoib::plan::Way;
use common::ethtool;
use common::netlink::{Link, LinkInfo, LinkLayer};
use common::rdma::{Device, Port, Sysfs};
use std::fs;
use std::path::Path;

/// The parts of a node that were read before its ports and bonds are described.
pub(super) struct Reader<'a> {
    /// Where sysfs is mounted.
    pub(super) root: &'a Path,
    pub(super) sysfs: &'a Sysfs,
    pub(super) links: &'a [Link],
    pub(super) devices: &'a [Device],
    pub(super) attachments: &'a Attachments,
    /// Whether this is the live node and not a record.
    pub(super) live: bool,
}

impl Reader<'_> {
    /// Every port of every RDMA device.
    pub(super) fn ports(&self) -> Vec<PortFacts> {
        let all = self
            .devices
            .iter()
            .flat_map(|device| device.ports.iter().map(move |port| (device, port)));
        all.map(|(device, port)| self.port(device, port)).collect()
    }

    fn port(&self, device: &Device, port: &Port) -> PortFacts {
        let on_port = |link: &&Link| {
            let found = self.sysfs.port_of(self.devices, link);
            found.is_some_and(|(d, p)| d.name == device.name && p.number == port.number)
        };
        // Children share the port of their parent, and a child of a pod may exist on the host under any name.
        let own: Vec<&Link> = self
            .links
            .iter()
            .filter(|link| (link.parent.is_none() || link.kind.is_none()) && !mark::is_ours(link))
            .filter(on_port)
            .collect();
        let netdev = own
            .iter()
            .find(|link| link.is_bond())
            .or_else(|| own.first())
            .copied();
        let upper = netdev.and_then(|link| {
            let over = |bond: &&Link| bond.index == link.index || Some(bond.index) == link.master;
            self.links.iter().filter(|bond| bond.is_bond()).find(over)
        });
        let hardware = own.iter().find(|link| !link.is_bond()).copied().or(netdev);
        let in_pod = self.in_pod(device, port).filter(|_| netdev.is_none());
        PortFacts {
            model: self.sysfs.model(device),
            firmware: self.sysfs.firmware(device),
            gids: self.sysfs.gids(device, port).unwrap_or_default(),
            pkeys: self.sysfs.pkeys(device, port).unwrap_or_default(),
            numa_node: hardware.and_then(|link| self.sysfs.numa_node_of_netdev(&link.name)),
            slot_mbps: device.path.as_deref().and_then(slot_mbps),
            netdev: netdev.map(|link| link.name.clone()),
            link_state: netdev.map(link_state),
            bond: upper.map(|bond| bond.name.clone()),
            way: hardware
                .filter(|link| link.layer == LinkLayer::Infiniband)
                .map(|link| self.way(link)),
            users: netdev
                .into_iter()
                .chain(upper)
                .flat_map(|link| self.users_of(link))
                .chain(in_pod.cloned().map(User::Attachment))
                .fold(Vec::new(), |mut all, user| {
                    if !all.contains(&user) {
                        all.push(user);
                    }
                    all
                }),
            in_pod: in_pod.cloned(),
            device: device.clone(),
            port: port.clone(),
        }
    }

    /// The attachment whose pod has the link of this port.
    fn in_pod(&self, device: &Device, port: &Port) -> Option<&Attached> {
        let mut all = self.attachments.in_pods.iter();
        let found = all.find(|one| one.has_link_of(device, port))?;
        Some(&found.attached)
    }

    /// A record lacks the name of the link's driver, so its children are shown as moved.
    fn way(&self, link: &Link) -> Way {
        let driver = if self.live {
            ethtool::driver(&link.name).ok()
        } else {
            None
        };
        Way::of(&Drivers::of(self.sysfs, link, driver))
    }

    fn users_of(&self, link: &Link) -> Vec<User> {
        let attached = self
            .attachments
            .users
            .get(&link.name)
            .cloned()
            .unwrap_or_default();
        let above = self.links.iter().filter(|other| {
            other.parent == Some(link.index) && other.parent_netnsid.is_none() && other.kind.is_some()
        });
        let above = above.filter(|other| other.index != link.index && !mark::is_ours(other));
        let named = above.map(|other| User::Link {
            name: other.name.clone(),
        });
        attached.into_iter().chain(named).collect()
    }

    fn arp_interval(&self, bond: &str) -> Option<u32> {
        let file = self
            .root
            .join("class/net")
            .join(bond)
            .join("bonding/arp_interval");
        fs::read_to_string(file).ok()?.trim().parse().ok()
    }

    /// The bonds.
    pub(super) fn bonds(&self) -> Vec<BondFacts> {
        let name_of = |index: u32| {
            let found = self.links.iter().find(|link| link.index == index);
            found.map(|link| link.name.clone())
        };
        let bond = |link: &Link| {
            let slaves = self.links.iter().filter(|slave| slave.master == Some(link.index));
            let slaves: Vec<&Link> = slaves.collect();
            let (mode, active, miimon) = match link.info {
                LinkInfo::Bond {
                    mode, active, miimon, ..
                } => (Some(mode.to_string()), active, Some(miimon)),
                _ => (None, None, None),
            };
            BondFacts {
                name: link.name.clone(),
                mode,
                active_slave: active.and_then(name_of),
                infiniband: slaves.iter().any(|slave| slave.layer == LinkLayer::Infiniband),
                slaves: slaves.iter().map(|slave| slave.name.clone()).collect(),
                miimon,
                arp_interval: self.arp_interval(&link.name),
            }
        };
        self.links
            .iter()
            .filter(|link| link.is_bond())
            .map(bond)
            .collect()
    }
}

fn link_state(link: &Link) -> LinkState {
    match (link.up, link.carrier) {
        (false, _) => LinkState::SetDown,
        (true, false) => LinkState::NoCarrier,
        (true, true) => LinkState::Carrier,
    }
}

/// The throughput of a PCI Express slot, from `current_link_speed` (`16.0 GT/s PCIe`) and `current_link_width`. From 8
/// GT/s on, 128 of 130 bits are data; below that, 8 of 10.
fn slot_mbps(device: &Path) -> Option<u64> {
    let text = |file: &str| fs::read_to_string(device.join(file)).ok();
    let speed: f64 = text("current_link_speed")?.split(' ').next()?.parse().ok()?;
    let width: u64 = text("current_link_width")?
        .trim()
        .parse()
        .ok()
        .filter(|width| (1..=32).contains(width))?;
    let lane = match speed {
        s if s >= 64.0 => 62_000,
        s if s >= 32.0 => 31_508,
        s if s >= 16.0 => 15_754,
        s if s >= 8.0 => 7_877,
        s if s >= 5.0 => 4_000,
        _ => 2_000,
    };
    Some(lane * width)
}
