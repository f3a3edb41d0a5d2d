// SPDX-License-Identifier: Apache-2.0
//! The grant of an RDMA device: plain data, written to the journal before the device moves.

use common::netlink::RdmaDevice;
use common::rdma::{Guid, PciAddress};
use serde::{Deserialize, Serialize};
use std::path::PathBuf;

/// An RDMA device, by properties that survive a change of name and namespace.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Identity {
    /// Its name on the host.
    pub name: String,
    /// Its index, which is never reused; a reloaded driver creates a new one.
    pub index: u32,
    /// Its GUID; 0 for a virtual function without one.
    pub node_guid: Guid,
    /// Its PCI function.
    pub pci: Option<PciAddress>,
    /// Its device in sysfs.
    pub path: Option<PathBuf>,
}

/// The RDMA device of one attachment.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Grant {
    /// The device.
    pub device: Identity,
    /// The number of the port, from 1.
    pub port: u32,
    /// The port's link layer, for people: `InfiniBand` or `Ethernet`.
    pub link_layer: String,
    /// How the pod gets access to it.
    pub netns: Sharing,
}

/// How a pod gets access to an RDMA device.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Sharing {
    /// Every namespace sees every device; nothing moves.
    Shared,
    /// The device is in the pod's namespace while the attachment lives.
    Exclusive {
        /// Its name in the pod, if it is renamed.
        rename: Option<String>,
    },
}

impl Grant {
    /// The name in the pod.
    pub fn name_in_pod(&self) -> &str {
        match &self.netns {
            Sharing::Exclusive { rename: Some(name) } => name,
            _ => &self.device.name,
        }
    }

    /// The device, if it must be returned.
    pub fn moved(&self) -> Option<&Identity> {
        matches!(self.netns, Sharing::Exclusive { .. }).then_some(&self.device)
    }
}

impl Identity {
    /// The device among `devices`; `path` maps a name to the directory of its hardware, if sysfs shows it.
    ///
    /// A device of other hardware is another device, even if everything else matches: GUIDs are copied
    /// between virtual functions. The index has precedence over the GUID for a device without GUID, and the
    /// GUID over the index for one whose driver was reloaded.
    pub fn among<'d>(
        &self,
        devices: &'d [RdmaDevice],
        path: impl Fn(&str) -> Option<PathBuf>,
    ) -> Option<&'d RdmaDevice> {
        let likeness = |device: &RdmaDevice| {
            let same = |its: PathBuf| self.path.as_ref().map(|ours| *ours == its);
            let hardware = path(&device.name).and_then(same);
            let guid = self.node_guid != Guid(0) && device.node_guid == self.node_guid;
            let index = device.index == self.index;
            match hardware {
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

    /// Whether both are the same device, or one is what the driver made anew for the function of the other. Two subfunctions have
    /// one PCI address and two directories.
    pub fn is_same(&self, other: &Self) -> bool {
        let same_path = self
            .path
            .as_ref()
            .zip(other.path.as_ref())
            .map(|(ours, its)| ours == its);
        if same_path == Some(false) {
            return false;
        }
        match (self.pci, other.pci) {
            (Some(ours), Some(its)) if ours != its => false,
            // With another GUID in between, the index differs too.
            (Some(_), Some(_)) if same_path == Some(true) => true,
            (Some(_), Some(_)) => self.node_guid == other.node_guid || self.index == other.index,
            _ => {
                self.node_guid == other.node_guid && (self.node_guid != Guid(0) || self.index == other.index)
            }
        }
    }
}

#[cfg(test)]
mod tests;
