// SPDX-License-Identifier: Apache-2.0
use super::super::Sysfs;
use crate::netlink::{Link, LinkLayer};
use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;

/// `mlx5_0` and `smi1` on one PCI function. The second port of the function has the link `ib0`.
fn function(root: &Path) -> std::path::PathBuf {
    let device = root.join("devices/pci0000:3a/0000:3b:00.0");
    for name in ["smi1", "mlx5_0"] {
        fs::create_dir_all(&device).unwrap();
        let class = root.join("class/infiniband").join(name);
        fs::create_dir_all(&class).unwrap();
        symlink(&device, class.join("device")).unwrap();
    }
    let net = root.join("class/net/ib0");
    fs::create_dir_all(&net).unwrap();
    fs::write(net.join("ifindex"), "4\n").unwrap();
    fs::write(net.join("dev_port"), "1\n").unwrap();
    symlink(&device, net.join("device")).unwrap();
    device
}

#[test]
fn a_link_is_resolved_to_the_rdma_devices_of_its_function() {
    let root = tempfile::tempdir().unwrap();
    let sysfs = Sysfs::at(root.path());
    assert!(!sysfs.has_rdma());
    let device = function(root.path());
    assert!(sysfs.has_rdma());
    let behind = sysfs.behind(&Link::new(4, "ib0", LinkLayer::Infiniband)).unwrap();
    assert_eq!(behind.path, device.canonicalize().unwrap());
    assert_eq!(behind.port, Some(2), "drivers count ports from 0 here");
    let found = sysfs.devices_on(&behind.path).unwrap();
    let names: Vec<&str> = found.iter().map(|device| device.name.as_str()).collect();
    assert_eq!(names, ["mlx5_0", "smi1"]);
    assert_eq!(found[0].pci.unwrap().to_string(), "0000:3b:00.0");
}

#[test]
fn virtual_links_and_links_of_other_namespaces_have_no_device() {
    let root = tempfile::tempdir().unwrap();
    let sysfs = Sysfs::at(root.path());
    function(root.path());
    let software = root.path().join("class/net/dummy0");
    fs::create_dir_all(&software).unwrap();
    fs::write(software.join("ifindex"), "9\n").unwrap();
    for link in [
        Link::new(9, "dummy0", LinkLayer::Ethernet),
        Link::new(5, "ib0", LinkLayer::Infiniband),
    ] {
        assert_eq!(sysfs.behind(&link), None, "{}", link.name);
    }
    assert_eq!(sysfs.devices_on(Path::new("/nowhere")).unwrap(), []);
}

#[test]
fn software_rdma_devices_have_no_hardware_device() {
    let root = tempfile::tempdir().unwrap();
    let sysfs = Sysfs::at(root.path());
    assert_eq!(sysfs.software_devices().unwrap(), []);
    function(root.path());
    for name in ["rxe1", "rxe0"] {
        fs::create_dir_all(root.path().join("class/infiniband").join(name)).unwrap();
    }
    let found = sysfs.software_devices().unwrap();
    let names: Vec<&str> = found.iter().map(|device| device.name.as_str()).collect();
    assert_eq!(names, ["rxe0", "rxe1"]);
}

#[test]
fn a_device_without_a_driver_is_named_after_its_module() {
    let root = tempfile::tempdir().unwrap();
    let device = |name: &str| {
        let path = root.path().join("devices").join(name);
        fs::create_dir_all(&path).unwrap();
        path
    };
    let (bound, made, bare) = (device("0000:3b:00.0"), device("softib.0"), device("vmbus"));
    let driver = root.path().join("bus/pci/drivers/mlx5_core");
    fs::create_dir_all(&driver).unwrap();
    std::os::unix::fs::symlink(driver, bound.join("driver")).unwrap();
    fs::write(bound.join("modalias"), "pci:v000015B3d0000101Bsv\n").unwrap();
    fs::write(made.join("modalias"), "platform:softib\n").unwrap();
    fs::write(bare.join("modalias"), "vmbus:0123\n").unwrap();
    let named = [bound, made, bare].map(|path| Sysfs::kernel_driver(&path));
    assert_eq!(
        named.each_ref().map(Option::as_deref),
        [Some("mlx5_core"), Some("softib"), None]
    );
}
