// SPDX-License-Identifier: Apache-2.0
//! What the plan must know of the node: read once, changed by nobody, written by hand in tests.

pub(crate) mod bond;

pub use bond::{Bond, BondPort};

use crate::config::{Config, Master};
use crate::device::hardware::is_made_by_software;
use crate::error::{Candidates, Error};
use crate::kernel::{Kernel, Side, links};
use crate::rdma::{self, Facts};
use crate::select::{Loads, chosen};
use common::netlink::{self, HwAddress, Link, LinkInfo, LinkLayer, TABLE_MAIN};
use common::rdma::{PciAddress, Pkey, PortState, Sysfs};
use std::path::PathBuf;

/// The parent and what it hangs on.
#[derive(Clone, Debug, PartialEq)]
pub struct Host {
    /// The namespace the parent is in.
    pub side: Side,
    /// The link that the configuration names.
    pub master: Link,
    /// The link that children are asked of: the same, or for an `IPoIB` child the one it is a child of, since the
    /// kernel makes no child of a child.
    pub root: Link,
    /// The RDMA port of the root, if it has one that can be seen from here.
    pub port: Option<Port>,
    /// The PCI address of the root's device.
    pub pci: Option<PciAddress>,
    /// Who drives the root.
    pub drivers: Drivers,
    /// The master's ports, if it is a bond.
    pub bond: Option<Bond>,
    /// The name of the link that the master is enslaved to.
    pub enslaved_to: Option<String>,
}

/// Who drives an `IPoIB` link: the plan chooses by this how its children get into the pod.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Drivers {
    /// The kernel driver of the HCA, e.g. `mlx4_core`; none if sysfs does not say.
    pub hca: Option<String>,
    /// What the link's driver calls itself, e.g. `ib_ipoib` or `mlx5_core[ib_ipoib]`; none if the link does not say.
    pub link: Option<String>,
}

impl Drivers {
    /// Reads them for `root`. Nothing is read of a link that is not InfiniBand, or not on the host.
    fn read(kernel: &mut dyn Kernel, sysfs: &Sysfs, side: Side, root: &Link) -> Self {
        if side != Side::Host || root.layer != LinkLayer::Infiniband {
            return Self::default();
        }
        Self::of(sysfs, root, kernel.driver(&root.name).ok())
    }

    /// The same for a link that answered `link` to the question for its driver.
    pub fn of(sysfs: &Sysfs, root: &Link, link: Option<String>) -> Self {
        let behind = sysfs.behind(root);
        let hca = behind.and_then(|behind| Sysfs::kernel_driver(&behind.path));
        Self { hca, link }
    }
}

/// The part of an RDMA port that the plan looks at.
#[derive(Clone, Debug, PartialEq)]
pub struct Port {
    /// The RDMA device, e.g. `mlx5_0`.
    pub device: String,
    /// The port's number, from 1.
    pub number: u32,
    /// The logical state.
    pub state: PortState,
    /// The physical state, as sysfs words it.
    pub phys_state: String,
    /// The partition keys of its table.
    pub pkeys: Vec<Pkey>,
}

/// Reads the facts that `config` asks for.
///
/// # Errors
/// The parent is not set, not there or not to be seen, or the kernel does not answer.
pub fn observe(kernel: &mut dyn Kernel, sysfs: &Sysfs, config: &Config) -> Result<Host, Error> {
    let side = if config.link_in_container {
        Side::Pod
    } else {
        Side::Host
    };
    let master = master(kernel, sysfs, &config.master, side)?;
    let root = root(kernel, side, &master)?;
    let bond = bond::observe(kernel, sysfs, side, &master)?;
    // Only InfiniBand has P_Keys and port states that a child depends on; the tables take time to read.
    let port = match &bond {
        None if root.layer == LinkLayer::Infiniband => port(sysfs, &root)?,
        _ => None,
    };
    let own = pci(sysfs, side, &root);
    let pci = own.or_else(|| bond.as_ref().and_then(Bond::pci));
    let enslaved_to = bond::enslaved_to(kernel, side, &master)?;
    let drivers = match &bond {
        None => Drivers::read(kernel, sysfs, side, &root),
        Some(_) => Drivers::default(),
    };
    Ok(Host {
        side,
        master,
        root,
        port,
        pci,
        drivers,
        bond,
        enslaved_to,
    })
}

fn master(kernel: &mut dyn Kernel, sysfs: &Sysfs, master: &Master, side: Side) -> Result<Link, Error> {
    let name = match master {
        Master::Named(name) => name.clone(),
        Master::Device(id) => {
            return device_link(kernel, side, id, sysfs.netdevs_of(id).unwrap_or_default());
        }
        Master::KernelPath(folder) => {
            let names = sysfs.netdevs_in(folder).unwrap_or_default();
            return device_link(kernel, side, &folder.display().to_string(), names);
        }
        // Nobody counted what lives on each: ADD, which does, has settled it before.
        Master::Preferred(preferences) => chosen(kernel, sysfs, preferences, &Loads::new())?.name,
        Master::Address(address) => return addressed_link(kernel, sysfs, side, address),
        Master::DefaultRoute => {
            return default_route_link(kernel, side);
        }
        Master::Unset => {
            return Err(Error::MasterUnset {
                candidates: candidates(kernel, sysfs, side),
            });
        }
    };
    let found = kernel
        .link(side, &name)
        .map_err(|e| refused(format!("look up master {name}"), e))?;
    found.ok_or_else(|| Error::MasterMissing {
        name,
        place: match side {
            Side::Host => "on this node",
            Side::Pod => "in the pod (linkInContainer is set)",
        },
        candidates: candidates(kernel, sysfs, side),
    })
}

/// The link with a hardware address: on Ethernet the one it was made with, else the one it has; on InfiniBand any with
/// its port's GUID, since the rest is a queue pair's number. Children and bonds, which share it, are not meant.
fn addressed_link(
    kernel: &mut dyn Kernel,
    sysfs: &Sysfs,
    side: Side,
    address: &HwAddress,
) -> Result<Link, Error> {
    let all = links(kernel, side)?;
    let guid = address.port_guid();
    let made_with = |link: &&Link| match guid {
        Some(guid) => link.address.port_guid() == Some(guid),
        None => link.perm_address.as_ref() == Some(address),
    };
    let candidates = || all.iter().filter(|link| !is_made_by_software(link));
    let found = candidates()
        .find(made_with)
        .or_else(|| candidates().find(|link| link.address == *address));
    found.cloned().ok_or_else(|| Error::MasterMissing {
        name: address.to_string(),
        place: "as a hardware address on this node",
        candidates: self::candidates(kernel, sysfs, side),
    })
}

/// The link of a device. sysfs lists children beside it, such as one that a dead pod left under any name.
fn device_link(kernel: &mut dyn Kernel, side: Side, id: &str, names: Vec<String>) -> Result<Link, Error> {
    let mut links = Vec::new();
    for name in names {
        let found = kernel.link(side, &name);
        links.extend(found.map_err(|e| refused(format!("look up {name}"), e))?);
    }
    let own = links.iter().position(|link| link.parent.is_none()).unwrap_or(0);
    links
        .into_iter()
        .nth(own)
        .ok_or_else(|| Error::DeviceWithoutLink { id: id.to_owned() })
}

/// The link that an `IPoIB` child hangs on; any other link is its own root.
fn root(kernel: &mut dyn Kernel, side: Side, master: &Link) -> Result<Link, Error> {
    let (LinkInfo::Ipoib { .. }, Some(parent)) = (&master.info, master.parent) else {
        return Ok(master.clone());
    };
    if master.parent_netnsid.is_none()
        && let Some(root) = link_by_index(kernel, side, parent)?
    {
        return Ok(root);
    }
    Err(Error::WrongKind {
        master: master.name.clone(),
        what: "an IPoIB child whose parent is in another namespace".to_owned(),
        mode: crate::config::Mode::Ipoib,
        remedy: "name a master whose parent is beside it".to_owned(),
    })
}

/// The link of the default route with the lowest metric, which is the one that the kernel takes.
fn default_route_link(kernel: &mut dyn Kernel, side: Side) -> Result<Link, Error> {
    let mut best: Option<(u32, Link)> = None;
    for link in links(kernel, side)? {
        let routes = kernel
            .routes(side, link.index)
            .map_err(|e| refused(format!("list the routes of {}", link.name), e))?;
        let main = routes
            .iter()
            .filter(|r| r.dst.prefix() == 0 && r.table.is_none_or(|table| table == TABLE_MAIN));
        if let Some(metric) = main.map(|r| r.priority.unwrap_or(0)).min()
            && best.as_ref().is_none_or(|(lowest, _)| metric < *lowest)
        {
            best = Some((metric, link));
        }
    }
    best.map(|(_, link)| link).ok_or(Error::NoDefaultRoute)
}

fn port(sysfs: &Sysfs, root: &Link) -> Result<Option<Port>, Error> {
    let facts = Facts::of_sysfs(sysfs, root)?;
    let Some((device, port)) = rdma::find::first(&facts) else {
        return Ok(None);
    };
    Ok(Some(Port {
        device: device.name.clone(),
        number: port.number,
        state: port.state,
        phys_state: port.phys_state.clone(),
        pkeys: sysfs.pkeys(device, port).map_err(|source| Error::Io {
            what: "read the P_Key table of",
            path: PathBuf::from(&device.name),
            remedy: "is the device still there?",
            source,
        })?,
    }))
}

/// The PCI function behind a link of the namespace that sysfs shows.
fn pci(sysfs: &Sysfs, side: Side, link: &Link) -> Option<PciAddress> {
    match side {
        Side::Host => sysfs.pci_of_netdev(&link.name),
        Side::Pod => None,
    }
}

fn link_by_index(kernel: &mut dyn Kernel, side: Side, index: u32) -> Result<Option<Link>, Error> {
    kernel
        .link_by_index(side, index)
        .map_err(|e| refused(format!("look up link {index}"), e))
}

/// The links that have an RDMA port, described. Part of an error already, so its own failures leave it empty.
fn candidates(kernel: &mut dyn Kernel, sysfs: &Sysfs, side: Side) -> Candidates {
    let devices = sysfs.devices().unwrap_or_default();
    let links = kernel.links(side).unwrap_or_default();
    let describe = |link: &Link| {
        let (device, port) = sysfs.port_of(&devices, link)?;
        let layer = if link.layer == LinkLayer::Infiniband {
            "InfiniBand"
        } else {
            "Ethernet"
        };
        Some(format!(
            "{} ({layer}, {}/{}, {})",
            link.name, device.name, port.number, port.state
        ))
    };
    // Children share their parent's port, and a pod's child is nobody's master.
    Candidates(
        links
            .iter()
            .filter(|link| link.parent.is_none())
            .filter_map(describe)
            .collect(),
    )
}

/// A request that the kernel refused while looking around.
pub(crate) fn refused(step: impl Into<String>, source: netlink::Error) -> Error {
    Error::Kernel {
        step: step.into(),
        source,
    }
}

#[cfg(test)]
mod tests;
