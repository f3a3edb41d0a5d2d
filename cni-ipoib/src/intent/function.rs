// SPDX-License-Identifier: Apache-2.0
//! An `InfiniBand` virtual function, its GUIDs and its link state, as they were before the pod got others.

use common::netlink::FunctionState;
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
    /// The link state that its physical function gives it; `None` if the kernel does not report it. Releases before
    /// this field recorded none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub link_state: Option<FunctionState>,
}

impl Function {
    /// Its PCI address.
    pub fn pci(&self) -> String {
        let name = self.path.file_name().unwrap_or_default();
        name.to_string_lossy().into_owned()
    }
}
