// SPDX-License-Identifier: Apache-2.0
//! The GID table of a port, as `show_gids` lists it, and the model and firmware of the card.

use super::super::port::{Device, Port};
use super::{Sysfs, attribute, names, numbers};
use std::io;
use std::net::Ipv6Addr;

/// An entry of a port's GID table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Gid {
    /// Its index in the table, which programs use (`NCCL_IB_GID_INDEX`).
    pub index: u32,
    /// The GID.
    pub gid: Ipv6Addr,
    /// `IB/RoCE v1` or `RoCE v2`, in the kernel's text; `None` if the kernel does not report it.
    pub kind: Option<String>,
    /// The name of the link whose address it is made from, in whatever namespace that link is; `None` on
    /// InfiniBand.
    pub netdev: Option<String>,
}

impl Gid {
    /// The version of RoCE, 1 or 2; `None` if the kernel does not report it.
    pub fn roce_version(&self) -> Option<u8> {
        match self.kind.as_deref()? {
            "RoCE v2" => Some(2),
            "IB/RoCE v1" => Some(1),
            _ => None,
        }
    }
}

impl Sysfs {
    /// The GIDs of a port in the order of its table, without the empty entries.
    ///
    /// # Errors
    /// The table cannot be listed.
    pub fn gids(&self, device: &Device, port: &Port) -> io::Result<Vec<Gid>> {
        let directory = self.port_directory(device, port);
        let slots = numbers(&directory.join("gids"))?;
        let gid = |index: u32| {
            let text = |table: &str| attribute(&directory.join(table).join(index.to_string()));
            let gid: Ipv6Addr = text("gids")?.parse().ok()?;
            // An unused entry has the zero GID, or a prefix without an interface id.
            let is_empty = gid.to_bits() & u128::from(u64::MAX) == 0;
            (!is_empty).then(|| Gid {
                index,
                gid,
                kind: text("gid_attrs/types"),
                netdev: text("gid_attrs/ndevs"),
            })
        };
        Ok(slots.into_iter().filter_map(gid).collect())
    }

    /// The model of a card as the vendor numbers it, e.g. `MT4123`.
    pub fn model(&self, device: &Device) -> Option<String> {
        self.of_device(device, "hca_type")
    }

    /// The version of a card's firmware.
    pub fn firmware(&self, device: &Device) -> Option<String> {
        self.of_device(device, "fw_ver")
    }

    /// The file in `/dev/infiniband` by which programs open the device `name`, such as `uverbs3`, in whatever
    /// namespace the device is. `None` if it has none.
    pub fn verbs_file(&self, name: &str) -> Option<String> {
        let class = self.root.join("class/infiniband_verbs");
        let of_device = |file: &String| attribute(&class.join(file).join("ibdev")).as_deref() == Some(name);
        names(&class).ok()?.into_iter().find(of_device)
    }

    /// Whether a kernel module is loaded or built in; `None` if sysfs shows no modules at all.
    ///
    /// A module that is built in has a directory only if it has a parameter or a version (`param_sysfs_builtin` in
    /// `kernel/params.c`). `ib_uverbs` and `rdma_ucm` have neither, but register a class or a file.
    pub fn has_module(&self, name: &str) -> Option<bool> {
        let modules = self.root.join("module");
        let registers = match name {
            "ib_uverbs" => Some("class/infiniband_verbs"),
            "rdma_ucm" => Some("class/misc/rdma_cm"),
            _ => None,
        };
        let is_there =
            modules.join(name).exists() || registers.is_some_and(|path| self.root.join(path).exists());
        modules.is_dir().then_some(is_there)
    }

    /// Whether all namespaces see all RDMA devices; `None` if the kernel does not report it.
    pub fn shares_rdma(&self) -> Option<bool> {
        match attribute(&self.root.join("module/ib_core/parameters/netns_mode"))?.as_str() {
            "Y" => Some(true),
            "N" => Some(false),
            _ => None,
        }
    }

    fn of_device(&self, device: &Device, file: &str) -> Option<String> {
        attribute(&self.root.join("class/infiniband").join(&device.name).join(file))
    }
}
