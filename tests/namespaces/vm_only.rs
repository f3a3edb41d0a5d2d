// SPDX-License-Identifier: Apache-2.0
//! Device kinds that the fabric's VM certainly has: ipvlan, vlan, dummy, bond, vrf. On a kernel without them these tests
//! fail; `--skip vm_only` excludes them.

use crate::ipam::reference;
use common::netlink::{IpvlanMode, LinkInfo};
use tests::{Conf, Node, json, traces::assert_same};

#[test]
fn every_ipvlan_mode_reaches_the_kernel_and_passes_add_check_and_del() {
    Node::run(|node| {
        for (word, mode) in [
            ("l2", IpvlanMode::L2),
            ("l3", IpvlanMode::L3),
            ("l3s", IpvlanMode::L3s),
        ] {
            let pod = node.pod();
            let before = node.traces(&[&pod]);
            let conf = node.conf(json!({
                "mode": "ipvlan", "ipvlanMode": word, "ipam": node.rdma_ipam("10.7.0.0/24"),
            }));
            let result = pod.attach(&conf, "net1");
            let link = pod.link("net1");
            assert_eq!(link.info, LinkInfo::Ipvlan { mode });
            assert_eq!(
                link.address,
                node.link("eth0").address,
                "ipvlan shares its parent's address"
            );
            assert_eq!(result["interfaces"][0]["mac"], link.address.to_string());
            pod.check(&conf, "net1").done();
            pod.detach(&conf, "net1");
            assert_same(&before, &node.traces(&[&pod]), "after DEL");
        }
    });
}

/// An ipvlan network whose IPAM plugin returns `address`, and with `probe` marks it for the plugin's probe.
fn ipvlan_with(node: &Node, mode: &str, address: &str, probe: bool) -> Conf {
    let result = json!({"ips": [{"address": address, "rdmanet.io/probe": probe}]});
    node.conf(json!({"mode": "ipvlan", "ipvlanMode": mode, "ipam": node.scripted_ipam(&result)}))
}

#[test]
fn a_probe_of_an_ipvlan_child_finds_a_host_behind_the_cable() {
    Node::run(|node| {
        node.ip("addr add 10.7.0.2/24 dev eth0-far");
        node.ip("addr add fd00:7::2/64 dev eth0-far nodad");
        let mac = node.link("eth0-far").address.to_string();
        for address in ["10.7.0.2/24", "fd00:7::2/64"] {
            let pod = node.pod();
            let conf = ipvlan_with(node, "l2", address, true);
            let ip = address.split('/').next().unwrap();
            pod.add(&conf, "net1")
                .refused(105, &[ip, &mac, "another host has the address"]);
            assert!(pod.link_names().is_empty(), "nothing is left of the refused ADD");
        }
    });
}

#[test]
fn a_probe_of_an_ipvlan_child_finds_a_pod_on_the_same_parent() {
    Node::run(|node| {
        for address in ["10.7.0.2/24", "fd00:7::2/64"] {
            let (holder, pod) = (node.pod(), node.pod());
            let held = ipvlan_with(node, "l2", address, false);
            holder.attach(&held, "net1");
            let conf = ipvlan_with(node, "l2", address, true);
            pod.add(&conf, "net1")
                .refused(105, &["another host has the address"]);
            holder.detach(&held, "net1");
        }
    });
}

#[test]
fn a_marked_address_without_a_holder_is_assigned_in_every_ipvlan_mode() {
    Node::run(|node| {
        for mode in ["l2", "l3", "l3s"] {
            for address in ["10.7.0.2/24", "fd00:7::2/64"] {
                let pod = node.pod();
                let conf = ipvlan_with(node, mode, address, true);
                pod.attach(&conf, "net1");
                assert_eq!(pod.global("net1"), [address], "{mode}");
                pod.check(&conf, "net1").done();
                pod.detach(&conf, "net1");
            }
        }
    });
}

#[test]
fn a_hardware_address_for_an_ipvlan_child_is_refused() {
    Node::run(|node| {
        let conf = node.conf(json!({"mode": "ipvlan", "mac": "02:00:00:00:00:01"}));
        node.pod().add(&conf, "net1").refused(7, &["mac", "macvlan"]);
    });
}

#[test]
fn the_reference_ipvlan_works_with_rdma_ipam() {
    reference("ipvlan", &json!({"master": "eth0"}));
}

#[test]
fn macvlan_and_ipvlan_on_one_parent_are_refused_without_a_trace() {
    Node::run(|node| {
        let (first, second) = (node.pod(), node.pod());
        first.attach(&node.conf(json!({"mode": "ipvlan"})), "net1");
        let before = node.traces(&[&first, &second]);
        let conf = node.conf(json!({"mode": "macvlan", "ipam": node.rdma_ipam("10.7.0.0/24")}));
        second
            .add(&conf, "net1")
            .refused(7, &["eth0 cannot have a macvlan child", "ipvlan", "pod-1"]);
        assert_same(&before, &node.traces(&[&first, &second]), "after the refusal");
    });
}

#[test]
fn an_ipvlan_add_never_changes_the_mode_of_an_ipvlan_link_of_the_node() {
    Node::run(|node| {
        node.ip("link add link eth0 name own0 type ipvlan mode l2");
        node.ip("link set own0 up");
        let pod = node.pod();
        for master in ["eth0", "own0"] {
            let keys = |mode: &str| json!({"mode": "ipvlan", "ipvlanMode": mode, "master": master});
            pod.add(&node.conf(keys("l3")), "net1")
                .refused(7, &["l3", "l2", "own0 of this node"]);
            let shown = node.ip("-d link show own0");
            assert!(shown.contains("mode l2"), "{shown}");
            let conf = node.conf(keys("l2"));
            pod.attach(&conf, "net1");
            assert_eq!(pod.link("net1").parent, Some(node.link("eth0").index));
            pod.check(&conf, "net1").done();
            pod.detach(&conf, "net1");
        }
    });
}

#[test]
fn a_vlan_a_dummy_and_a_bond_carry_children() {
    Node::run(|node| {
        node.cable("port0");
        node.cable("port1");
        for command in [
            "link add link eth0 name eth0.100 type vlan id 100",
            "link add dummy0 type dummy",
            "link add bond0 type bond mode active-backup miimon 50",
            "link set port0 down",
            "link set port0 master bond0",
            "link set port1 down",
            "link set port1 master bond0",
            "link set eth0.100 up",
            "link set dummy0 up",
            "link set bond0 up",
        ] {
            node.ip(command);
        }
        node.socket()
            .wait_for_carrier(node.link("bond0").index, std::time::Duration::from_secs(60))
            .unwrap();
        for master in ["eth0.100", "dummy0", "bond0"] {
            for mode in ["macvlan", "ipvlan"] {
                let pod = node.pod();
                let conf = node.conf(json!({
                    "master": master, "mode": mode, "ipam": node.rdma_ipam("10.7.0.0/24"),
                }));
                pod.attach(&conf, "net1");
                pod.check(&conf, "net1").done();
                pod.detach(&conf, "net1");
            }
        }
        let port = node.conf(json!({"master": "port0"}));
        node.pod()
            .add(&port, "net1")
            .refused(7, &["port0 is a port of bond0", "name bond0"]);
    });
}

#[test]
fn a_passthru_child_never_takes_a_link_below_a_bridge_of_the_node() {
    Node::run(|node| {
        for words in [
            "link add link eth0 name eth0.100 type vlan id 100",
            "link add br0 type bridge",
            "link set eth0.100 master br0",
            "link set eth0.100 up",
            "link set br0 up",
            "addr add 192.0.2.1/24 dev br0",
        ] {
            node.ip(words);
        }
        let pod = node.pod();
        let conf = node.conf(json!({"macvlanMode": "passthru"}));
        pod.add(&conf, "net1")
            .refused(7, &["eth0", "mode passthru", "192.0.2.1 through br0"]);
        assert!(pod.links().is_empty());
    });
}

#[test]
fn a_port_of_a_vrf_carries_children_that_reach_the_cable() {
    Node::run(|node| {
        node.ip("link add vrf0 type vrf table 10");
        node.ip("link set vrf0 up");
        node.ip("link set eth0 master vrf0");
        node.socket()
            .wait_for_carrier(node.link("eth0").index, std::time::Duration::from_secs(60))
            .unwrap();
        node.ip("addr add 10.7.0.250/24 dev eth0-far");
        for mode in ["macvlan", "ipvlan"] {
            let pod = node.pod();
            let with = |ipam| node.conf(json!({"mode": mode, "ipam": ipam}));
            let conf = with(node.rdma_ipam("10.7.0.0/24"));
            pod.attach(&conf, "net1");
            pod.check(&conf, "net1").done();
            pod.detach(&conf, "net1");
            let held = json!({"ips": [{"address": "10.7.0.250/24", "rdmanet.io/probe": true}]});
            pod.add(&with(node.scripted_ipam(&held)), "net1")
                .refused(105, &["another host has the address"]);
            let vrf = node.conf(json!({"mode": mode, "master": "vrf0"}));
            pod.add(&vrf, "net1")
                .refused(7, &["vrf0 is a VRF", "name one of its ports"]);
        }
    });
}

#[test]
fn a_node_link_with_the_interface_name_does_not_disturb_ethernet_children() {
    Node::run(|node| {
        node.ip("link add net1 type dummy");
        let pod = node.pod();
        for mode in ["macvlan", "ipvlan"] {
            let conf = node.conf(json!({"mode": mode}));
            pod.attach(&conf, "net1");
            assert_eq!(pod.link_names(), ["net1"]);
            pod.detach(&conf, "net1");
        }
        assert_eq!(node.link("net1").kind.as_deref(), Some("dummy"));
    });
}
