// SPDX-License-Identifier: Apache-2.0
//! Links that the node or another pod needs. The plugin refuses them before it changes anything.

use super::{in_both_modes, unchanged, whole_link};
use crate::fabric::{cable, network, soon};
use common::netlink::OperState;
use tests::{Node, json};

/// Runs the commands `before`, asserts that ADD refuses `ib1` with these words and changes nothing, then runs the
/// commands `after`, which undo `before`.
fn refused(node: &Node, before: &[&str], after: &[&str], words: &[&str]) {
    for words in before {
        node.ip(words);
    }
    soon("ib1 has carrier", || node.link("ib1").carrier);
    let conf = whole_link(node, "ib1").with("hostAddresses", json!("refuse"));
    unchanged(node, || {
        let pod = node.pod();
        pod.add(&conf, "net1").refused(7, words);
        assert!(pod.links().is_empty());
        node.status(&conf).refused(50, words);
    });
    for words in after {
        node.ip(words);
    }
}

#[test]
fn a_link_that_the_node_needs_is_refused() {
    in_both_modes(|node| {
        let address = ["addr add 10.44.0.1/24 dev ib1"];
        refused(
            node,
            &address,
            &["addr flush dev ib1 scope global"],
            &["ib1", "10.44.0.1/24", "hostAddresses"],
        );
        let route = [
            "addr add 10.44.0.1/24 dev ib1",
            "route add default via 10.44.0.254 metric 7",
        ];
        let words = ["the default route of this node leads over ib1"];
        refused(
            node,
            &route,
            &["route del default metric 7", "addr flush dev ib1 scope global"],
            &words,
        );
        let child = ["link add link ib1 name kid type ipoib pkey 0x8001"];
        refused(
            node,
            &child,
            &["link del kid"],
            &["it has links on top of it (kid)"],
        );
        let bond = [
            "link add bond9 type bond mode active-backup",
            "link set ib1 down",
            "link set ib1 master bond9",
        ];
        let undo = ["link set ib1 nomaster", "link del bond9", "link set ib1 up"];
        refused(node, &bond, &undo, &["it is a port of bond9"]);
    });
}

#[test]
fn the_parent_of_a_pods_interface_is_refused() {
    in_both_modes(|node| {
        let living = node.pod();
        let conf = network(node, &json!({"master": "ib1"}));
        living.attach(&conf, "net1");
        refused(
            node,
            &[],
            &[],
            &["it has links on top of it (the interface of net-a/net1 of container pod-1)"],
        );
        living.check(&conf, "net1").done();
        living.detach(&conf, "net1");
    });
}

#[test]
fn the_last_active_port_is_refused_unless_keep_last_is_false() {
    in_both_modes(|node| {
        cable(0, false);
        cable(2, false);
        // The kernel reports the state with a delay.
        for port in ["ib0", "ib2"] {
            soon("the port is known to be down", || {
                node.link(port).oper_state == OperState::Down
            });
        }
        refused(node, &[], &[], &["last active", "InfiniBand"]);
        let conf = whole_link(node, "ib1").with("keepLast", json!(false));
        let pod = node.pod();
        pod.attach(&conf, "net1");
        pod.detach(&conf, "net1");
        cable(0, true);
        cable(2, true);
        // `unchanged` compares the node with its former state.
        for port in ["ib0", "ib2"] {
            soon("the port carries again", || node.link(port).carrier);
        }
    });
}

#[test]
fn a_link_made_by_software_is_refused() {
    in_both_modes(|node| {
        node.ip("link add dum9 type dummy");
        let conf = whole_link(node, "dum9");
        let pod = node.pod();
        pod.add(&conf, "net1")
            .refused(7, &["dum9", "dummy", "deletes with the pod's namespace"]);
        node.ip("link del dum9");
    });
}

#[test]
fn a_link_of_another_pod_is_refused_with_that_pod() {
    in_both_modes(|node| {
        let conf = whole_link(node, "ib1");
        let pods = [node.pod(), node.pod()];
        pods[0].attach(&conf, "net1");
        pods[1]
            .add(&conf, "net1")
            .refused(11, &["ib1 belongs to", "of container pod-"]);
        node.status(&conf).done();
        pods[0].detach(&conf, "net1");
        pods[1].attach(&conf, "net1");
        pods[1].detach(&conf, "net1");
    });
}
