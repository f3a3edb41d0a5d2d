// SPDX-License-Identifier: Apache-2.0
//! An Ethernet bond as the master: the child sits on the bond, and the plugin reports the RDMA device of the active
//! port. These tests are not in `tests/namespaces`, because RoCE devices exist in the VM's first namespace only.

use crate::fabric::{network, reaches, run, soon};
use crate::rdma::record;
use tests::{Conf, Node, Pod, Value, json, traces::assert_same};

const PORTS: [&str; 2] = ["port0", "port1"];

/// Runs `test` while the node has `bond1` of two ports. Each port has a RoCE device and a cable to a switch that
/// replies as 10.7.0.250.
fn bonded(node: &Node, test: impl FnOnce()) {
    node.ip("link add switch type bridge");
    for (port, rxe) in PORTS.iter().zip(["rxe0", "rxe1"]) {
        node.cable(port);
        node.ip(&format!("link set {port}-far master switch"));
        let made = node.exec("rdma", &format!("link add {rxe} type rxe netdev {port}"));
        assert!(made.status.success(), "{made:?}; does the VM have rdma_rxe?");
    }
    node.ip("addr add 10.7.0.250/24 dev switch");
    node.ip("link set switch up");
    make(node);
    test();
    node.ip("link del bond1");
    for port in PORTS {
        node.ip(&format!("link del {port}"));
    }
    node.ip("link del switch");
}

fn make(node: &Node) {
    node.ip("link add bond1 type bond mode active-backup miimon 50");
    for port in PORTS {
        node.ip(&format!("link set {port} down"));
        node.ip(&format!("link set {port} master bond1"));
    }
    node.ip("link set bond1 up");
    carries(node);
}

fn carries(node: &Node) {
    soon("bond1 has carrier", || node.link("bond1").carrier);
}

fn on_bond(node: &Node, keys: &Value) -> Conf {
    network(node, keys).with("master", json!("bond1"))
}

/// Attaches `pod` and returns the RDMA device that ADD recorded for it.
fn recorded_device(node: &Node, pod: &Pod<'_>, conf: &Conf) -> Value {
    pod.attach(conf, "net1");
    record(node, pod)["device"].clone()
}

#[test]
fn an_ethernet_bond_child_survives_a_failover_and_records_the_active_device() {
    run(|node| {
        bonded(node, || {
            let pods = [node.pod(), node.pod()];
            let before = node.traces(&[&pods[0], &pods[1]]);
            let conf = on_bond(node, &json!({}));
            assert_eq!(recorded_device(node, &pods[0], &conf), "rxe0");
            assert_eq!(pods[0].link("net1").kind.as_deref(), Some("macvlan"));
            reaches(&pods[0], "10.7.0.250");
            node.ip("link set port0-far down");
            reaches(&pods[0], "10.7.0.250");
            node.status(&conf).done();
            assert_eq!(recorded_device(node, &pods[1], &conf), "rxe1");
            node.ip("link set port0-far up");
            for pod in &pods {
                pod.check(&conf, "net1").done();
                pod.detach(&conf, "net1");
            }
            assert_same(&before, &node.traces(&[&pods[0], &pods[1]]), "after DEL");
        });
    });
}

#[test]
fn a_vlan_on_a_bond_carries_macvlan_and_ipvlan() {
    run(|node| {
        bonded(node, || {
            node.ip("link add link bond1 name bond1.7 type vlan id 7");
            node.ip("link set bond1.7 up");
            for mode in ["macvlan", "ipvlan"] {
                let pods = [node.pod(), node.pod()];
                let conf = network(node, &json!({"master": "bond1.7", "mode": mode}));
                let target = crate::fabric::address(&pods[0].attach(&conf, "net1"), false);
                pods[1].attach(&conf, "net1");
                reaches(&pods[1], &target);
                for pod in &pods {
                    pod.check(&conf, "net1").done();
                    pod.detach(&conf, "net1");
                }
            }
            node.ip("link del bond1.7");
        });
    });
}

#[test]
fn check_and_status_report_a_bond_restarted_under_its_children() {
    run(|node| {
        bonded(node, || {
            let pod = node.pod();
            let conf = on_bond(node, &json!({}));
            pod.attach(&conf, "net1");
            for port in PORTS {
                node.ip(&format!("link set {port} nomaster"));
            }
            let pieces = ["bond1 has no ports", "was it restarted without them?"];
            node.status(&conf).refused(51, &pieces);
            pod.check(&conf, "net1").refused(102, &pieces);
            for port in PORTS {
                node.ip(&format!("link set {port} down"));
                node.ip(&format!("link set {port} master bond1"));
            }
            carries(node);
            node.status(&conf).done();
            soon("the child has carrier again", || {
                pod.check(&conf, "net1").status.success()
            });
            node.ip("link del bond1");
            make(node);
            pod.check(&conf, "net1")
                .refused(104, &["net1", "it is gone (was bond1 recreated?"]);
            pod.detach(&conf, "net1");
        });
    });
}

#[test]
fn a_refused_ethernet_bond_does_not_suggest_its_ports() {
    run(|node| {
        bonded(node, || {
            let pod = node.pod();
            pod.add(&on_bond(node, &json!({"bond": "refuse"})), "net1")
                .refused(7, &["bond1 is a bond", "name another link, or change bond"]);
            pod.add(&on_bond(node, &json!({"bond": "active"})), "net1")
                .refused(2, &["bond active is not supported"]);
            pod.add(&network(node, &json!({"master": "port0"})), "net1")
                .refused(7, &["port0 is a port of bond1", "name bond1"]);
        });
    });
}
