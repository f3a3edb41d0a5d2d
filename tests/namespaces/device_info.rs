// SPDX-License-Identifier: Apache-2.0
//! The device-info file of Multus: a parent without a PCI device has nothing to say in it.

use tests::{Node, json};

#[test]
fn a_parent_without_a_pci_device_writes_no_file_and_claims_no_pci_address() {
    Node::run(|node| {
        let file = node.path("device-info.json");
        let pod = node.pod();
        let conf = node.conf(json!({"runtimeConfig": {"CNIDeviceInfoFile": file}}));
        let result = pod.attach(&conf, "net1");
        assert!(!file.exists());
        assert!(result["interfaces"][0].get("pciID").is_none(), "{result}");
    });
}

#[test]
fn a_file_that_a_device_plugin_wrote_survives_the_attachment() {
    Node::run(|node| {
        let file = node.path("device-info.json");
        std::fs::write(&file, "{\"type\":\"pci\"}").unwrap();
        let pod = node.pod();
        let conf = node.conf(json!({"runtimeConfig": {"CNIDeviceInfoFile": file}}));
        pod.attach(&conf, "net1");
        pod.detach(&conf, "net1");
        assert_eq!(std::fs::read_to_string(&file).unwrap(), "{\"type\":\"pci\"}");
    });
}
