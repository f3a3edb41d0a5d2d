// SPDX-License-Identifier: Apache-2.0
//! A bond as a parent: its ports and their hardware.

use super::{Drivers, Port, pci, port, root};
use crate::error::Error;
use crate::kernel::{Kernel, Side, link_by_index, links};
use common::netlink::{BondMode, Link, LinkInfo, LinkLayer};
use common::rdma::{PciAddress, Sysfs};

/// A bond and its ports.
#[derive(Clone, Debug, PartialEq)]
pub struct Bond {
    /// Its mode; `None` if the kernel has a mode that this version does not know.
    pub mode: Option<BondMode>,
    /// The index of the active port, in the modes that have one.
    pub active: Option<u32>,
    /// Its ports, by ascending index.
    pub ports: Vec<BondPort>,
}

/// One port of a bond.
#[derive(Clone, Debug, PartialEq)]
pub struct BondPort {
    /// The port's link.
    pub link: Link,
    /// The link of which children are created, as [`Host::root`](super::Host::root).
    pub root: Link,
    /// Its RDMA port, if this namespace can see one.
    pub port: Option<Port>,
    /// The PCI address of its device.
    pub pci: Option<PciAddress>,
    /// The drivers of its root.
    pub drivers: Drivers,
}

impl Bond {
    /// The port that carries the traffic.
    pub fn active(&self) -> Option<&BondPort> {
        let active = self.active?;
        self.ports.iter().find(|port| port.link.index == active)
    }

    /// The names of the ports.
    pub fn names(&self) -> Vec<&str> {
        self.ports.iter().map(|port| port.link.name.as_str()).collect()
    }

    /// The PCI address of the active port's device, or of the first port's: a bond has none itself.
    pub(super) fn pci(&self) -> Option<PciAddress> {
        self.active_first().first().and_then(|port| port.pci)
    }

    /// The ports, the active one first.
    pub(crate) fn active_first(&self) -> Vec<&BondPort> {
        let mut ports: Vec<&BondPort> = self.ports.iter().collect();
        ports.sort_by_key(|port| Some(port.link.index) != self.active);
        ports
    }
}

/// Reads the bond `master`; `None` if it is not a bond.
pub(super) fn observe(
    kernel: &mut dyn Kernel,
    sysfs: &Sysfs,
    side: Side,
    master: &Link,
) -> Result<Option<Bond>, Error> {
    if !master.is_bond() {
        return Ok(None);
    }
    let (mode, active) = match master.info {
        LinkInfo::Bond { mode, active, .. } => (Some(mode), active),
        _ => (None, None),
    };
    let mut ports = Vec::new();
    for link in links(kernel, side)? {
        if link.master == Some(master.index) {
            ports.push(bond_port(kernel, sysfs, side, link)?);
        }
    }
    Ok(Some(Bond { mode, active, ports }))
}

fn bond_port(kernel: &mut dyn Kernel, sysfs: &Sysfs, side: Side, link: Link) -> Result<BondPort, Error> {
    let root = root(kernel, side, &link)?;
    let port = match link.layer {
        LinkLayer::Infiniband => port(sysfs, &root)?,
        _ => None,
    };
    let pci = pci(sysfs, side, &root);
    let drivers = Drivers::read(kernel, sysfs, side, &root);
    Ok(BondPort {
        link,
        root,
        port,
        pci,
        drivers,
    })
}

/// The link that `link` is a port of.
pub(super) fn enslaved_to(kernel: &mut dyn Kernel, side: Side, link: &Link) -> Result<Option<Link>, Error> {
    match link.master {
        Some(index) => link_by_index(kernel, side, index),
        None => Ok(None),
    }
}
