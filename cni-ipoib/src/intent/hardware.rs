// SPDX-License-Identifier: Apache-2.0
//! Identifies a hardware link, whatever its name and namespace. Pure.

use common::netlink::{HwAddress, Link, LinkLayer};
use common::rdma::Guid;
use serde::{Deserialize, Serialize};
use std::path::PathBuf;

/// The identity of a hardware link.
///
/// It has neither name nor index: the kernel renames a link if its namespace ends and its name is in use on
/// the host, and recreates an `IPoIB` link with another index whenever its RDMA device moves.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Hardware {
    /// Bus and name of its device, e.g. `pci/0000:3b:00.0`; `None` before Linux 5.14.
    pub device: Option<String>,
    /// The device's directory in sysfs. While it exists, the link is in some namespace.
    pub path: Option<PathBuf>,
    /// The port's GUID on InfiniBand; the new one, if the port gets another.
    pub port_guid: Option<Guid>,
    /// The permanent address on Ethernet; the present one if the driver reports none.
    pub address: HwAddress,
    /// Whether the driver reports `address` as permanent. An earlier version did not record this.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub permanent: bool,
    /// A virtual function that gets another GUID: only the device identifies it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub by_device: bool,
}

impl Hardware {
    /// The identity of `link`; `path` is its device's directory.
    pub fn of(link: &Link, path: Option<PathBuf>) -> Self {
        Self {
            device: link.device.clone(),
            path,
            port_guid: link.address.port_guid(),
            address: permanent(link),
            permanent: link.perm_address.is_some(),
            by_device: false,
        }
    }

    /// Whether `link` is this link. Its children, and the other ports of its device, are not.
    pub fn is(&self, link: &Link) -> bool {
        let elsewhere = matches!((&self.device, &link.device), (Some(ours), Some(its)) if ours != its);
        if elsewhere || is_made_by_software(link) {
            return false;
        }
        if self.by_device {
            return self.is_device_of(link);
        }
        match (self.port_guid, link.layer) {
            (Some(guid), LinkLayer::Infiniband) => link.address.port_guid() == Some(guid),
            (None, LinkLayer::Ethernet) if self.permanent => {
                link.perm_address.as_ref() == Some(&self.address)
            }
            (None, LinkLayer::Ethernet) => {
                self.address == permanent(link)
                    // The pod may have changed the address. ADD moves no such link beside another one of its device.
                    || link.perm_address.is_none() && self.device.is_some() && self.device == link.device
            }
            _ => false,
        }
    }

    /// Whether `link` is an `IPoIB` link of the same device, whatever its GUID. The device may have two ports.
    pub fn is_device_of(&self, link: &Link) -> bool {
        self.device.is_some()
            && self.device == link.device
            && link.layer == LinkLayer::Infiniband
            && !is_made_by_software(link)
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

    /// Beside a GUID the address means nothing: it contains the number of a queue pair.
    fn address_id(&self) -> Option<&HwAddress> {
        self.port_guid.is_none().then_some(&self.address)
    }
}

fn permanent(link: &Link) -> HwAddress {
    link.perm_address.as_ref().unwrap_or(&link.address).clone()
}

/// Whether a link was created by a request: children, bonds, bridges. An `IPoIB` link has a kind too, but no
/// parent. A child in a pod reports no parent if the parent has the same index on the host. A pod can change every other
/// property that distinguishes such a child from a whole link.
///
/// Invariant: no pod has such a child and its parent, because ADD does not move a link that has a child. A caller that
/// searches a pod excludes the recorded children ([`Made::is_pair_of`](super::Made::is_pair_of)).
pub fn is_made_by_software(link: &Link) -> bool {
    match link.kind.as_deref() {
        None | Some("ipoib") => link.parent.is_some(),
        Some(_) => true,
    }
}

#[cfg(test)]
mod tests;
