// SPDX-License-Identifier: Apache-2.0
//! Which parents carry an IPoIB child, and what is said of those that do not.

use crate::fabric::{network, on_fabric, soon};
use tests::{json, traces::assert_same};

#[test]
fn macvlan_and_ipvlan_on_infiniband_are_refused_before_the_kernel_is_asked() {
    on_fabric(|node| {
        let pod = node.pod();
        let before = node.traces(&[&pod]);
        for mode in ["macvlan", "ipvlan"] {
            let conf = network(node, "ib0", &json!({"mode": mode}));
            pod.add(&conf, "net1")
                .refused(7, &["ib0 is InfiniBand", mode, "use mode ipoib"]);
        }
        assert_same(&before, &node.traces(&[&pod]), "after refused ADDs");
    });
}

#[test]
fn ipoib_on_ethernet_is_refused() {
    on_fabric(|node| {
        node.cable("eth0");
        let conf = network(node, "eth0", &json!({"mode": "ipoib"}));
        node.pod()
            .add(&conf, "net1")
            .refused(7, &["eth0 is Ethernet", "InfiniBand"]);
        node.ip("link del eth0");
    });
}

#[test]
fn dhcp_is_refused_before_anything_is_made() {
    on_fabric(|node| {
        let pod = node.pod();
        let before = node.traces(&[&pod]);
        let conf = node.conf(json!({"master": "ib0", "ipam": {"type": "dhcp"}}));
        pod.add(&conf, "net1")
            .refused(2, &["ipam.type", "dhcp", "rdma-ipam"]);
        assert_same(&before, &node.traces(&[&pod]), "after a refused ADD");
    });
}

#[test]
fn a_bond_is_refused_by_the_names_of_its_ports() {
    on_fabric(|node| {
        node.ip("link add bond0 type bond mode active-backup fail_over_mac active miimon 50");
        node.ip("link set ib2 down");
        node.ip("link set ib2 master bond0");
        node.ip("link set bond0 up");
        let pod = node.pod();
        let answer = pod.add(&network(node, "bond0", &json!({})), "net1");
        node.ip("link set ib2 nomaster");
        node.ip("link del bond0");
        answer.refused(7, &["bond0", "kind bond", "its ports: ib2"]);
        assert!(pod.links().is_empty() && node.leases().is_empty());
    });
}

#[test]
fn a_missing_master_is_told_with_the_ports_that_could_be_named() {
    on_fabric(|node| {
        let pod = node.pod();
        for conf in [
            network(node, "ib9", &json!({})),
            network(node, "ib9", &json!({})).without("master"),
        ] {
            pod.add(&conf, "net1").refused(
                7,
                &[
                    "ib0 (InfiniBand, softib0/1, ",
                    "ib1 (InfiniBand, softib1/1, ",
                    "ib2",
                ],
            );
        }
    });
}

#[test]
fn a_link_of_the_node_may_bear_the_pods_interface_name() {
    on_fabric(|node| {
        node.ip("link add link ib1 name net1 type ipoib");
        let host_link = node.link("net1");
        let pod = node.pod();
        let before = node.traces(&[&pod]);
        let conf = network(node, "ib0", &json!({}));
        pod.attach(&conf, "net1");
        assert_eq!(pod.link_names(), ["net1"]);
        pod.check(&conf, "net1").done();
        pod.detach(&conf, "net1");
        assert_same(&before, &node.traces(&[&pod]), "after DEL");
        assert_eq!(
            node.link("net1").index,
            host_link.index,
            "the node's own link is still there"
        );
        node.ip("link del net1");
    });
}

#[test]
fn a_port_inside_the_pod_can_be_the_master() {
    on_fabric(|node| {
        let pod = node.pod();
        node.ip(&format!("link set ib2 netns {}", pod.netns.display()));
        pod.ip("link set ib2 up");
        let carrier = soon(|| pod.link("ib2").carrier);
        let conf = network(node, "ib2", &json!({"linkInContainer": true}));
        let answer = pod.add(&conf, "net1");
        let checked = pod.check(&conf, "net1");
        let deleted = pod.call("DEL", &conf, "net1").run();
        let left = pod.link_names();
        // Process 1 is on the node.
        pod.ip("link set ib2 netns 1");
        assert!(carrier, "ib2 has no carrier in the pod");
        answer.result();
        checked.done();
        deleted.done();
        assert_eq!(left, ["ib2"]);
    });
}
