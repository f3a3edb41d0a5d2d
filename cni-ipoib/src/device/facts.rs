// SPDX-License-Identifier: Apache-2.0
//! The facts about a whole link before it leaves the host. They are read once and never changed.

use super::function::function_at;
use crate::error::{Error, Step};
use crate::host::Host;
use crate::intent::{Function, Hardware, Made, is_made_by_software};
use crate::journal::{Intent, Written};
use crate::kernel::{Kernel, Side, links};
use crate::rdma;
use common::netlink::{Carried, Link, LinkLayer, TABLE_MAIN};
use common::rdma::{Behind, Guid, PciAddress, PortState, Sysfs};
use std::ffi::OsStr;
use std::path::{Path, PathBuf};

/// The link, and everything that depends on it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Facts {
    /// The directory of its device in sysfs.
    pub path: Option<PathBuf>,
    /// The number of its port on that device.
    pub port: Option<u32>,
    /// The PCI function that has the device, or is the device.
    pub pci: Option<PciAddress>,
    /// Other links of its device, and attachments that have one.
    pub beside: Vec<String>,
    /// A description, if it is not a hardware link.
    pub software: Option<String>,
    /// The bond, bridge or VRF that has it as a port.
    pub enslaved_to: Option<String>,
    /// The node's addresses on it or on its master, with the link's name.
    pub addresses: Vec<String>,
    /// The link of a default route: itself or its master.
    pub default_route: Option<String>,
    /// The host's links above it, and attachments whose interface is above it.
    pub uppers: Vec<String>,
    /// Its virtual function, on InfiniBand.
    pub function: Option<Function>,
    /// The number of its virtual functions.
    pub functions: u32,
    /// Whether it carries traffic and no other link of its layer does.
    pub last_active: bool,
    /// The attachment that owns it, or is about to.
    pub holder: Option<String>,
    /// Its addresses, routes and neighbours.
    pub carried: Carried,
    /// The GUIDs that other ports, links and attachments of this node have, each with the name of its holder. On
    /// InfiniBand only.
    pub guids: Vec<(Guid, String)>,
}

impl Facts {
    /// Reads the facts about the master of `host`. `written` has the journal entries of this node, and `damaged` the
    /// attachments on the master whose file is damaged.
    ///
    /// # Errors
    /// The kernel refuses a request, or sysfs cannot be listed.
    pub fn read(
        kernel: &mut dyn Kernel,
        sysfs: &Sysfs,
        host: &Host,
        written: &[Written],
        damaged: &[String],
    ) -> Result<Self, Error> {
        let link = &host.master;
        let all = links(kernel, Side::Host)?;
        let behind = sysfs.behind(link);
        let beside = beside(sysfs, link, behind.as_ref(), &all, written);
        let port = behind.as_ref().and_then(|behind| behind.port);
        let path = behind.map(|behind| behind.path);
        let hardware = Hardware::of(link, path.clone());
        let mut facts = Self {
            pci: sysfs.pci_of_netdev(&link.name),
            software: is_made_by_software(link).then(|| {
                let kind = link.kind.as_deref().unwrap_or("unknown");
                format!("a link of kind {kind}")
            }),
            enslaved_to: host.enslaved_to.as_ref().map(|upper| upper.name.clone()),
            beside,
            uppers: uppers(link, &all, written, damaged),
            function: path.as_deref().and_then(|path| function_at(path, link)),
            functions: path.as_deref().map_or(0, Sysfs::virtual_functions),
            last_active: is_last_active(sysfs, link, &all, written)?,
            holder: holder(link, written),
            guids: guids(sysfs, &hardware, &all, written)?,
            path,
            port,
            ..Self::default()
        };
        let master = link
            .master
            .and_then(|index| all.iter().find(|l| l.index == index));
        for link in std::iter::once(link).chain(master) {
            facts.read_use(kernel, link)?;
        }
        facts.carried = kernel
            .carried(link.index)
            .step(|| format!("list what {} carries", link.name))?;
        Ok(facts)
    }

    /// Whether a pod that gets the link gets all of its PCI function. A subfunction is a device below the function, and a
    /// port shares the function. A function of virtio has one virtio device.
    pub fn is_whole_function(&self) -> bool {
        let Some(path) = &self.path else {
            return false;
        };
        let name = |path: &Path| path.file_name().and_then(OsStr::to_str).map(str::to_owned);
        let is_virtio = name(path).is_some_and(|name| name.starts_with("virtio"));
        let function = if is_virtio {
            path.parent()
        } else {
            Some(path.as_path())
        };
        let function: Option<PciAddress> = function.and_then(name).and_then(|name| name.parse().ok());
        function.is_some() && self.beside.is_empty()
    }

    /// Adds the node's own use of `link`.
    fn read_use(&mut self, kernel: &mut dyn Kernel, link: &Link) -> Result<(), Error> {
        let step = |what: &str| format!("list the {what} of {}", link.name);
        let addresses = kernel
            .addresses(Side::Host, link.index)
            .step(|| step("addresses"))?;
        let of_node = addresses.iter().filter(|address| address.scope == SCOPE_GLOBAL);
        self.addresses
            .extend(of_node.map(|address| format!("{} of {}", address.address, link.name)));
        let routes = kernel.routes(Side::Host, link.index).step(|| step("routes"))?;
        let is_default =
            |table: Option<u32>, prefix: u8| prefix == 0 && table.is_none_or(|table| table == TABLE_MAIN);
        if routes
            .iter()
            .any(|route| is_default(route.table, route.dst.prefix()))
        {
            self.default_route.get_or_insert_with(|| link.name.clone());
        }
        Ok(())
    }
}

/// `RT_SCOPE_UNIVERSE` of `include/uapi/linux/rtnetlink.h`: known beyond the link.
const SCOPE_GLOBAL: u8 = 0;

/// The links and attachments above `link`. The host cannot see children in pods; ours are in the journal. ADD may have
/// recorded a bond of `link`, or `link` under another name, as the master. Then the index of the children's parent
/// decides.
fn uppers(link: &Link, all: &[Link], written: &[Written], damaged: &[String]) -> Vec<String> {
    let on_it = |other: &&Link| {
        let child = other.parent == Some(link.index) && other.parent_netnsid.is_none();
        other.index != link.index && (child || other.master == Some(link.index))
    };
    let here = all.iter().filter(on_it).map(|upper| upper.name.clone());
    let is_above = |intent: &Intent| {
        let mut parents = intent.made.iter().filter_map(Made::parent_on_host);
        let is_child = intent.master == link.name || parents.any(|parent| parent == link.index);
        intent.device.is_none() && !intent.restored && is_child
    };
    let in_pods = written
        .iter()
        .filter(|of| is_above(&of.intent) && of.lives())
        .map(|of| format!("the interface of {of}"));
    let unknown = damaged.iter().map(|of| {
        format!("the interface of {of}, whose file in the state directory is damaged; DEL of that attachment removes the interface and the file")
    });
    here.chain(in_pods).chain(unknown).collect()
}

/// The other links of the device `behind` of `link`: those of the host, and those of other ports that attachments have.
fn beside(
    sysfs: &Sysfs,
    link: &Link,
    behind: Option<&Behind>,
    all: &[Link],
    written: &[Written],
) -> Vec<String> {
    let Some(Behind { path, port }) = behind else {
        return Vec::new();
    };
    let is_on_device = |other: &Link| sysfs.behind(other).is_some_and(|its| its.path == *path);
    let others = all.iter().filter(|other| other.index != link.index);
    let on_host = others.filter(|other| !is_made_by_software(other) && is_on_device(other));
    let has_port = |of: &&Written| {
        let device = of.intent.device.as_ref();
        device.is_some_and(|its| its.hardware.path.as_ref() == Some(path) && its.port != *port)
    };
    let in_pods = written.iter().filter(has_port);
    let names = on_host.map(|other| other.name.clone());
    names
        .chain(in_pods.map(|of| format!("the link of {of}")))
        .collect()
}

/// The attachment with `link`. A link that returned from a living pod may have the address that the pod chose, if its driver
/// reports no permanent one.
fn holder(link: &Link, written: &[Written]) -> Option<String> {
    written.iter().find(|of| of.owns(link)).map(ToString::to_string)
}

/// The GUIDs of everything except `hardware` on this node: ports in sysfs, links on the host, and attachments
/// in the journal.
fn guids(
    sysfs: &Sysfs,
    hardware: &Hardware,
    all: &[Link],
    written: &[Written],
) -> Result<Vec<(Guid, String)>, Error> {
    if hardware.port_guid.is_none() {
        return Ok(Vec::new());
    }
    let devices = rdma::facts::all(sysfs)?;
    let of_ports = devices
        .iter()
        .filter(|device| hardware.path.is_none() || device.path != hardware.path)
        .flat_map(|device| device.ports.iter().map(move |port| (device, port)))
        .filter_map(|(device, port)| {
            let name = format!("{} port {}", device.name, port.number);
            Some((port.guid()?, name))
        });
    let of_links = all
        .iter()
        .filter(|link| !is_made_by_software(link) && !hardware.is(link))
        .filter_map(|link| Some((link.address.port_guid()?, link.name.clone())));
    let of_attachments = written.iter().filter_map(|of| {
        let its = &of.intent.device.as_ref()?.hardware;
        Some((its.port_guid.filter(|_| !its.is_same(hardware))?, of.to_string()))
    });
    Ok(of_ports.chain(of_links).chain(of_attachments).collect())
}

/// Whether `link` carries traffic and no other hardware link of the same layer does that stays on the host.
fn is_last_active(sysfs: &Sysfs, link: &Link, all: &[Link], written: &[Written]) -> Result<bool, Error> {
    let devices = match link.layer {
        LinkLayer::Infiniband => rdma::facts::all(sysfs)?,
        _ => Vec::new(),
    };
    // An IPoIB link that is down has no carrier, though its port may be active.
    let active = |link: &Link| match link.layer {
        LinkLayer::Infiniband => sysfs
            .port_of(&devices, link)
            .is_some_and(|(_, port)| port.state == PortState::Active),
        _ => link.carrier,
    };
    // Another ADD may have claimed a link that it has not moved yet.
    let leaves = |other: &Link| written.iter().any(|of| of.owns(other) && of.lives());
    let other = |other: &&Link| {
        other.index != link.index
            && other.layer == link.layer
            && !is_made_by_software(other)
            && sysfs.behind(other).is_some()
            && !leaves(other)
    };
    Ok(active(link) && !all.iter().filter(other).any(active))
}

#[cfg(test)]
mod tests;
