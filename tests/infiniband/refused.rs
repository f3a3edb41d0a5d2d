// SPDX-License-Identifier: Apache-2.0
//! Configurations that InfiniBand does not support: the plugin refuses them before it changes anything, and names an
//! alternative.

use crate::bond::bonded;
use crate::fabric::{address, network, reaches, run};
use tests::{Node, Value, json, traces::assert_same};

/// Asserts that ADD refuses these keys with these words and leaves nothing.
#[track_caller]
fn refused(node: &Node, keys: &Value, code: u64, pieces: &[&str]) {
    let pod = node.pod();
    let before = node.traces(&[&pod]);
    pod.add(&network(node, keys), "net1").refused(code, pieces);
    assert_same(&before, &node.traces(&[&pod]), "after the refusal");
}

#[test]
fn macvlan_and_ipvlan_on_infiniband_are_refused_in_favour_of_ipoib() {
    run(|node| {
        for mode in ["macvlan", "ipvlan"] {
            let words = format!("ib0 is InfiniBand: {mode} needs Ethernet; use mode ipoib");
            refused(node, &json!({"mode": mode}), 7, &[&words]);
        }
    });
}

#[test]
fn ipoib_on_ethernet_is_refused_in_favour_of_macvlan() {
    run(|node| {
        node.cable("eth9");
        let words = "eth9 is Ethernet: ipoib needs InfiniBand; use mode macvlan or ipvlan";
        refused(node, &json!({"master": "eth9", "mode": "ipoib"}), 7, &[words]);
        node.ip("link del eth9");
    });
}

#[test]
fn keys_of_ethernet_children_are_refused_on_infiniband() {
    run(|node| {
        for (key, value) in [
            ("macvlanMode", json!("bridge")),
            ("bcqueuelen", json!(500)),
            ("ipvlanMode", json!("l2")),
        ] {
            refused(node, &json!({key: value}), 7, &[key, "the mode is ipoib"]);
        }
    });
}

#[test]
fn a_hardware_address_other_than_that_of_the_port_is_refused() {
    run(|node| {
        let foreign = "00:00:10:49:fe:80:00:00:00:00:00:00:00:11:22:33:44:55:66:77";
        for mac in ["02:00:00:00:00:01", foreign] {
            let pieces = [
                "mac",
                mac,
                "cannot be given to a child of ib0",
                "5254:00ff:fe00:0001",
                "virtual function",
            ];
            refused(node, &json!({"mac": mac}), 7, &pieces);
        }
    });
}

#[test]
fn a_foreign_guid_is_refused_and_the_guid_of_the_port_is_accepted() {
    run(|node| {
        let guid = |guid: &str| json!({"runtimeConfig": {"infinibandGUID": guid}});
        refused(
            node,
            &guid("00:11:22:33:44:55:66:77"),
            7,
            &[
                "infinibandGUID",
                "0011:2233:4455:6677",
                "ib0",
                "5254:00ff:fe00:0001",
            ],
        );
        let pod = node.pod();
        let conf = network(node, &guid("52:54:00:ff:fe:00:00:01"));
        pod.attach(&conf, "net1");
        pod.detach(&conf, "net1");
        assert!(pod.links().is_empty());
    });
}

#[test]
fn an_infiniband_bond_refuses_macvlan_and_its_port_still_carries_children() {
    run(|node| {
        bonded(node, || {
            refused(
                node,
                &json!({"master": "bond0", "mode": "macvlan"}),
                7,
                &["bond0 is InfiniBand", "use mode ipoib"],
            );
            let pods = [node.pod(), node.pod()];
            let confs = ["ib1", "ib2"].map(|master| network(node, &json!({"master": master})));
            pods[0].attach(&confs[0], "net1");
            let result = pods[1].attach(&confs[1], "net1");
            reaches(&pods[0], &address(&result, false));
            for (pod, conf) in pods.iter().zip(&confs) {
                pod.detach(conf, "net1");
            }
        });
    });
}

#[test]
fn dhcp_is_refused_before_the_dhcp_plugin_runs() {
    run(|node| {
        node.install_script("dhcp", "touch \"$RDMANET_STATE.dhcp-was-called\"; exit 1");
        refused(
            node,
            &json!({"ipam": {"type": "dhcp"}}),
            2,
            &["ipam.type dhcp", "before the interface exists"],
        );
        assert!(
            !node.path("state.dhcp-was-called").exists(),
            "the dhcp plugin was called"
        );
    });
}

#[test]
fn a_missing_master_is_refused_with_the_ports_of_the_node() {
    run(|node| {
        refused(
            node,
            &json!({"master": "ib7"}),
            7,
            &[
                "does not exist on this node",
                "ib0 (InfiniBand, softib0/1",
                "ib1 (InfiniBand, softib1/1",
                "ib2 (InfiniBand, softib2/1",
            ],
        );
    });
}

#[test]
fn a_master_that_is_down_is_refused_with_the_remedy() {
    run(|node| {
        node.ip("link set ib2 down");
        refused(
            node,
            &json!({"master": "ib2"}),
            102,
            &["ib2 is down", "ip link set ib2 up"],
        );
        node.ip("link set ib2 up");
    });
}
