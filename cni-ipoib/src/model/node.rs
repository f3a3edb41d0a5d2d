// SPDX-License-Identifier: Apache-2.0
use super::start::GUID;
use common::rdma::Sysfs;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;
use tempfile::TempDir;

/// A sysfs, built in the layout of the kernel.
pub(crate) struct Node {
    root: TempDir,
}

impl Node {
    /// No RDMA device at all.
    pub(crate) fn bare() -> Self {
        Self {
            root: tempfile::tempdir().unwrap(),
        }
    }

    /// `mlx5_0` at 0000:3b:00.0 with `ib0` on its only port, whose table has 0xffff, 0x8001 and 0x0002.
    pub(crate) fn with_ib0() -> Self {
        let node = Self::bare();
        node.device("mlx5_0", "0000:3b:00.0")
            .port("mlx5_0", 1, "InfiniBand", "4: ACTIVE")
            .netdev("ib0", 4, "0000:3b:00.0");
        for (slot, pkey) in [(0, "0xffff"), (1, "0x8001"), (2, "0x0002"), (3, "0x0000")] {
            node.write(&format!("class/infiniband/mlx5_0/ports/1/pkeys/{slot}"), pkey);
        }
        node
    }

    /// The same, and `mlx5_1` at 0000:3b:00.1 with `ib1`.
    pub(crate) fn with_ib0_and_ib1() -> Self {
        let node = Self::with_ib0();
        node.device("mlx5_1", "0000:3b:00.1")
            .port("mlx5_1", 1, "InfiniBand", "4: ACTIVE")
            .netdev("ib1", 5, "0000:3b:00.1");
        for (slot, pkey) in [(0, "0xffff"), (1, "0x8001")] {
            node.write(&format!("class/infiniband/mlx5_1/ports/1/pkeys/{slot}"), pkey);
        }
        node
    }

    pub(crate) fn path(&self) -> &Path {
        self.root.path()
    }

    pub(crate) fn sysfs(&self) -> Sysfs {
        Sysfs::at(self.path())
    }

    pub(crate) fn write(&self, file: &str, text: &str) -> &Self {
        let file = self.path().join(file);
        fs::create_dir_all(file.parent().unwrap()).unwrap();
        fs::write(file, format!("{text}\n")).unwrap();
        self
    }

    pub(crate) fn device(&self, name: &str, pci: &str) -> &Self {
        self.write(&format!("class/infiniband/{name}/node_guid"), GUID);
        self.link(&format!("class/infiniband/{name}/device"), pci)
            .driven(pci, "mlx5_core")
    }

    /// Binds the function at `pci` to another driver.
    pub(crate) fn driven(&self, pci: &str, driver: &str) -> &Self {
        self.follow(
            &format!("devices/pci0000:3a/{pci}/driver"),
            &format!("bus/pci/drivers/{driver}"),
        )
    }

    /// A port whose GID ends in [`GUID`].
    pub(crate) fn port(&self, device: &str, number: u32, layer: &str, state: &str) -> &Self {
        let port = format!("class/infiniband/{device}/ports/{number}");
        self.write(&format!("{port}/link_layer"), layer)
            .write(&format!("{port}/state"), state)
            .write(&format!("{port}/phys_state"), "5: LinkUp")
            .write(&format!("{port}/gids/0"), &format!("fe80:0000:0000:0000:{GUID}"))
    }

    pub(crate) fn netdev(&self, name: &str, index: u32, pci: &str) -> &Self {
        for devices in ["bus/pci/devices", "devices/pci0000:3a"] {
            fs::create_dir_all(self.path().join(format!("{devices}/{pci}/net/{name}"))).unwrap();
        }
        self.write(&format!("class/net/{name}/ifindex"), &index.to_string())
            .write(&format!("class/net/{name}/dev_port"), "0")
            .link(&format!("class/net/{name}/device"), pci)
    }

    fn link(&self, from: &str, pci: &str) -> &Self {
        self.follow(from, &format!("devices/pci0000:3a/{pci}"))
    }

    /// Creates a symbolic link below sysfs and its target directory. Replaces an earlier link.
    pub(crate) fn follow(&self, from: &str, to: &str) -> &Self {
        let (from, to) = (self.path().join(from), self.path().join(to));
        fs::create_dir_all(&to).unwrap();
        fs::create_dir_all(from.parent().unwrap()).unwrap();
        if from.is_symlink() {
            fs::remove_file(&from).unwrap();
        }
        symlink(to, from).unwrap();
        self
    }
}
