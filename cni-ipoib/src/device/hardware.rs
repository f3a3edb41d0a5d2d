// SPDX-License-Identifier: Apache-2.0
//! What a link of hardware is known by, whatever its name and wherever it is. Pure.

use common::netlink::{HwAddress, Link, LinkLayer};
use common::rdma::Guid;
use serde::{Deserialize, Serialize};
use std::path::PathBuf;

/// A link of hardware.
///
/// Neither name nor index: the kernel gives a link another name when its namespace dies and the first is taken, and an
/// `IPoIB` link is made anew, with another index, whenever its RDMA device moves.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Hardware {
    /// Bus and name of the device behind it, e.g. `pci/0000:3b:00.0`; `None` before Linux 5.14.
    pub device: Option<String>,
    /// The device's folder in sysfs; as long as it is there, the link is somewhere.
    pub path: Option<PathBuf>,
    /// The port's GUID, on InfiniBand; the one it gets, where it gets another.
    pub port_guid: Option<Guid>,
    /// The address it was made with, on Ethernet; the one it has now where the driver does not tell.
    pub address: HwAddress,
    /// A virtual function that gets another GUID: the device alone tells which it is.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub by_device: bool,
}

impl Hardware {
    /// What `link` is known by; `path` is its device's folder.
    pub fn of(link: &Link, path: Option<PathBuf>) -> Self {
        Self {
            device: link.device.clone(),
            path,
            port_guid: link.address.port_guid(),
            address: permanent(link),
            by_device: false,
        }
    }

    /// Whether `link` is this one. Its children, and the other ports of its device, are not.
    pub fn is(&self, link: &Link) -> bool {
        let elsewhere = matches!((&self.device, &link.device), (Some(ours), Some(its)) if ours != its);
        if elsewhere || is_made_by_software(link) {
            return false;
        }
        if self.by_device {
            return self.device.is_some()
                && self.device == link.device
                && link.layer == LinkLayer::Infiniband;
        }
        match (self.port_guid, link.layer) {
            (Some(guid), LinkLayer::Infiniband) => link.address.port_guid() == Some(guid),
            (None, LinkLayer::Ethernet) => {
                self.address == permanent(link)
                    // Where the driver tells no permanent address the pod may have given it another one.
                    || link.perm_address.is_none() && self.device.is_some() && self.device == link.device
            }
            _ => false,
        }
    }

    /// Whether both are one link.
    pub fn is_same(&self, other: &Self) -> bool {
        if self.by_device || other.by_device {
            return self.device.is_some() && self.device == other.device;
        }
        self.device == other.device
            && self.port_guid == other.port_guid
            && self.address_id() == other.address_id()
    }

    /// Beside a GUID the address says nothing: it has the number of a queue pair.
    fn address_id(&self) -> Option<&HwAddress> {
        self.port_guid.is_none().then_some(&self.address)
    }
}

fn permanent(link: &Link) -> HwAddress {
    let told = link.perm_address.as_ref();
    told.unwrap_or(&link.address).clone()
}

/// Children, bonds, bridges: everything that is made by a request. An `IPoIB` link is of a kind too, but hangs on no
/// other; a child whose parent has its own number in another namespace does not say so, and is told by its group.
pub fn is_made_by_software(link: &Link) -> bool {
    match link.kind.as_deref() {
        None => link.parent.is_some(),
        Some("ipoib") => link.parent.is_some() || link.group != 0 && crate::mark::is_ours(link),
        Some(_) => true,
    }
}

#[cfg(test)]
mod tests;
