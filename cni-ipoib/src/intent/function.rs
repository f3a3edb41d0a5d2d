// SPDX-License-Identifier: Apache-2.0
//! An `InfiniBand` virtual function and its GUIDs, as they were before the pod got others.

use common::rdma::Guid;
use serde::{Deserialize, Serialize};
use std::path::PathBuf;

/// A virtual function in sysfs (`Documentation/PCI/pci-iov-howto.rst`).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Function {
    /// Its directory, whose name is its PCI address.
    pub path: PathBuf,
    /// The directory of its physical function.
    pub physical: PathBuf,
    /// Its number among the virtual functions of its physical function, from 0.
    pub number: u32,
    /// The directory of its driver.
    pub driver: PathBuf,
    /// The GUID of its RDMA device.
    pub node_guid: Guid,
    /// The GUID of its port.
    pub port_guid: Guid,
}

impl Function {
    /// Its PCI address.
    pub fn pci(&self) -> String {
        let name = self.path.file_name().unwrap_or_default();
        name.to_string_lossy().into_owned()
    }
}
