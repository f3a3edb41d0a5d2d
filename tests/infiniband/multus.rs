// SPDX-License-Identifier: Apache-2.0
//! Pods with an annotation that the real Multus reads, on InfiniBand and with devices that have a PCI address.
//!
//! The API server runs on the host. `cargo test -p multus --test fabric` starts it, creates networks and pods, starts
//! these tests in the VM, and checks the status of the pods.

use crate::fabric::{reaches, run};
use std::fs;
use std::path::Path;
use tests::kubelet::{Allocation, Kubelet, allocated, device_info};
use tests::multus::{Multus, PodIdentity};
use tests::{Node, Value, json};

/// The directory that the host shares: a kubeconfig and the list of pods.
const SHARED: &str = "/kube";
const RESOURCE: &str = "nvidia.com/hostdev";
const SHARED_RESOURCE: &str = "rdma/hca_shared";

fn thin(node: &Node) -> Multus<'_> {
    Multus::thin(node, &Path::new(SHARED).join("kubeconfig"))
}

fn pod(name: &str) -> PodIdentity {
    let text = fs::read(Path::new(SHARED).join("pods.json")).expect(
        "the host's directory with pods.json: these tests are started by `cargo test -p multus --test fabric`",
    );
    let pods: Value = serde_json::from_slice(&text).unwrap();
    let text = |key: &str| pods[name][key].as_str().unwrap().to_owned();
    PodIdentity {
        namespace: text("namespace"),
        name: name.to_owned(),
        uid: text("uid"),
    }
}

/// Runs `test` on a node that forwards, as every node of a cluster does. In a cluster, the pod network enables
/// forwarding with its first pod.
fn on_a_node(test: impl FnOnce(&Node) + Send) {
    run(|node| {
        let files =
            ["ipv4/ip_forward", "ipv6/conf/all/forwarding"].map(|file| Path::new("/proc/sys/net").join(file));
        let forward = |value: &str| files.iter().for_each(|file| fs::write(file, value).unwrap());
        forward("1");
        test(node);
        forward("0");
    });
}

/// The PCI address of a card. The link's device is a virtio device, whose parent is the PCI function.
fn pci(link: &str) -> String {
    let device = fs::canonicalize(format!("/sys/class/net/{link}/device")).unwrap();
    let function = device.parent().unwrap().file_name().unwrap();
    function.to_str().unwrap().to_owned()
}

#[test]
#[ignore = "started by the suite `fabric` of tests/multus"]
fn pods_that_name_a_network_reach_each_other_over_infiniband() {
    on_a_node(|node| {
        let multus = thin(node);
        let (first, second) = (node.pod(), node.pod());
        let pods = [pod("trainer-0"), pod("trainer-1")];
        let before = node.settled_snapshot(&[&first, &second]);
        multus.add(&first, &pods[0]).result();
        multus.add(&second, &pods[1]).result();
        assert_eq!(first.link_names(), ["eth0", "ib0", "ib1"]);
        assert_eq!(first.link("ib0").address.len(), 20);
        reaches(&first, second.global("ib0")[0].split('/').next().unwrap());
        reaches(&second, first.global("ib1")[0].split('/').next().unwrap());
        assert!(first.ip("route show default").contains("dev eth0"));
        multus.del(&first, &pods[0]);
        multus.del(&second, &pods[1]);
        node.assert_as_before(&before, &[&first, &second], "after DEL");
    });
}

#[test]
#[ignore = "started by the suite `fabric` of tests/multus"]
fn a_pod_may_request_only_the_guid_of_the_port() {
    on_a_node(|node| {
        let multus = thin(node);
        let sandbox = node.pod();
        let before = node.settled_snapshot(&[&sandbox]);
        multus.add(&sandbox, &pod("own-guid")).result();
        let address = sandbox.link("ib0").address.to_string();
        assert!(address.ends_with("52:54:00:ff:fe:00:00:01"), "{address}");
        multus.del(&sandbox, &pod("own-guid"));
        let guids = ["02:00:00:00:00:00:00:21", "52:54:00:ff:fe:00:00:01"].map(|guid| guid.replace(':', ""));
        let answer = multus.add(&sandbox, &pod("other-guid"));
        let text = answer.stdout.replace(':', "");
        assert!(
            !answer.status.success() && guids.iter().all(|guid| text.contains(guid)),
            "{answer}"
        );
        multus.del(&sandbox, &pod("other-guid"));
        node.assert_as_before(&before, &[&sandbox], "after the refusal");
    });
}

/// The state that the SR-IOV device plugin leaves: the allocation, and a file that describes the device and must appear
/// in the pod's status. The pod also has a device of the shared plugin, another pod has the other card, and the
/// checkpoint is a day old.
#[test]
#[ignore = "started by the suite `fabric` of tests/multus"]
fn the_device_chosen_by_a_device_plugin_becomes_the_master() {
    on_a_node(|node| {
        let multus = thin(node);
        let sandbox = node.pod();
        let owner = pod("chosen");
        let address = pci("eth1");
        node.ip("link set eth1 up");
        let (neighbour, others) = (pod("whole"), pci("eth2"));
        allocated(&[Allocation::new(&owner, RESOURCE, &[&others])]);
        let kubelet = Kubelet::start(&[
            Allocation::new(&neighbour, RESOURCE, &[&others]),
            Allocation::new(&owner, SHARED_RESOURCE, &["17"]),
            Allocation::new(&owner, RESOURCE, &[&address]),
        ]);
        let info = json!({ "type": "pci", "version": "1.1.0", "pci": { "pci-address": address, "rdma-device": "mlx5_7" } });
        device_info(RESOURCE, &address, &info);
        let before = node.settled_snapshot(&[&sandbox]);
        multus.add(&sandbox, &owner).result();
        let parent = sandbox.link("net1").parent.expect("a macvlan child has a parent");
        assert_eq!(parent, node.link("eth1").index);
        assert!(kubelet.asked() > 0);
        multus.del(&sandbox, &owner);
        node.assert_as_before(&before, &[&sandbox], "after DEL");
        node.ip("link set eth1 down");
    });
}

#[test]
#[ignore = "started by the suite `fabric` of tests/multus"]
fn devices_of_one_resource_are_attached_in_pci_address_order_and_returned() {
    on_a_node(|node| {
        let multus = thin(node);
        let sandbox = node.pod();
        let owner = pod("whole");
        let addresses = [pci("eth1"), pci("eth2")];
        assert!(addresses[0] < addresses[1]);
        let devices = [addresses[1].as_str(), addresses[0].as_str()];
        let kubelet = Kubelet::start(&[Allocation::new(&owner, RESOURCE, &devices)]);
        let macs = ["eth1", "eth2"].map(|link| node.link(link).address);
        let before = node.settled_snapshot(&[&sandbox]);
        multus.add(&sandbox, &owner).result();
        assert!(kubelet.asked() > 0);
        assert_eq!(["net1", "net2"].map(|link| sandbox.link(link).address), macs);
        assert!(
            !node
                .link_names()
                .iter()
                .any(|name| name == "eth1" || name == "eth2")
        );
        multus.del(&sandbox, &owner);
        node.assert_as_before(&before, &[&sandbox], "after DEL");
    });
}

/// The RDMA shared device plugin allocates a number. The pod has all uverbs files that match the plugin's selector, and
/// the status must name the file of the pod's interface.
#[test]
#[ignore = "started by the suite `fabric` of tests/multus"]
fn the_network_status_names_the_rdma_device_that_the_pod_opens() {
    on_a_node(|node| {
        node.ip("link set eth0 up");
        let made = node.exec("rdma", "link add rxe0 type rxe netdev eth0");
        assert!(made.status.success(), "{made:?}; does the VM have rdma_rxe?");
        let multus = thin(node);
        let sandbox = node.pod();
        let owner = pod("roce");
        allocated(&[Allocation::new(&owner, SHARED_RESOURCE, &["17"])]);
        let before = node.settled_snapshot(&[&sandbox]);
        multus.add(&sandbox, &owner).result();
        let uverbs = fs::read_dir("/sys/class/infiniband_verbs").unwrap();
        let device =
            |entry: &fs::DirEntry| fs::read_to_string(entry.path().join("ibdev")).unwrap_or_default();
        let found = uverbs
            .map(|entry| entry.unwrap())
            .find(|entry| device(entry).trim() == "rxe0");
        let file = Path::new("/dev/infiniband").join(found.unwrap().file_name());
        assert!(file.exists(), "{}", file.display());
        multus.del(&sandbox, &owner);
        node.assert_as_before(&before, &[&sandbox], "after DEL");
        assert!(node.exec("rdma", "link del rxe0").status.success());
        node.ip("link set eth0 down");
    });
}
