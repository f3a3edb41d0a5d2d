// SPDX-License-Identifier: Apache-2.0
//! The device-info file of Multus: ADD writes none if the parent has no PCI device.

use nix::mount::{MsFlags, mount};
use std::fs;
use std::path::PathBuf;
use tests::{Node, json};

/// A file in the only directory in which ADD writes one. The node gets a `/run` of its own, because the machine may have such files.
fn info_file() -> PathBuf {
    mount(
        Some("tmpfs"),
        "/run",
        Some("tmpfs"),
        MsFlags::empty(),
        None::<&str>,
    )
    .unwrap();
    PathBuf::from("/run/k8s.cni.cncf.io/devinfo/cni/net1.json")
}

#[test]
fn a_parent_without_pci_device_yields_no_device_info_and_no_pci_id() {
    Node::run(|node| {
        let file = info_file();
        let pod = node.pod();
        let conf = node.conf(json!({"runtimeConfig": {"CNIDeviceInfoFile": file}}));
        let result = pod.attach(&conf, "net1");
        assert!(!file.exists());
        assert!(result["interfaces"][0].get("pciID").is_none(), "{result}");
    });
}

#[test]
fn a_device_info_file_of_a_device_plugin_survives_add_and_del() {
    Node::run(|node| {
        let file = info_file();
        fs::create_dir_all(file.parent().unwrap()).unwrap();
        fs::write(&file, "{\"type\":\"pci\"}").unwrap();
        let pod = node.pod();
        let conf = node.conf(json!({"runtimeConfig": {"CNIDeviceInfoFile": file}}));
        pod.attach(&conf, "net1");
        pod.detach(&conf, "net1");
        assert_eq!(fs::read_to_string(&file).unwrap(), "{\"type\":\"pci\"}");
    });
}
