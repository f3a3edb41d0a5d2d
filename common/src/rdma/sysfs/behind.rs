// SPDX-License-Identifier: Apache-2.0
//! The hardware device of one link, found without reading every RDMA device of the node.

use super::super::port::Device;
use super::{Sysfs, attribute, device, names};
use crate::netlink::Link;
use std::io;
use std::path::{Path, PathBuf};

/// The hardware device of a link.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Behind {
    /// Its directory, with symbolic links resolved: equal for everything on one function.
    pub path: PathBuf,
    /// The number of the link's port on it, from 1; `None` if the driver does not report it.
    pub port: Option<u32>,
}

impl Sysfs {
    /// Whether an RDMA driver was loaded on this node since it booted.
    pub fn has_rdma(&self) -> bool {
        self.root.join("class/infiniband").exists()
    }

    /// The hardware device of `link`, a link of the namespace in which this sysfs was mounted. `None` for a
    /// virtual link.
    pub fn behind(&self, link: &Link) -> Option<Behind> {
        Some(Behind {
            path: self.device_behind(link)?,
            port: self.port_number(link),
        })
    }

    /// The RDMA devices on the hardware device at `path`, by name, in the namespace in which this sysfs was
    /// mounted.
    ///
    /// # Errors
    /// The class directory exists but cannot be listed.
    pub fn devices_on(&self, path: &Path) -> io::Result<Vec<Device>> {
        self.devices_behind(|behind| behind == Some(path))
    }

    /// The RDMA devices made by software, such as `rxe`. No other device is read.
    ///
    /// # Errors
    /// The class directory exists but cannot be listed.
    pub fn software_devices(&self) -> io::Result<Vec<Device>> {
        self.devices_behind(|behind| behind.is_none())
    }

    /// Reads only symbolic links of the other devices: reading a port sends a request to its firmware.
    fn devices_behind(&self, wanted: impl Fn(Option<&Path>) -> bool) -> io::Result<Vec<Device>> {
        let class = self.root.join("class/infiniband");
        let mut found = names(&class)?;
        found.retain(|name| wanted(class.join(name).join("device").canonicalize().ok().as_deref()));
        Ok(found.iter().map(|name| device(&class, name)).collect())
    }

    /// The kernel driver of the device at `path`, e.g. `mlx5_core`. A platform device without a driver is
    /// named after the module that made it. `None` if sysfs shows neither.
    pub fn kernel_driver(path: &Path) -> Option<String> {
        let bound = path.join("driver").canonicalize().ok();
        let bound = bound.as_deref().and_then(Path::file_name);
        let named = || {
            attribute(&path.join("modalias"))?
                .strip_prefix("platform:")
                .map(str::to_owned)
        };
        bound
            .map(|name| name.to_string_lossy().into_owned())
            .or_else(named)
    }

    /// The number of virtual functions of the device at `path`; 0 if it cannot have any.
    pub fn virtual_functions(path: &Path) -> u32 {
        let number = attribute(&path.join("sriov_numvfs"));
        number.and_then(|text| text.parse().ok()).unwrap_or(0)
    }
}

#[cfg(test)]
mod tests;
