// SPDX-License-Identifier: Apache-2.0
//! What a link's device tells, without asking every RDMA device of the node.

use super::super::port::Device;
use super::{Sysfs, attribute, device, names};
use crate::netlink::Link;
use std::io;
use std::path::{Path, PathBuf};

/// The device behind a link.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Behind {
    /// Its folder, after all symbolic links are followed: equal for everything on one function.
    pub path: PathBuf,
    /// The number of the link's port on it, from 1; `None` if the driver does not say.
    pub port: Option<u32>,
}

impl Sysfs {
    /// Whether any RDMA driver was ever loaded on this node.
    pub fn has_rdma(&self) -> bool {
        self.root.join("class/infiniband").exists()
    }

    /// The device behind `link`, a link of the namespace this sysfs was mounted in; `None` for a link made by software.
    pub fn behind(&self, link: &Link) -> Option<Behind> {
        Some(Behind {
            path: self.device_behind(link)?,
            port: self.port_number(link),
        })
    }

    /// The RDMA devices of the namespace this sysfs was mounted in that are on the device at `path`, by name.
    ///
    /// # Errors
    /// The class folder is there but cannot be listed.
    pub fn devices_on(&self, path: &Path) -> io::Result<Vec<Device>> {
        self.devices_behind(|behind| behind == Some(path))
    }

    /// The RDMA devices that are made by software and on no device, such as `rxe`; no other one is asked for anything.
    ///
    /// # Errors
    /// The class folder is there but cannot be listed.
    pub fn software_devices(&self) -> io::Result<Vec<Device>> {
        self.devices_behind(|behind| behind.is_none())
    }

    /// Only symbolic links are read of the others: a question about a port goes to its firmware.
    fn devices_behind(&self, wanted: impl Fn(Option<&Path>) -> bool) -> io::Result<Vec<Device>> {
        let class = self.root.join("class/infiniband");
        let mut found = names(&class)?;
        found.retain(|name| wanted(class.join(name).join("device").canonicalize().ok().as_deref()));
        found.sort();
        Ok(found.iter().map(|name| device(&class, name)).collect())
    }

    /// The kernel driver of the device at `path`, e.g. `mlx5_core`. A platform device without a driver is named after the
    /// module that made it. `None` if sysfs does not say.
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

    /// How many virtual functions the device at `path` has; 0 for one that can have none.
    pub fn virtual_functions(path: &Path) -> u32 {
        let number = attribute(&path.join("sriov_numvfs"));
        number.and_then(|text| text.parse().ok()).unwrap_or(0)
    }
}

#[cfg(test)]
mod tests;
