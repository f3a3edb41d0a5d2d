// SPDX-License-Identifier: Apache-2.0
//! The facts about a link and the RDMA devices that may belong to it.

use crate::error::{Error, Step};
use crate::kernel::{Kernel, Side};
use common::netlink::{Link, LinkInfo, LinkLayer, NetnsMode, RdmaDevice};
use common::rdma::{Behind, Device, PortLayer, Sysfs};
use std::path::PathBuf;
use std::thread::sleep;
use std::time::Duration;

/// The maximum depth of links below each other, such as a VLAN on a bond on a port. A deeper stack is a loop.
const DEPTH: usize = 16;

/// How often sysfs and netlink are read until netlink lists every device that sysfs shows. In exclusive mode only: a
/// device moves by its index.
const READS: usize = 5;

/// How long a device that netlink does not list may take until the next read.
const POLL: Duration = Duration::from_millis(20);

/// The input of [`find`](super::find()).
#[derive(Clone, Debug, PartialEq)]
pub struct Facts {
    /// Whether the node's namespaces share the RDMA devices.
    pub mode: NetnsMode,
    /// The link, and every link below it, nearest first: parents, and the ports of a bond.
    pub lowers: Vec<Lower>,
    /// The RDMA devices that may belong to one of them.
    pub devices: Vec<ObservedDevice>,
}

/// A link and its device.
#[derive(Clone, Debug, PartialEq)]
pub struct Lower {
    /// The link.
    pub link: Link,
    /// Its device; `None` for a virtual link, or a link in the pod.
    pub behind: Option<Behind>,
}

/// An RDMA device, by sysfs and netlink.
#[derive(Clone, Debug, PartialEq)]
pub struct ObservedDevice {
    /// The device in sysfs.
    pub device: Device,
    /// Its index; `None` without a netlink request, or if netlink lists no device of this name.
    pub index: Option<u32>,
    /// Whether it carries management packets only.
    pub smi: bool,
    /// The links on its ports by netlink: port, index.
    pub netdevs: Vec<(u32, u32)>,
    /// The links whose addresses are in its GID tables, if those had to be read: port, name.
    pub gid_links: Vec<(u32, String)>,
}

impl Facts {
    /// Reads the facts about `link`, which is on `side`, without GID tables. Netlink is used only if sysfs is not enough.
    ///
    /// # Errors
    /// The kernel refuses a request, or sysfs cannot be listed.
    pub(super) fn read(
        kernel: &mut dyn Kernel,
        sysfs: &Sysfs,
        side: Side,
        link: &Link,
    ) -> Result<Self, Error> {
        Self::read_with(kernel, sysfs, side, link, true)
    }

    /// As [`Facts::read`], without requests to drivers of other devices: for an interface without a request
    /// for a device.
    ///
    /// # Errors
    /// As [`Facts::read`].
    pub(super) fn read_near(
        kernel: &mut dyn Kernel,
        sysfs: &Sysfs,
        side: Side,
        link: &Link,
    ) -> Result<Self, Error> {
        Self::read_with(kernel, sysfs, side, link, false)
    }

    fn read_with(
        kernel: &mut dyn Kernel,
        sysfs: &Sysfs,
        side: Side,
        link: &Link,
        thorough: bool,
    ) -> Result<Self, Error> {
        let mut facts = Self {
            mode: NetnsMode::Shared,
            lowers: Vec::new(),
            devices: Vec::new(),
        };
        if !sysfs.has_rdma() {
            return Ok(facts);
        }
        facts.mode = mode(kernel)?;
        facts.lowers = lowers(kernel, sysfs, side, link)?;
        for read in 1..=READS {
            let devices = near(sysfs, &facts.lowers, thorough)?;
            facts.devices = devices.into_iter().map(ObservedDevice::from).collect();
            if facts.mode == NetnsMode::Exclusive || link.layer == LinkLayer::Ethernet {
                facts.ask_netlink(kernel, side)?;
            }
            let listed = facts.devices.iter().all(|seen| seen.index.is_some());
            // sysfs has the devices of the host, which netlink does not list in an exclusive pod.
            if facts.mode == NetnsMode::Shared || side == Side::Pod || listed || read == READS {
                break;
            }
            // sysfs shows a device before netlink lists it, and udev may rename it between the two reads.
            sleep(POLL);
        }
        Ok(facts)
    }

    /// Reads only sysfs, for one link. That is enough on InfiniBand.
    ///
    /// # Errors
    /// sysfs cannot be listed.
    pub fn of_sysfs(sysfs: &Sysfs, link: &Link) -> Result<Self, Error> {
        let lowers = vec![Lower {
            behind: sysfs.behind(link),
            link: link.clone(),
        }];
        Ok(Self {
            mode: NetnsMode::Shared,
            devices: near(sysfs, &lowers, false)?
                .into_iter()
                .map(ObservedDevice::from)
                .collect(),
            lowers,
        })
    }

    /// Adds to the devices what netlink reports of them.
    ///
    /// # Errors
    /// The kernel refuses a request.
    pub(super) fn ask_netlink(&mut self, kernel: &mut dyn Kernel, side: Side) -> Result<(), Error> {
        let of_kernel = devices(kernel, side)?;
        for seen in &mut self.devices {
            let Some(same) = of_kernel.iter().find(|other| other.name == seen.device.name) else {
                continue;
            };
            seen.index = Some(same.index);
            seen.smi |= same.smi;
            if !seen
                .device
                .ports
                .iter()
                .any(|port| port.layer == PortLayer::Ethernet)
            {
                continue;
            }
            let step = || format!("list the ports of RDMA device {}", seen.device.name);
            let ports = kernel.rdma_ports(side, same.index).step(step)?;
            let netdevs = ports
                .iter()
                .filter_map(|port| Some((port.number, port.netdev.as_ref()?.0)));
            seen.netdevs = netdevs.collect();
        }
        Ok(())
    }

    /// Adds the GID tables of every device of the node. Each table is a request to a driver.
    ///
    /// # Errors
    /// sysfs cannot be listed.
    pub(super) fn add_gid_tables(&mut self, sysfs: &Sysfs) -> Result<(), Error> {
        let absent =
            |device: &Device, all: &[ObservedDevice]| all.iter().all(|seen| seen.device.name != device.name);
        for device in all(sysfs)? {
            if absent(&device, &self.devices) {
                self.devices.push(device.into());
            }
        }
        for seen in &mut self.devices {
            for port in seen
                .device
                .ports
                .iter()
                .filter(|port| port.layer == PortLayer::Ethernet)
            {
                // A device that is being removed has no table any more.
                let names = sysfs.netdevs(&seen.device, port).unwrap_or_default();
                seen.gid_links
                    .extend(names.into_iter().map(|name| (port.number, name)));
            }
        }
        Ok(())
    }
}

impl From<Device> for ObservedDevice {
    fn from(device: Device) -> Self {
        // The kernel reports it since 6.11, and has always given such devices this name.
        let smi = device
            .name
            .strip_prefix("smi")
            .is_some_and(|number| !number.is_empty() && number.bytes().all(|b| b.is_ascii_digit()));
        Self {
            device,
            index: None,
            smi,
            netdevs: Vec::new(),
            gid_links: Vec::new(),
        }
    }
}

/// Whether the node's namespaces share the RDMA devices.
pub(crate) fn mode(kernel: &mut dyn Kernel) -> Result<NetnsMode, Error> {
    kernel
        .rdma_mode()
        .step(|| "read the mode of the RDMA subsystem".to_owned())
}

/// The RDMA devices that `side` sees.
pub(crate) fn devices(kernel: &mut dyn Kernel, side: Side) -> Result<Vec<RdmaDevice>, Error> {
    kernel
        .rdma_devices(side)
        .step(|| "list the RDMA devices".to_owned())
}

/// The directory of the hardware of the device `name`.
pub(super) fn path_of(all: &[Device], name: &str) -> Option<PathBuf> {
    all.iter().find(|device| device.name == name)?.path.clone()
}

/// Every RDMA device that sysfs shows.
pub(crate) fn all(sysfs: &Sysfs) -> Result<Vec<Device>, Error> {
    sysfs
        .devices()
        .map_err(|source| listing("/sys/class/infiniband".into(), source))
}

fn listing(path: PathBuf, source: std::io::Error) -> Error {
    Error::Io {
        what: "list the RDMA devices in",
        path,
        remedy: "is sysfs mounted?",
        source,
    }
}

/// The RDMA devices on the functions of `lowers`. If there is none, software devices or, if `thorough`, all
/// devices of the node. For an `InfiniBand` link whose function cannot be seen from here, all devices.
fn near(sysfs: &Sysfs, lowers: &[Lower], thorough: bool) -> Result<Vec<Device>, Error> {
    let mut found: Vec<Device> = Vec::new();
    let paths = || {
        lowers
            .iter()
            .filter_map(|lower| Some(&lower.behind.as_ref()?.path))
    };
    for path in paths() {
        let on = sysfs
            .devices_on(path)
            .map_err(|source| listing(path.clone(), source))?;
        let new = on
            .into_iter()
            .filter(|device| found.iter().all(|f| f.name != device.name))
            .collect::<Vec<_>>();
        found.extend(new);
    }
    let infiniband = lowers
        .iter()
        .any(|lower| lower.link.layer == LinkLayer::Infiniband);
    if !found.is_empty() {
        Ok(found)
    } else if infiniband && paths().next().is_none() || thorough {
        all(sysfs)
    } else {
        sysfs
            .software_devices()
            .map_err(|source| listing("/sys/class/infiniband".into(), source))
    }
}

fn lowers(kernel: &mut dyn Kernel, sysfs: &Sysfs, side: Side, link: &Link) -> Result<Vec<Lower>, Error> {
    let mut links = vec![link.clone()];
    let mut next = 0;
    while let Some(link) = links.get(next).cloned().filter(|_| next < DEPTH) {
        let below = below(kernel, side, &link)?;
        links.extend(
            below
                .into_iter()
                .filter(|new| links.iter().all(|known| known.index != new.index))
                .collect::<Vec<_>>(),
        );
        next += 1;
    }
    let lower = |link: Link| Lower {
        behind: (side == Side::Host).then(|| sysfs.behind(&link)).flatten(),
        link,
    };
    Ok(links.into_iter().map(lower).collect())
}

/// The links directly below `link`: its parent, or the ports of a bond, a team or a bridge, the active one first, then
/// those with carrier.
fn below(kernel: &mut dyn Kernel, side: Side, link: &Link) -> Result<Vec<Link>, Error> {
    if matches!(link.kind.as_deref(), Some("bond" | "team" | "bridge")) {
        let mut ports = crate::kernel::links(kernel, side)?;
        ports.retain(|port| port.master == Some(link.index));
        let active = match link.info {
            LinkInfo::Bond { active, .. } => active,
            _ => None,
        };
        ports.sort_by_key(|port| (active != Some(port.index), !port.carrier, port.index));
        return Ok(ports);
    }
    let Some(parent) = link.parent.filter(|_| link.parent_netnsid.is_none()) else {
        return Ok(Vec::new());
    };
    let found = kernel
        .link_by_index(side, parent)
        .step(|| format!("look up link {parent}, the parent of {}", link.name))?;
    Ok(found.into_iter().collect())
}

#[cfg(test)]
mod tests;
