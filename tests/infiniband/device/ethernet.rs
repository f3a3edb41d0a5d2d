// SPDX-License-Identifier: Apache-2.0
//! An Ethernet card in a pod. The cards are virtio on PCI, which the kernel treats as hardware when a namespace ends.

use super::{unchanged, whole_link, with_settings};
use crate::fabric::{address, reaches, run, soon};
use tests::{Node, json};

fn with_cards(test: impl FnOnce(&Node) + Send) {
    run(|node| {
        for card in ["eth0", "eth1", "eth2"] {
            node.ip(&format!("link set {card} up"));
        }
        test(node);
        for card in ["eth0", "eth1", "eth2"] {
            node.ip(&format!("link set {card} down"));
        }
    });
}

#[test]
fn pods_with_whole_cards_reach_each_other_and_return_them_unchanged() {
    with_cards(|node| {
        with_settings(node, "eth1", 1500, || {
            let confs = [
                whole_link(node, "eth0"),
                whole_link(node, "eth1").with("mac", json!("02:aa:00:00:00:01")),
            ];
            let pods = [node.pod(), node.pod()];
            let target = address(&pods[0].attach(&confs[0], "net1"), false);
            let result = pods[1].attach(&confs[1], "net1");
            assert_eq!(result["interfaces"][0]["mac"], "02:aa:00:00:00:01");
            assert!(
                result["interfaces"][0]["pciID"]
                    .as_str()
                    .unwrap()
                    .starts_with("0000:00:"),
                "{result}"
            );
            reaches(&pods[1], &target);
            for (pod, conf) in pods.iter().zip(&confs) {
                pod.check(conf, "net1").done();
                pod.detach(conf, "net1");
                assert!(pod.links().is_empty(), "{:?}", pod.link_names());
            }
        });
    });
}

/// Below 1280 bytes a link has no IPv6, and the kernel refuses the IPv6 settings of its snapshot.
#[test]
fn a_card_whose_mtu_the_pod_made_too_small_for_ipv6_is_restored() {
    with_cards(|node| {
        with_settings(node, "eth1", 1500, || {
            let conf = whole_link(node, "eth1");
            let pod = node.pod();
            pod.attach(&conf, "net1");
            pod.ip("link set net1 mtu 1000");
            pod.detach(&conf, "net1");
        });
    });
}

#[test]
fn a_card_is_found_by_pci_address_and_by_hardware_address() {
    with_cards(|node| {
        let directory = std::fs::canonicalize("/sys/class/net/eth1").unwrap();
        let mut names = directory
            .ancestors()
            .filter_map(|directory| directory.file_name()?.to_str());
        let pci = names.find(|name| name.starts_with("0000:00:")).unwrap();
        let address = node.link("eth1").address.to_string();
        for (key, value) in [("pciBusID", pci), ("deviceID", pci), ("hwaddr", address.as_str())] {
            unchanged(node, || {
                let conf = whole_link(node, "").with(key, json!(value));
                let pod = node.pod();
                let result = pod.attach(&conf, "net1");
                assert_eq!(result["interfaces"][0]["pciID"], pci, "{key}");
                pod.detach(&conf, "net1");
            });
        }
    });
}

#[test]
fn del_and_gc_restore_a_dead_pods_card_although_its_name_was_taken() {
    with_cards(|node| {
        with_settings(node, "eth1", 1500, || {
            let conf = whole_link(node, "eth1");
            for gc in [false, true] {
                node.ip("link add net1 type dummy");
                let pod = node.pod();
                pod.attach(&conf, "net1");
                pod.die();
                soon("the kernel has put the card back", || {
                    node.link_names().iter().any(|name| name.starts_with("dev"))
                });
                if gc {
                    node.gc(&conf, &[]).done();
                } else {
                    pod.detach(&conf, "net1");
                }
                node.ip("link del net1");
            }
        });
    });
}
