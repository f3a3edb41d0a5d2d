// SPDX-License-Identifier: Apache-2.0
//! The choice of the parent, and the errors if there is none.

use common::netlink::{LinkInfo, MacvlanMode};
use tests::{Node, json, traces::assert_same};

#[test]
fn the_master_can_be_given_by_an_altname() {
    Node::run(|node| {
        node.ip("link property add dev eth0 altname enp59s0f0np0-the-first-port-of-the-card");
        let pod = node.pod();
        let conf = node.conf(json!({"master": "enp59s0f0np0-the-first-port-of-the-card"}));
        pod.attach(&conf, "net1");
        assert_eq!(pod.link("net1").parent, Some(node.link("eth0").index));
        pod.check(&conf, "net1").done();
    });
}

#[test]
fn a_master_that_is_missing_or_unset_is_refused() {
    Node::run(|node| {
        let pod = node.pod();
        pod.add(&node.conf(json!({"master": "ib7"})), "net1").refused(
            7,
            &[
                "master",
                "ib7",
                "does not exist on this node",
                "RDMA-capable links",
            ],
        );
        pod.add(&node.conf(json!({})).without("master"), "net1")
            .refused(7, &["master is not set", "RDMA-capable links"]);
        assert!(pod.links().is_empty());
    });
}

#[test]
fn a_master_that_is_down_or_unplugged_is_refused_with_the_remedy() {
    Node::run(|node| {
        let pod = node.pod();
        node.ip("link set eth0 down");
        pod.add(&node.conf(json!({})), "net1")
            .refused(102, &["eth0 is down", "ip link set eth0 up"]);
        node.ip("link set eth0 up");
        node.ip("link set eth0-far down");
        pod.add(&node.conf(json!({})), "net1")
            .refused(102, &["eth0 has no carrier", "cable"]);
    });
}

#[test]
fn a_loopback_or_an_ethernet_master_carries_no_ipoib_child() {
    Node::run(|node| {
        let pod = node.pod();
        pod.add(&node.conf(json!({"mode": "ipoib"})), "net1")
            .refused(7, &["eth0 is Ethernet", "InfiniBand", "use mode macvlan"]);
        for mode in ["ipoib", "macvlan", "ipvlan"] {
            let conf = node.conf(json!({"mode": mode, "master": "lo"}));
            pod.add(&conf, "net1").refused(7, &["lo is a loopback", mode]);
        }
    });
}

#[test]
fn a_port_of_a_bridge_is_refused_with_the_name_of_the_bridge() {
    Node::run(|node| {
        node.ip("link add br0 type bridge");
        node.ip("link set eth0 master br0");
        let pod = node.pod();
        pod.add(&node.conf(json!({})), "net1")
            .refused(7, &["eth0 is a port of br0", "name br0"]);
    });
}

#[test]
fn installed_as_macvlan_the_default_route_selects_the_master() {
    Node::run(|node| {
        node.install_as("macvlan");
        node.cable("eth1");
        node.ip("addr add 192.0.2.1/24 dev eth0");
        node.ip("addr add 198.51.100.1/24 dev eth1");
        node.ip("route add default via 192.0.2.2 metric 200");
        let conf = node
            .conf(json!({"type": "macvlan", "ipam": node.host_local("10.7.0.0/24")}))
            .without("master");
        let pod = node.pod();
        pod.attach(&conf, "net1");
        assert_eq!(pod.link("net1").parent, Some(node.link("eth0").index));
        node.ip("route add default via 198.51.100.2 metric 100");
        let pod = node.pod();
        pod.attach(&conf, "net1");
        assert_eq!(
            pod.link("net1").parent,
            Some(node.link("eth1").index),
            "the lower metric wins"
        );
    });
}

#[test]
fn installed_as_macvlan_a_master_is_required_without_a_default_route() {
    Node::run(|node| {
        node.install_as("macvlan");
        let conf = node.conf(json!({"type": "macvlan"})).without("master");
        node.pod()
            .add(&conf, "net1")
            .refused(7, &["master is not set", "no default route"]);
    });
}

#[test]
fn installed_as_macvlan_the_plugin_accepts_reference_configurations() {
    Node::run(|node| {
        node.install_as("macvlan");
        let pod = node.pod();
        let conf = node.conf(json!({
            "type": "macvlan", "mode": "vepa", "mtu": 1450, "somethingOfMyOwn": true,
            "ipam": node.host_local("10.7.0.0/24"),
        }));
        pod.attach(&conf, "net1");
        let link = pod.link("net1");
        assert_eq!(
            (link.mtu, link.info),
            (
                1450,
                LinkInfo::Macvlan {
                    mode: MacvlanMode::Vepa
                }
            )
        );
        pod.check(&conf, "net1").done();
        pod.detach(&conf, "net1");
        assert!(pod.links().is_empty());
    });
}

#[test]
fn installed_as_macvlan_del_removes_a_link_of_the_reference_plugin() {
    Node::run(|node| {
        let pod = node.pod();
        let conf = node.conf(json!({"type": "macvlan", "ipam": node.host_local("10.7.0.0/24")}));
        pod.attach(&conf, "net1");
        assert_eq!(pod.link_names(), ["net1"]);
        node.install_as("macvlan");
        pod.detach(&conf, "net1");
        assert!(
            pod.links().is_empty(),
            "the reference plugin's link is left: {:?}",
            pod.link_names()
        );
        assert!(node.leases().is_empty());
    });
}

#[test]
fn installed_as_ipoib_an_ethernet_master_is_refused() {
    Node::run(|node| {
        node.install_as("ipoib");
        let conf = node.conf(json!({"type": "ipoib", "ipam": node.host_local("10.7.0.0/24")}));
        node.pod()
            .add(&conf, "net1")
            .refused(7, &["eth0 is Ethernet", "InfiniBand"]);
    });
}

#[test]
fn a_link_in_the_container_can_be_the_master() {
    Node::run(|node| {
        let pod = node.pod();
        pod.ip("link add inner type veth peer name inner-far");
        pod.ip("link set inner up");
        pod.ip("link set inner-far up");
        let conf = node.conf(json!({
            "master": "inner", "linkInContainer": true, "ipam": node.rdma_ipam("10.7.0.0/24"),
        }));
        pod.attach(&conf, "net1");
        assert_eq!(pod.link("net1").parent, Some(pod.link("inner").index));
        pod.check(&conf, "net1").done();
        pod.detach(&conf, "net1");
        assert_eq!(pod.links().len(), 2, "the pod's own links stay");
        let missing = node.conf(json!({"master": "eth0", "linkInContainer": true}));
        pod.add(&missing, "net1")
            .refused(7, &["eth0", "in the pod (linkInContainer is set)"]);
    });
}

#[test]
fn a_node_link_may_have_the_interface_name_of_the_pod() {
    Node::run(|node| {
        node.cable("net1");
        let host_link = node.link("net1");
        let pod = node.pod();
        let conf = node.conf(json!({"ipam": node.rdma_ipam("10.7.0.0/24")}));
        pod.attach(&conf, "net1");
        assert_eq!(pod.link_names(), ["net1"]);
        pod.check(&conf, "net1").done();
        pod.detach(&conf, "net1");
        assert_eq!(node.link("net1"), host_link, "the node's link is as it was");
    });
}

#[test]
fn installed_as_host_device_a_link_of_software_is_refused() {
    Node::run(|node| {
        node.install_as("host-device");
        let address = node.link("eth0").address.to_string();
        let refusals = [
            ("device", "eth0", ["eth0 is not moved", "a link of kind veth"]),
            (
                "hwaddr",
                &address,
                [&address, "as a hardware address on this node"],
            ),
            ("mode", "device", ["device: it is not set", "hwaddr"]),
        ];
        for (key, value, pieces) in refusals {
            let conf = node
                .conf(json!({"type": "host-device", key: value}))
                .without("master");
            let pod = node.pod();
            let before = node.traces(&[&pod]);
            pod.add(&conf, "net1").refused(7, &pieces);
            pod.detach(&conf, "net1");
            assert_same(&before, &node.traces(&[&pod]), "after a refused ADD and DEL");
        }
    });
}
