// SPDX-License-Identifier: Apache-2.0
mod behind;
mod gids;

pub use behind::Behind;
pub use gids::Gid;

use super::port::{Device, Port, PortLayer};
use crate::id::{PciAddress, Pkey};
use crate::netlink::{Link, LinkLayer};
use crate::port_state::PortState;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::{fs, io};

/// The maximum depth of links below each other.
const DEPTH: usize = 8;

/// A mounted sysfs.
///
/// It shows the links of the namespace in which it was mounted, in whatever namespace the reader runs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sysfs {
    root: PathBuf,
}

impl Sysfs {
    /// The node's sysfs at `/sys`.
    pub fn host() -> Self {
        Self::at("/sys")
    }

    /// A tree of the same shape below `root`.
    pub fn at(root: impl Into<PathBuf>) -> Self {
        Self { root: root.into() }
    }

    /// Every RDMA device by name; empty if no RDMA driver is loaded.
    ///
    /// # Errors
    /// The class directory exists but cannot be listed.
    pub fn devices(&self) -> io::Result<Vec<Device>> {
        let class = self.root.join("class/infiniband");
        Ok(names(&class)?.iter().map(|name| device(&class, name)).collect())
    }

    /// The P_Keys of a port in the order of its table, without the empty entries.
    ///
    /// # Errors
    /// The table cannot be listed, e.g. because the device is gone. An Ethernet port without a table has no
    /// keys.
    pub fn pkeys(&self, device: &Device, port: &Port) -> io::Result<Vec<Pkey>> {
        let table = self.port_directory(device, port).join("pkeys");
        let keys = numbers(&table)?
            .into_iter()
            .filter_map(|slot| attribute(&table.join(slot.to_string()))?.parse::<Pkey>().ok());
        Ok(keys.filter(|pkey| pkey.is_valid()).collect())
    }

    /// The links whose addresses are in a port's GID table (`gid_attrs/ndevs`), by name. The kernel names links of
    /// all namespaces there (`print_ndev` in `drivers/infiniband/core/sysfs.c`), such as a pod's macvlan.
    ///
    /// # Errors
    /// The table cannot be listed.
    pub fn netdevs(&self, device: &Device, port: &Port) -> io::Result<Vec<String>> {
        let table = self.port_directory(device, port).join("gid_attrs/ndevs");
        let slots = names(&table)?;
        // Reading an empty slot fails with EINVAL.
        let found: BTreeSet<String> = slots
            .iter()
            .filter_map(|slot| attribute(&table.join(slot)))
            .collect();
        Ok(found.into_iter().collect())
    }

    /// The device and port below a link of the namespace in which this sysfs was mounted.
    ///
    /// An IPoIB link is matched by the port GUID in its address and by its hardware device; an Ethernet link
    /// by its hardware device, or else by the GID tables: those of software devices, and of the hardware below a
    /// virtual link. A link of the same name in a pod may be the one in the table of any other device. A representor shares the
    /// hardware device of its uplink and has no port.
    pub fn port_of<'d>(&self, devices: &'d [Device], link: &Link) -> Option<(&'d Device, &'d Port)> {
        match link.layer {
            LinkLayer::Infiniband => self.infiniband_port(devices, link),
            LinkLayer::Ethernet if link.is_representor() => None,
            LinkLayer::Ethernet => self.ethernet_port(devices, link),
            LinkLayer::Loopback | LinkLayer::Other(_) => None,
        }
    }

    fn infiniband_port<'d>(&self, devices: &'d [Device], link: &Link) -> Option<(&'d Device, &'d Port)> {
        let behind = self.device_behind(link);
        let ours = |device: &Device| behind.is_none() || device.path == behind;
        let ports = || ports(devices, PortLayer::Infiniband).filter(|(device, _)| ours(device));
        let guid = link.address.port_guid()?;
        // A child may have a port GUID of its own. Its port number still identifies the port.
        ports().find(|(_, port)| port.guid() == Some(guid)).or_else(|| {
            behind.as_ref()?;
            let number = self.port_number(link)?;
            ports().find(|(_, port)| port.number == number)
        })
    }

    fn ethernet_port<'d>(&self, devices: &'d [Device], link: &Link) -> Option<(&'d Device, &'d Port)> {
        let ports = || ports(devices, PortLayer::Ethernet);
        let behind = self.device_behind(link);
        let same = || ports().filter(|(device, _)| behind.is_some() && device.path == behind);
        let number = self.port_number(link);
        let by_number = same().find(|(_, port)| Some(port.number) == number);
        by_number.or_else(|| same().next()).or_else(|| {
            ports().find(|(device, port)| {
                let above = |path: &PathBuf| behind.is_none() && self.is_above(link, path);
                device.path.as_ref().is_none_or(above)
                    && self
                        .netdevs(device, port)
                        .is_ok_and(|names| names.contains(&link.name))
            })
        })
    }

    /// Whether a link below the virtual link `link` is on the hardware device at `path`.
    fn is_above(&self, link: &Link, path: &Path) -> bool {
        self.own_directory(link)
            .is_some_and(|directory| reaches(&directory, path, DEPTH))
    }

    /// The PCI function of a link; `None` for a virtual link, or if no link has that name.
    pub fn pci_of_netdev(&self, name: &str) -> Option<PciAddress> {
        pci_of(&self.netdev_directory(name)?.join("device").canonicalize().ok()?)
    }

    /// The NUMA node of a link's hardware device; `None` for a virtual link, and on a machine without NUMA
    /// (the kernel reports -1).
    pub fn numa_node_of_netdev(&self, name: &str) -> Option<u32> {
        attribute(&self.netdev_directory(name)?.join("device/numa_node"))?
            .parse()
            .ok()
    }

    /// The links on a device, by name. `device` is a PCI function (`0000:3b:00.0`) or an auxiliary device
    /// (`mlx5_core.sf.4`, a subfunction). Empty for any other id.
    ///
    /// # Errors
    /// The device's directory exists but cannot be listed.
    pub fn netdevs_of(&self, device: &str) -> io::Result<Vec<String>> {
        if !is_plain(device) {
            return Ok(Vec::new());
        }
        let mut found = Vec::new();
        for bus in ["pci", "auxiliary"] {
            let directory = self.root.join("bus").join(bus).join("devices").join(device);
            found.extend(names(&directory.join("net"))?);
            // A virtio device is a child device of its PCI function.
            let below = names(&directory)?;
            for virtio in below.iter().filter(|name| name.starts_with("virtio")) {
                found.extend(names(&directory.join(virtio).join("net"))?);
            }
        }
        found.sort();
        Ok(found)
    }

    /// The links on the device whose directory is `directory` (`/sys/devices/…`), by name.
    ///
    /// # Errors
    /// The directory exists but cannot be listed.
    pub fn netdevs_in(&self, directory: &Path) -> io::Result<Vec<String>> {
        let Ok(inside) = directory.strip_prefix("/sys") else {
            return Ok(Vec::new());
        };
        names(&self.root.join(inside).join("net"))
    }

    /// The hardware device of `link`; `None` if sysfs shows another link under its name.
    fn device_behind(&self, link: &Link) -> Option<PathBuf> {
        let directory = self.own_directory(link)?;
        directory.join("device").canonicalize().ok()
    }

    /// The port number of `link`. Drivers count `dev_port` from 0, ports count from 1.
    fn port_number(&self, link: &Link) -> Option<u32> {
        let number: u32 = attribute(&self.own_directory(link)?.join("dev_port"))?
            .parse()
            .ok()?;
        number.checked_add(1)
    }

    /// The directory of `link`; `None` if the directory is of a link with the same name in another namespace.
    fn own_directory(&self, link: &Link) -> Option<PathBuf> {
        let directory = self.netdev_directory(&link.name)?;
        let index: u32 = attribute(&directory.join("ifindex"))?.parse().ok()?;
        (index == link.index).then_some(directory)
    }

    fn netdev_directory(&self, name: &str) -> Option<PathBuf> {
        is_plain(name).then(|| self.root.join("class/net").join(name))
    }

    fn port_directory(&self, device: &Device, port: &Port) -> PathBuf {
        self.root
            .join("class/infiniband")
            .join(&device.name)
            .join("ports")
            .join(port.number.to_string())
    }
}

/// Whether the link in `directory`, or a link below it (`lower_NAME`), is on the hardware device at `path`.
fn reaches(directory: &Path, path: &Path, depth: usize) -> bool {
    let device = directory.join("device").canonicalize().ok();
    let below = || names(directory).unwrap_or_default().into_iter();
    device.as_deref() == Some(path)
        || depth > 0
            && below()
                .filter(|name| name.starts_with("lower_"))
                .any(|name| reaches(&directory.join(name), path, depth - 1))
}

/// Every port of the link layer `layer`, with its device.
fn ports(devices: &[Device], layer: PortLayer) -> impl Iterator<Item = (&Device, &Port)> {
    let all = devices
        .iter()
        .flat_map(|device| device.ports.iter().map(move |port| (device, port)));
    all.filter(move |(_, port)| port.layer == layer)
}

/// Whether `name` is a single path component that stays in its directory.
fn is_plain(name: &str) -> bool {
    !name.is_empty() && name != "." && name != ".." && !name.contains('/')
}

fn device(class: &Path, name: &str) -> Device {
    let directory = class.join(name);
    let ports = numbers(&directory.join("ports")).unwrap_or_default().into_iter();
    let path = directory.join("device").canonicalize().ok();
    Device {
        name: name.to_owned(),
        node_guid: attribute(&directory.join("node_guid"))
            .and_then(|text| text.parse().ok())
            .unwrap_or_default(),
        pci: path.as_deref().and_then(pci_of),
        path,
        ports: ports
            .map(|number| port(number, &directory.join("ports").join(number.to_string())))
            .collect(),
    }
}

fn port(number: u32, directory: &Path) -> Port {
    let text = |name: &str| attribute(&directory.join(name)).unwrap_or_default();
    let lid = |name: &str| {
        let value = text(name);
        u16::from_str_radix(value.trim_start_matches("0x"), 16).unwrap_or(0)
    };
    let phys_state = text("phys_state");
    let gid = text("gids/0")
        .parse()
        .ok()
        .filter(|gid: &std::net::Ipv6Addr| !gid.is_unspecified());
    Port {
        number,
        layer: PortLayer::parse(&text("link_layer")),
        state: PortState::parse(&text("state")),
        phys_state: phys_state
            .split_once(": ")
            .map_or(phys_state.as_str(), |(_, words)| words)
            .to_owned(),
        rate_mbps: rate_mbps(&text("rate")),
        lid: lid("lid"),
        sm_lid: lid("sm_lid"),
        gid,
    }
}

/// Reads `200 Gb/sec (4X HDR)` or `2.5 Gb/sec (1X SDR)`.
fn rate_mbps(text: &str) -> Option<u32> {
    let number = text
        .strip_suffix(')')
        .map_or(text, |t| t)
        .split_once(" Gb/sec")?
        .0;
    let (whole, tenths) = number.split_once('.').unwrap_or((number, "0"));
    let tenths: u32 = tenths.get(..1)?.parse().ok()?;
    whole
        .parse::<u32>()
        .ok()?
        .checked_mul(1000)?
        .checked_add(tenths * 100)
}

/// The nearest ancestor directory that is named by a PCI address: a subfunction (auxiliary bus) is below its
/// parent's.
fn pci_of(device: &Path) -> Option<PciAddress> {
    device
        .ancestors()
        .find_map(|directory| directory.file_name()?.to_str()?.parse().ok())
}

/// The text of a sysfs file; `None` if it is absent, unreadable or empty.
fn attribute(file: &Path) -> Option<String> {
    let text = fs::read_to_string(file).ok()?;
    let text = text.trim();
    (!text.is_empty()).then(|| text.to_owned())
}

/// The numbers among the names in a directory, ascending.
fn numbers(directory: &Path) -> io::Result<Vec<u32>> {
    let mut numbers: Vec<u32> = names(directory)?
        .iter()
        .filter_map(|name| name.parse().ok())
        .collect();
    numbers.sort_unstable();
    Ok(numbers)
}

/// The names in a directory, sorted; empty if the directory does not exist.
fn names(directory: &Path) -> io::Result<Vec<String>> {
    let entries = match fs::read_dir(directory) {
        Ok(entries) => entries,
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(e) => return Err(e),
    };
    let mut names = entries
        .map(|entry| Ok(entry?.file_name().to_string_lossy().into_owned()))
        .collect::<io::Result<Vec<String>>>()?;
    names.sort();
    Ok(names)
}

#[cfg(test)]
mod tests;
