// SPDX-License-Identifier: Apache-2.0
//! Decides whether an RDMA device may leave the host. Pure; called before any change.

use super::facts;
use super::find::Found;
use super::users::{User, programs};
use crate::error::{Error, RdmaError};
use crate::intent::{Grant, Identity};
use crate::journal::{Taken, Written, takers};
use crate::kernel::{Kernel, Side, links};
use common::cni::Attachment;
use common::cni::error::causes;
use common::netlink::Link;
use common::rdma::{Device, PortState, Sysfs};
use std::fmt;
use std::path::Path;

/// The facts about the node before a device leaves it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Surroundings {
    /// Every RDMA device on the host.
    pub devices: Vec<Device>,
    /// Every link of the host.
    pub links: Vec<Link>,
    /// The names of the links on the device's function.
    pub neighbours: Vec<String>,
    /// The living attachments into whose pods a device moved.
    pub holders: Vec<Holder>,
    /// A program or kernel module, other than a service, that uses the device by a queue pair; `None` too if the list of
    /// queue pairs cannot be read. No pod has the device, so the user is on the host.
    pub user: Option<User>,
    /// Whether the last active port may leave: the host needs none.
    pub spare: bool,
}

/// An attachment with an RDMA device that moved, or is about to move, into its pod.
#[derive(Clone, Debug, PartialEq)]
pub struct Holder {
    /// The network.
    pub network: String,
    /// The attachment.
    pub attachment: Attachment,
    /// Its device.
    pub grant: Grant,
}

impl Surroundings {
    /// Reads them for the device that was found. `takers` has the journal entries with a moved device, and may
    /// have others.
    ///
    /// # Errors
    /// The kernel refuses a request, or sysfs cannot be listed.
    pub fn read(
        kernel: &mut dyn Kernel,
        sysfs: &Sysfs,
        takers: &[Written],
        found: &Found<'_>,
    ) -> Result<Self, Error> {
        let links = links(kernel, Side::Host)?;
        let on_it = |link: &&Link| {
            found.seen.device.path.is_some() && sysfs.behind(link).map(|b| b.path) == found.seen.device.path
        };
        Ok(Self {
            devices: facts::all(sysfs)?,
            neighbours: links.iter().filter(on_it).map(|link| link.name.clone()).collect(),
            links,
            holders: takers.iter().filter_map(holder).collect(),
            user: user(kernel, found),
            spare: false,
        })
    }
}

/// A program or kernel module with a queue pair of the device. A driver that cannot describe one queue pair makes the kernel
/// refuse the list. Then the device may move as before: a refusal would keep it from every pod.
fn user(kernel: &mut dyn Kernel, found: &Found<'_>) -> Option<User> {
    let pairs = match kernel.rdma_queue_pairs(found.seen.index?) {
        Ok(pairs) => pairs,
        Err(error) => {
            let (device, error) = (&found.seen.device.name, causes(&error));
            tracing::warn!(
                device,
                error,
                "list of the queue pairs of an RDMA device failed; a program or kernel module of the host that uses the device is not noticed, and loses it by the move"
            );
            return None;
        }
    };
    let programs = programs(pairs.iter());
    let mut users = pairs.iter().filter_map(|pair| User::of(pair, &programs));
    users.find(|user| !user.is_service())
}

/// The attachments of every network that have a moved RDMA device and whose namespace exists.
pub fn holders(state: &Path) -> Result<Vec<Holder>, Error> {
    Ok(takers(state, Taken::RdmaDevice)?
        .iter()
        .filter_map(holder)
        .collect())
}

fn holder(of: &Written) -> Option<Holder> {
    // Where devices move, no pod has a shared one: the kernel changes the mode only while it has no other
    // network namespace (rdma-system(8)).
    let grant = of.intent.rdma.as_ref().filter(|grant| grant.moved().is_some())?;
    of.lives().then(|| Holder {
        network: of.network.clone(),
        attachment: of.attachment.clone(),
        grant: grant.clone(),
    })
}

impl Holder {
    /// Whether the device `identity` was moved for this attachment.
    pub(crate) fn has(&self, identity: &Identity) -> bool {
        self.grant.moved().is_some_and(|its| its.is_same(identity))
    }

    /// Whether it owns, or is about to own, the device with the host name `name` exclusively.
    fn takes(&self, name: &str) -> bool {
        self.grant.moved().is_some_and(|device| device.name == name)
    }
}

impl fmt::Display for Holder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} (network {})", self.attachment, self.network)
    }
}

/// Fails if the device must stay on the host: it is a bond's, another pod's, has another port, the host uses it by a queue
/// pair, or, unless `around.spare`, it is the last one that carries traffic.
///
/// The move removes the device from every kernel module and disassociates every program from it (`rdma_dev_change_netns` and
/// `disable_device` of `drivers/infiniband/core/device.c`). The node would lose a disk over SRP, for example.
///
/// # Errors
/// [`RdmaError::Kept`] with the reason and the remedy, [`RdmaError::Held`] by another pod.
pub fn require_movable(found: &Found<'_>, around: &Surroundings) -> Result<(), RdmaError> {
    let device = &found.seen.device;
    let kept = |reason: String, remedy: &'static str| {
        Err(RdmaError::Kept {
            device: device.name.clone(),
            reason,
            remedy,
        })
    };
    if let Some((port, bond)) = enslaved(found, around) {
        let reason = format!("{port} is a port of {bond}, which would lose it");
        return kept(reason, "name another master, or take the port out of the bond");
    }
    let has = |holder: &&Holder| holder.grant.device.name == device.name;
    if let Some(holder) = around.holders.iter().find(has) {
        return Err(RdmaError::Held {
            device: device.name.clone(),
            by: holder.to_string(),
        });
    }
    let ports = other_ports(found);
    if !ports.is_empty() {
        return kept(
            format!("it would leave the host with port {ports} too"),
            "use a device with one port, or an RDMA subsystem in shared mode",
        );
    }
    if let Some(user) = &around.user {
        return kept(
            format!("{user} has a queue pair on it, and would lose it"),
            user.remedy(),
        );
    }
    if !around.spare && is_last_active(found, around) {
        let reason = format!("it has the last active {} port of this node", found.port.layer);
        return kept(
            reason,
            "leave one to the host, or use an RDMA subsystem in shared mode",
        );
    }
    Ok(())
}

/// Whether the device carries traffic, and no other device that stays on the host does on this link layer.
fn is_last_active(found: &Found<'_>, around: &Surroundings) -> bool {
    let device = &found.seen.device;
    let layer = found.port.layer;
    let carries = |device: &Device| {
        device
            .ports
            .iter()
            .any(|port| port.layer == layer && port.state == PortState::Active)
    };
    // A device that another ADD is about to move does not stay on the host.
    let leaves = |other: &Device| around.holders.iter().any(|holder| holder.takes(&other.name));
    let others = around
        .devices
        .iter()
        .filter(|other| other.name != device.name && !leaves(other));
    carries(device) && !others.into_iter().any(carries)
}

/// The numbers of the other ports of the device. A device moves with all of its ports, and with the `IPoIB` links
/// on them: the kernel destroys those, and the children of every pod on them.
fn other_ports(found: &Found<'_>) -> String {
    let ports = found.seen.device.ports.iter();
    let others = ports.filter(|port| port.number != found.port.number);
    let numbers: Vec<String> = others.map(|port| port.number.to_string()).collect();
    numbers.join(", ")
}

/// Fails if another device, here or in a pod, has the device's name in the pod, or will have it again when it returns: the
/// kernel keeps names unique on a node, over all namespaces.
///
/// # Errors
/// [`RdmaError::Kept`].
pub fn require_free_name(grant: &Grant, around: &Surroundings) -> Result<(), RdmaError> {
    let name = grant.name_in_pod();
    let host = around.devices.iter().any(|other| other.name == name);
    let has = |holder: &&Holder| holder.grant.name_in_pod() == name || holder.takes(name);
    let pod = around.holders.iter().find(has);
    let owner = match pod {
        _ if name == grant.device.name => return Ok(()),
        Some(holder) => holder.to_string(),
        None if host => "the host".to_owned(),
        None => return Ok(()),
    };
    Err(RdmaError::Kept {
        device: grant.device.name.clone(),
        reason: format!("rdma.rename is {name}, and {owner} has a device of that name"),
        remedy: "give each network another name, or none: names are unique on a node, whatever the namespace",
    })
}

/// A link of the device that is a port of a bond or bridge, or is itself a bond (a LAG device), with the
/// bond's name. A VRF only routes the packets of its ports.
fn enslaved(found: &Found<'_>, around: &Surroundings) -> Option<(String, String)> {
    let on_port = |link: &Link| found.seen.netdevs.iter().any(|(_, index)| *index == link.index);
    let of_bond = |link: &&Link| {
        on_port(link) || link.index == found.lower.link.index || around.neighbours.contains(&link.name)
    };
    around.links.iter().filter(of_bond).find_map(|link| {
        if link.is_bond() {
            let port = around.links.iter().find(|port| port.master == Some(link.index));
            let port = port.map_or_else(|| found.seen.device.name.clone(), |port| port.name.clone());
            return Some((port, link.name.clone()));
        }
        let master = around
            .links
            .iter()
            .find(|upper| Some(upper.index) == link.master && !upper.is_vrf())?;
        Some((link.name.clone(), master.name.clone()))
    })
}

#[cfg(test)]
mod tests;
