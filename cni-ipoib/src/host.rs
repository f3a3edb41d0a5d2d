// SPDX-License-Identifier: Apache-2.0
//! The facts about the node that the plan needs. They are read once and never changed; tests write them by
//! hand.

pub(crate) mod bond;

pub use bond::{Bond, BondPort};

use crate::config::preferences::layer;
use crate::config::{Config, ResolvedMaster, names_a_device};
use crate::error::{Candidates, Error, Step};
use crate::intent::is_made_by_software;
use crate::kernel::{Kernel, Side, link_by_index, links};
use crate::mark;
use crate::mode::Mode;
use crate::rdma::{self, Facts};
use common::netlink::{HwAddress, Link, LinkInfo, LinkLayer, TABLE_MAIN};
use common::rdma::{PciAddress, Pkey, PortState, Sysfs};
use std::path::PathBuf;

/// The parent, and the links and hardware below it.
#[derive(Clone, Debug, PartialEq)]
pub struct Host {
    /// The namespace the parent is in.
    pub side: Side,
    /// The link that the configuration names.
    pub master: Link,
    /// The link of which children are created. For an `IPoIB` child that is its parent, since the kernel
    /// creates no child of a child; any other link is its own root.
    pub root: Link,
    /// The RDMA port of the root, if this namespace can see one.
    pub port: Option<Port>,
    /// The PCI address of the root's device.
    pub pci: Option<PciAddress>,
    /// The drivers of the root.
    pub drivers: Drivers,
    /// The master's ports, if it is a bond.
    pub bond: Option<Bond>,
    /// The link that the master is a port of.
    pub enslaved_to: Option<Link>,
}

/// The drivers of an `IPoIB` link. They decide how its children get into the pod.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Drivers {
    /// The kernel driver of the HCA, e.g. `mlx4_core`; `None` if sysfs does not show it.
    pub hca: Option<String>,
    /// The link's driver by its own report, e.g. `ib_ipoib` or `mlx5_core[ib_ipoib]`; `None` if it reports
    /// none.
    pub link: Option<String>,
}

impl Drivers {
    /// Reads the drivers of `root`. Reads nothing for a link that is not InfiniBand, or not on the host.
    fn read(kernel: &mut dyn Kernel, sysfs: &Sysfs, side: Side, root: &Link) -> Self {
        if side != Side::Host || root.layer != LinkLayer::Infiniband {
            return Self::default();
        }
        Self::of(sysfs, root, kernel.driver(&root.name).ok())
    }

    /// The drivers of a link whose driver reports itself as `link`.
    pub fn of(sysfs: &Sysfs, root: &Link, link: Option<String>) -> Self {
        let behind = sysfs.behind(root);
        let hca = behind.and_then(|behind| Sysfs::kernel_driver(&behind.path));
        Self { hca, link }
    }
}

/// The properties of an RDMA port that the plan uses.
#[derive(Clone, Debug, PartialEq)]
pub struct Port {
    /// The RDMA device, e.g. `mlx5_0`.
    pub device: String,
    /// The port's number, from 1.
    pub number: u32,
    /// The logical state.
    pub state: PortState,
    /// The physical state, in the text of sysfs.
    pub phys_state: String,
    /// The partition keys of its table.
    pub pkeys: Vec<Pkey>,
}

impl Port {
    /// Why the port carries no traffic, and the remedy. For a port that is not active.
    pub(crate) fn trouble(&self) -> String {
        let Self {
            device,
            number,
            state,
            phys_state,
            ..
        } = self;
        let cause = state.unfinished();
        let cause = cause.unwrap_or("check cable, switch port and subnet manager");
        let remedy = match state {
            PortState::Init => "; start one that reaches this port: opensm, or one in a switch or in UFM",
            _ => "",
        };
        format!("{device} port {number} is {state} ({phys_state}); {cause}{remedy}")
    }
}

/// The namespace in which `config` places the parent.
pub fn side_of(config: &Config) -> Side {
    if config.link_in_container {
        Side::Pod
    } else {
        Side::Host
    }
}

/// Reads the facts about `master`, which is on `side`.
///
/// # Errors
/// The parent is not set, does not exist or cannot be seen, or the kernel refuses a request.
pub fn observe(
    kernel: &mut dyn Kernel,
    sysfs: &Sysfs,
    side: Side,
    master: &ResolvedMaster,
) -> Result<Host, Error> {
    let master = find_master(kernel, sysfs, side, master)?;
    let root = root(kernel, side, &master)?;
    let bond = bond::observe(kernel, sysfs, side, &master)?;
    // Only children on InfiniBand depend on P_Keys and port states. Reading the tables takes time.
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

fn find_master(
    kernel: &mut dyn Kernel,
    sysfs: &Sysfs,
    side: Side,
    master: &ResolvedMaster,
) -> Result<Link, Error> {
    let name = match master {
        ResolvedMaster::Named(name) => name.clone(),
        ResolvedMaster::Device(id) => {
            let names = sysfs.netdevs_of(id).unwrap_or_default();
            if names.is_empty() && !names_a_device(id) {
                return Err(Error::IdWithoutDevice {
                    id: id.clone(),
                    candidates: candidates(kernel, sysfs, side),
                });
            }
            return device_link(kernel, side, id, names);
        }
        ResolvedMaster::KernelPath(directory) => {
            let names = sysfs.netdevs_in(directory).unwrap_or_default();
            return device_link(kernel, side, &directory.display().to_string(), names);
        }
        ResolvedMaster::Address(address) => return addressed_link(kernel, sysfs, side, address),
        ResolvedMaster::DefaultRoute => {
            return default_route_link(kernel, side);
        }
        ResolvedMaster::Unset => {
            return Err(Error::MasterUnset {
                candidates: candidates(kernel, sysfs, side),
            });
        }
    };
    let found = kernel
        .link(side, &name)
        .step(|| format!("look up master {name}"))?;
    // A pod had named its interface so, and the kernel returned it. The pods of this network would be on its port.
    let is_of_pod = |link: &Link| side == Side::Host && mark::is_ours(link) && is_made_by_software(link);
    let place = match (side, &found) {
        (Side::Host, Some(link)) if is_of_pod(link) => {
            "on this node: the interface of a pod that has ended has this name, until the DEL of that pod"
        }
        (Side::Host, _) => "on this node",
        (Side::Pod, _) => "in the pod (linkInContainer is set)",
    };
    found
        .filter(|link| !is_of_pod(link))
        .ok_or_else(|| Error::MasterMissing {
            name,
            place,
            candidates: candidates(kernel, sysfs, side),
        })
}

/// The link with a hardware address: on Ethernet the permanent address, else the present one; on InfiniBand
/// any with its port's GUID, since the rest is a queue pair's number. Children and bonds share the address
/// and are excluded. A link with a group and the alias of an attachment is excluded too,
/// because a child in a pod may report no parent.
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
    let is_interface = |link: &Link| link.group != 0 && mark::is_ours(link);
    let candidates = || {
        all.iter()
            .filter(|link| !is_made_by_software(link) && !is_interface(link))
    };
    let found = candidates()
        .find(made_with)
        .or_else(|| candidates().find(|link| link.address == *address));
    found.cloned().ok_or_else(|| Error::MasterMissing {
        name: address.to_string(),
        place: "as a hardware address on this node",
        candidates: self::candidates(kernel, sysfs, side),
    })
}

/// The link of a device. sysfs also lists its children, such as one that a dead pod left, and in switchdev mode the
/// representors of its functions.
fn device_link(kernel: &mut dyn Kernel, side: Side, id: &str, names: Vec<String>) -> Result<Link, Error> {
    let mut links = Vec::new();
    for name in names {
        let found = kernel.link(side, &name);
        links.extend(found.step(|| format!("look up {name}"))?);
    }
    links.retain(|link| !link.is_representor());
    let own = links.iter().position(|link| link.parent.is_none()).unwrap_or(0);
    links
        .into_iter()
        .nth(own)
        .ok_or_else(|| Error::DeviceWithoutLink { id: id.to_owned() })
}

/// The parent of an `IPoIB` child; any other link is its own root.
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
        mode: Mode::Ipoib,
        remedy: "name a master whose parent is beside it".to_owned(),
    })
}

/// The link of the default route with the lowest metric, as the kernel selects it.
fn default_route_link(kernel: &mut dyn Kernel, side: Side) -> Result<Link, Error> {
    let mut best: Option<(u32, Link)> = None;
    for link in links(kernel, side)? {
        let routes = kernel
            .routes(side, link.index)
            .step(|| format!("list the routes of {}", link.name))?;
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

/// The PCI function of a link in the namespace that sysfs shows.
fn pci(sysfs: &Sysfs, side: Side, link: &Link) -> Option<PciAddress> {
    match side {
        Side::Host => sysfs.pci_of_netdev(&link.name),
        Side::Pod => None,
    }
}

/// Descriptions of the links with an RDMA port. They are part of an error, so a failure here leaves the list
/// empty.
fn candidates(kernel: &mut dyn Kernel, sysfs: &Sysfs, side: Side) -> Candidates {
    let devices = sysfs.devices().unwrap_or_default();
    let links = kernel.links(side).unwrap_or_default();
    let describe = |link: &Link| {
        let (device, port) = sysfs.port_of(&devices, link)?;
        Some(format!(
            "{} ({}, {}/{}, {})",
            link.name,
            layer(link.layer),
            device.name,
            port.number,
            port.state
        ))
    };
    // Children share their parent's port, and no child of a pod can be a master.
    Candidates(
        links
            .iter()
            .filter(|link| link.parent.is_none())
            .filter_map(describe)
            .collect(),
    )
}

#[cfg(test)]
mod tests;
