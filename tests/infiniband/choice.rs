// SPDX-License-Identifier: Apache-2.0
//! A network that describes its master: pods are spread over the ports that fit, and a refusal names every port with
//! its reason.

use crate::fabric::{address, cable, network, reaches, run, soon};
use common::rdma::Guid;
use std::thread;
use tests::{Conf, Node, Pod, Value, json, traces::assert_same};

/// A network whose pods get the InfiniBand ports of the node.
pub(crate) fn any(node: &Node) -> Conf {
    network(node, &json!({"master": {"linkLayer": "InfiniBand"}}))
}

fn guid_of(address: &common::netlink::HwAddress) -> Guid {
    address.port_guid().unwrap()
}

/// The port of `net1` of the pod.
pub(crate) fn port_of(node: &Node, pod: &Pod<'_>) -> String {
    port_of_link(node, pod, "net1")
}

/// The port of an interface of the pod, found by its GUID.
fn port_of_link(node: &Node, pod: &Pod<'_>, ifname: &str) -> String {
    let guid = guid_of(&pod.link(ifname).address);
    let ports = ["ib0", "ib1", "ib2"].into_iter();
    let found = ports.filter(|port| guid_of(&node.link(port).address) == guid);
    found.collect()
}

/// The intent that ADD recorded for a pod.
pub(crate) fn intent(node: &Node, pod: &Pod<'_>) -> Value {
    let file = node.path(&format!("state/attachments/net-a/{}@net1", pod.id));
    let text = std::fs::read_to_string(file).unwrap();
    serde_json::from_str(text.lines().next().unwrap()).unwrap()
}

#[test]
fn pods_are_spread_over_the_ports_that_fit_and_reach_each_other() {
    run(|node| {
        let conf = any(node);
        let pods = [node.pod(), node.pod(), node.pod(), node.pod()];
        let results: Vec<Value> = pods[..3].iter().map(|pod| pod.attach(&conf, "net1")).collect();
        let ports: Vec<String> = pods[..3].iter().map(|pod| port_of(node, pod)).collect();
        assert_eq!(ports, ["ib0", "ib1", "ib2"]);
        assert_eq!(intent(node, &pods[1])["master"], "ib1");
        let why = intent(node, &pods[1])["why"].to_string();
        assert!(
            why.contains("of 3 links that fit {linkLayer: InfiniBand}") && why.contains("ib0 has 1"),
            "{why}"
        );
        reaches(&pods[0], &address(&results[2], false));

        pods[1].detach(&conf, "net1");
        pods[3].attach(&conf, "net1");
        assert_eq!(port_of(node, &pods[3]), "ib1", "the port of the deleted pod");
        for pod in [&pods[0], &pods[2], &pods[3]] {
            pod.check(&conf, "net1").done();
            pod.detach(&conf, "net1");
        }
    });
}

/// By the number of attachments alone, `ib0` would be chosen for the first two interfaces.
#[test]
fn a_pod_gets_another_port_for_each_network_that_describes_ports_alike() {
    run(|node| {
        let busy = [node.pod(), node.pod()];
        let named = ["ib1", "ib2"].map(|master| network(node, &json!({"master": master})));
        for pod in &busy {
            for (conf, ifname) in named.iter().zip(["net1", "net2"]) {
                pod.attach(conf, ifname);
            }
        }
        let (conf, pod) = (any(node), node.pod());
        let interfaces = ["net1", "net2", "net3"];
        for ifname in interfaces {
            pod.attach(&conf, ifname);
        }
        let mut ports = interfaces.map(|ifname| port_of_link(node, &pod, ifname));
        ports.sort();
        assert_eq!(ports, ["ib0", "ib1", "ib2"]);
        for ifname in interfaces {
            pod.detach(&conf, ifname);
        }
        for pod in &busy {
            for (conf, ifname) in named.iter().zip(["net1", "net2"]) {
                pod.detach(conf, ifname);
            }
        }
    });
}

#[test]
fn nine_concurrent_adds_put_three_pods_on_each_port() {
    run(|node| {
        let conf = any(node);
        let pods: Vec<Pod<'_>> = (0..9).map(|_| node.pod()).collect();
        thread::scope(|scope| {
            for pod in &pods {
                scope.spawn(|| {
                    let answer = pod.add(&conf, "net1");
                    answer.result();
                    assert_eq!(answer.stderr, "", "no ADD gave up its turn");
                });
            }
        });
        let mut ports: Vec<String> = pods.iter().map(|pod| port_of(node, pod)).collect();
        ports.sort();
        assert_eq!(
            ports,
            ["ib0", "ib0", "ib0", "ib1", "ib1", "ib1", "ib2", "ib2", "ib2"]
        );
        for pod in &pods {
            pod.detach(&conf, "net1");
        }
    });
}

#[test]
fn a_dead_pod_counts_towards_the_load_of_a_port_until_its_del() {
    run(|node| {
        let conf = any(node);
        let (dead, living, last) = (node.pod(), node.pod(), node.pod());
        dead.attach(&conf, "net1");
        assert_eq!(port_of(node, &dead), "ib0");
        let ours = node.links().len();
        dead.die();
        // A later DEL waits for the child for one second, and succeeds without it.
        soon("the kernel puts the child back", || {
            node.links().len() == ours + 1
        });
        living.attach(&conf, "net1");
        assert_eq!(port_of(node, &living), "ib1");
        dead.detach(&conf, "net1");
        last.attach(&conf, "net1");
        assert_eq!(port_of(node, &last), "ib0");
        living.detach(&conf, "net1");
        last.detach(&conf, "net1");
    });
}

#[test]
fn ports_without_a_cable_are_skipped_and_all_are_named_if_none_is_left() {
    run(|node| {
        let conf = any(node);
        let pod = node.pod();
        cable(0, false);
        pod.attach(&conf, "net1");
        assert_eq!(port_of(node, &pod), "ib1");
        let why = intent(node, &pod)["why"].to_string();
        assert!(
            why.contains("ib0 (InfiniBand, softib0/1) carries nothing: softib0 port 1 is down"),
            "{why}"
        );
        pod.detach(&conf, "net1");

        cable(1, false);
        cable(2, false);
        let before = node.traces(&[&pod]);
        let every = [
            "no link of this node fits master",
            "softib0 port 1 is down",
            "softib1 port 1 is down",
            "ib2 (",
        ];
        pod.add(&conf, "net1").refused(102, &every);
        node.status(&conf).refused(51, &every);
        assert_same(&before, &node.traces(&[&pod]), "after the refusal");
        for hca in 0..3 {
            cable(hca, true);
        }
    });
}

#[test]
fn the_master_selector_chooses_the_port_and_a_list_is_tried_in_order() {
    run(|node| {
        let pod = node.pod();
        for (master, port) in [
            (json!({"rdmaDevice": "softib[12]"}), "ib1"),
            (json!({"ifName": "*2"}), "ib2"),
            (
                json!({"rateMin": 100, "subnetPrefix": "fe80::", "pkey": "0x8001"}),
                "ib0",
            ),
            (json!(["ib7", "ib2", "ib0"]), "ib2"),
            (
                json!([{"rateMin": 800}, {"rdmaDevice": "softib1", "linkLayer": "infiniband"}]),
                "ib1",
            ),
        ] {
            let conf = network(node, &json!({"master": master}));
            node.status(&conf).done();
            pod.attach(&conf, "net1");
            assert_eq!(port_of(node, &pod), port, "{master}");
            pod.check(&conf, "net1").done();
            pod.detach(&conf, "net1");
        }
        for (master, piece) in [
            (
                json!({"rateMin": 800}),
                "ib0 (InfiniBand, softib0/1) runs at 200 Gbit/s, not 800 (rateMin)",
            ),
            (
                json!({"pkey": "0x8003"}),
                "ib2 (InfiniBand, softib2/1) is not in partition 0x8003 (pkey)",
            ),
            (
                json!({"pciAddress": "0000:*"}),
                "ib1 (InfiniBand, softib1/1) is no PCI device",
            ),
            (json!(["ib7"]), "ib7 does not exist on this node"),
        ] {
            let conf = network(node, &json!({"master": master}));
            pod.add(&conf, "net1")
                .refused(7, &["no link of this node fits master", piece]);
            node.status(&conf).refused(50, &[piece]);
        }
    });
}

#[test]
fn a_roce_bond_is_chosen_only_if_it_has_no_address_of_the_node() {
    run(|node| {
        node.cable("eth9");
        node.ip("link add bond9 type bond mode active-backup");
        node.ip("link set eth9 down");
        node.ip("link set eth9 master bond9");
        node.ip("link set bond9 up");
        node.ip("addr add 10.99.0.1/24 dev bond9");
        let added = node.exec("rdma", "link add rxe9 type rxe netdev bond9");
        assert!(added.status.success(), "{added:?}");
        let pod = node.pod();
        let conf = network(node, &json!({"master": {"linkLayer": "Ethernet"}}));
        let kept = "bond9 (Ethernet, rxe9/1) is a bond that carries the node's address 10.99.0.1; name it if pods may share it";
        pod.add(&conf, "net1").refused(
            7,
            &[kept, "ib0 (InfiniBand, softib0/1) is InfiniBand, not Ethernet"],
        );
        node.ip("addr del 10.99.0.1/24 dev bond9");
        pod.attach(&conf, "net1");
        assert_eq!(intent(node, &pod)["master"], "bond9");
        pod.check(&conf, "net1").done();
        pod.detach(&conf, "net1");
        node.exec("rdma", "link del rxe9");
        node.ip("link del bond9");
        node.ip("link del eth9");
    });
}
