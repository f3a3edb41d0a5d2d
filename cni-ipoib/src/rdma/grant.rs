// SPDX-License-Identifier: Apache-2.0
//! What a pod was given: plain data, written into the attachment's file before anything moves.

use common::netlink::RdmaDevice;
use common::rdma::{Guid, PciAddress};
use serde::{Deserialize, Serialize};
use std::path::PathBuf;

/// An RDMA device, by what stays while its name and namespace change.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Identity {
    /// The name it has on the host.
    pub name: String,
    /// Its number, which the kernel gives once; a driver that is loaded again makes a new one.
    pub index: u32,
    /// Its GUID; 0 for a virtual function that was given none.
    pub node_guid: Guid,
    /// The PCI function it is on.
    pub pci: Option<PciAddress>,
    /// The device behind it in sysfs.
    pub path: Option<PathBuf>,
}

/// The RDMA device of one attachment.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Grant {
    /// The device.
    pub device: Identity,
    /// The number of the port, from 1.
    pub port: u32,
    /// What the port speaks, for people: `InfiniBand` or `Ethernet`.
    pub link_layer: String,
    /// How the pod gets at it.
    pub netns: Way,
}

/// How a pod gets at an RDMA device.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Way {
    /// Every namespace sees every device; nothing moves.
    Shared,
    /// The device is in the pod's namespace while the attachment lives.
    Exclusive {
        /// The name it is given there.
        rename: Option<String>,
    },
}

impl Grant {
    /// The name that the pod sees.
    pub fn name_in_pod(&self) -> &str {
        match &self.netns {
            Way::Exclusive { rename: Some(name) } => name,
            _ => &self.device.name,
        }
    }

    /// The device, if it has to be brought back.
    pub fn moved(&self) -> Option<&Identity> {
        matches!(self.netns, Way::Exclusive { .. }).then_some(&self.device)
    }
}

impl Identity {
    /// The device among `devices`; `pci` tells the function of a name, where sysfs shows it.
    ///
    /// A device on another function is another one, whatever else agrees: GUIDs are copied between virtual functions. The number
    /// comes before the GUID for a device that has no GUID, and after it for one whose driver was loaded again.
    pub fn among<'d>(
        &self,
        devices: &'d [RdmaDevice],
        pci: impl Fn(&str) -> Option<PciAddress>,
    ) -> Option<&'d RdmaDevice> {
        let likeness = |device: &RdmaDevice| {
            let function = self.pci.zip(pci(&device.name)).map(|(ours, its)| ours == its);
            let guid = self.node_guid != Guid(0) && device.node_guid == self.node_guid;
            let index = device.index == self.index;
            match function {
                Some(false) => 0,
                _ if device.smi => 0,
                _ if guid && index => 4,
                Some(true) => 3,
                None if guid => 2,
                None if index && (self.node_guid == Guid(0) || device.node_guid == Guid(0)) => 1,
                None => 0,
            }
        };
        let best = devices.iter().max_by_key(|device| likeness(device))?;
        (likeness(best) > 0).then_some(best)
    }

    /// Whether both are one device.
    pub fn is_same(&self, other: &Self) -> bool {
        match (self.pci, other.pci) {
            (Some(ours), Some(its)) if ours != its => false,
            (Some(_), Some(_)) => self.node_guid == other.node_guid || self.index == other.index,
            _ => {
                self.node_guid == other.node_guid && (self.node_guid != Guid(0) || self.index == other.index)
            }
        }
    }
}

#[cfg(test)]
mod tests;
