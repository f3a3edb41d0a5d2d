// SPDX-License-Identifier: Apache-2.0
//! A bond as the master: the pod gets a child of each port, and its own bond of these children, which fails over by
//! itself.

use crate::fabric::{address, cable, network, reaches, run, run_with, soon};
use common::netlink::LinkInfo;
use tests::{Conf, Node, Pod, Value, json, traces::assert_same};

/// Runs `test` while the node has `bond0` of `ib0` and `ib1`.
pub(crate) fn bonded(node: &Node, test: impl FnOnce()) {
    node.ip("link add bond0 type bond mode active-backup fail_over_mac active miimon 100");
    for port in ["ib0", "ib1"] {
        node.ip(&format!("link set {port} down"));
        node.ip(&format!("link set {port} master bond0"));
    }
    node.ip("link set bond0 up");
    // Without this, the port that joins its multicast groups first becomes the active one.
    soon("ib0 is the active port", || {
        node.exec("ip", "link set bond0 type bond active_slave ib0")
            .status
            .success()
    });
    test();
    node.ip("link del bond0");
    for port in ["ib0", "ib1"] {
        node.ip(&format!("link set {port} up"));
        soon(&format!("{port} has carrier"), || node.link(port).carrier);
    }
}

/// A network on `bond0` with these additional keys.
pub(crate) fn on_bond(node: &Node, keys: &Value) -> Conf {
    network(node, keys).with("master", json!("bond0"))
}

/// The active port of the pod's bond.
fn active(pod: &Pod<'_>) -> String {
    let LinkInfo::Bond { active, .. } = pod.link("net1").info else {
        panic!("net1 is no bond");
    };
    let port = pod.links().into_iter().find(|link| Some(link.index) == active);
    port.map(|port| port.name).unwrap_or_default()
}

/// The number of the HCA under the active port of the pod's bond. The port that joined its multicast groups first is
/// active.
fn active_hca(node: &Node, pod: &Pod<'_>) -> usize {
    let port = pod.link(&active(pod));
    usize::from(port.parent.unwrap_or(port.index) == node.link("ib1").index)
}

/// Waits until both ports of the pod's bond have carrier.
fn wait_for_ports(pod: &Pod<'_>) {
    for port in ["net1p0", "net1p1"] {
        soon(&format!("{port} has carrier"), || pod.link(port).carrier);
    }
}

#[test]
fn the_pod_gets_one_bonded_interface_with_one_address() {
    run(|node| {
        bonded(node, || {
            let pod = node.pod();
            let before = node.traces(&[&pod]);
            let conf = on_bond(node, &json!({}));
            let result = pod.attach(&conf, "net1");
            assert_eq!(pod.link_names(), ["net1", "net1p0", "net1p1"]);
            let interfaces = result["interfaces"].as_array().unwrap();
            assert_eq!(interfaces.len(), 1, "{result}");
            assert_eq!(interfaces[0]["name"], "net1");
            assert_eq!(interfaces[0]["mtu"], pod.link("net1").mtu);
            let bond = pod.link("net1");
            assert_eq!((bond.kind.as_deref(), bond.carrier), (Some("bond"), true));
            for port in ["net1p0", "net1p1"] {
                let link = pod.link(port);
                assert_eq!(
                    (link.kind.as_deref(), link.master),
                    (Some("ipoib"), Some(bond.index))
                );
                assert_eq!(
                    (link.group, &link.alias, link.mtu),
                    (bond.group, &bond.alias, bond.mtu)
                );
                assert!(pod.addresses(port).is_empty(), "{port} has an address");
            }
            assert_eq!(pod.global("net1").len(), 1);
            pod.check(&conf, "net1").done();
            node.status(&conf).done();
            pod.detach(&conf, "net1");
            assert_same(&before, &node.traces(&[&pod]), "after DEL");
        });
    });
}

/// Pulls the cable of the first pod's active port and plugs it in again. The other pod reaches the first one in both states.
fn unplug_and_replug(node: &Node, pods: &[Pod<'_>; 2], conf: &Conf, target: &str) {
    let hca = active_hca(node, &pods[0]);
    cable(hca, false);
    reaches(&pods[1], target);
    for pod in pods {
        assert_ne!(active_hca(node, pod), hca, "{} did not fail over", pod.id);
        pod.check(conf, "net1").done();
    }
    cable(hca, true);
    reaches(&pods[1], target);
    for pod in pods {
        wait_for_ports(pod);
        pod.check(conf, "net1").done();
    }
}

/// The interval in milliseconds at which the kernel looks at the ports of the pod's bond.
fn miimon(pod: &Pod<'_>) -> Value {
    let output = pod.exec("ip", "-detail -json link show net1");
    let links: Value = serde_json::from_slice(&output.stdout).unwrap();
    links[0]["linkinfo"]["info_data"]["miimon"].clone()
}

#[test]
fn a_bond_repeatedly_fails_over_to_its_other_port() {
    run(|node| {
        bonded(node, || {
            let pods = [node.pod(), node.pod()];
            let conf = on_bond(node, &json!({}));
            let target = address(&pods[0].attach(&conf, "net1"), false);
            pods[1].attach(&conf, "net1");
            reaches(&pods[1], &target);
            pods.iter().for_each(wait_for_ports);
            let addresses = pods[0].addresses("net1").into_iter();
            let local = addresses.into_iter().find(|a| a.scope == 253).unwrap();
            assert!(
                !local.dad_failed,
                "pods of one bond have different link-local addresses"
            );
            for pod in &pods {
                assert_eq!(miimon(pod), 100);
            }
            for _ in 0..2 {
                unplug_and_replug(node, &pods, &conf, &target);
            }
            for pod in &pods {
                pod.detach(&conf, "net1");
                assert!(pod.links().is_empty());
            }
        });
    });
}

#[test]
fn a_pod_on_a_plain_port_follows_the_failover_of_a_bonded_pod() {
    run(|node| {
        bonded(node, || {
            let pods = [node.pod(), node.pod()];
            let conf = on_bond(node, &json!({}));
            let plain = network(node, &json!({"master": "ib2"}));
            let target = address(&pods[0].attach(&conf, "net1"), false);
            pods[1].attach(&plain, "net1");
            reaches(&pods[1], &target);
            wait_for_ports(&pods[0]);
            let hca = active_hca(node, &pods[0]);
            cable(hca, false);
            reaches(&pods[1], &target);
            assert_ne!(active_hca(node, &pods[0]), hca);
            cable(hca, true);
            pods[0].detach(&conf, "net1");
            pods[1].detach(&plain, "net1");
        });
    });
}

#[test]
fn a_bond_port_that_was_down_at_add_carries_traffic_after_it_returns() {
    run(|node| {
        bonded(node, || {
            cable(0, false);
            let pods = [node.pod(), node.pod()];
            let conf = on_bond(node, &json!({}));
            node.status(&conf).done();
            let target = address(&pods[0].attach(&conf, "net1"), false);
            pods[1].attach(&conf, "net1");
            pods[0].check(&conf, "net1").done();
            reaches(&pods[1], &target);
            cable(0, true);
            pods.iter().for_each(wait_for_ports);
            cable(1, false);
            reaches(&pods[1], &target);
            cable(1, true);
            for pod in &pods {
                pod.detach(&conf, "net1");
            }
        });
    });
}

#[test]
fn a_bond_without_an_active_port_is_refused_and_each_port_is_named() {
    run(|node| {
        bonded(node, || {
            let pod = node.pod();
            let living = node.pod();
            let before = node.traces(&[&pod]);
            let conf = on_bond(node, &json!({}));
            living.attach(&conf, "net1");
            let with_living = node.traces(&[&pod]);
            cable(0, false);
            cable(1, false);
            let pieces = [
                "bond0 carries nothing",
                "ib0 on softib0 port 1 is",
                "ib1 on softib1 port 1 is",
            ];
            pod.add(&conf, "net1").refused(102, &pieces);
            node.status(&conf).refused(51, &pieces);
            living.check(&conf, "net1").refused(102, &pieces);
            assert_same(&with_living, &node.traces(&[&pod]), "after the refusal");
            cable(0, true);
            cable(1, true);
            living.detach(&conf, "net1");
            assert_same(&before, &node.traces(&[&pod]), "after DEL");
        });
    });
}

#[test]
fn bond_children_are_in_the_requested_partition() {
    run(|node| {
        bonded(node, || {
            let pods = [node.pod(), node.pod()];
            let conf = on_bond(node, &json!({"pkey": "0x8001"}));
            let plain = network(node, &json!({"master": "ib2", "pkey": "0x8001"}));
            let target = address(&pods[0].attach(&conf, "net1"), false);
            pods[1].attach(&plain, "net1");
            reaches(&pods[1], &target);
            pods[0].check(&conf, "net1").done();
            pods[0].check(&on_bond(node, &json!({})), "net1").refused(
                104,
                &["its port net1p0 (on ib0): its P_Key is 0x8001, want 0xffff"],
            );
            pods[0].detach(&conf, "net1");
            pods[1].detach(&plain, "net1");
        });
    });
}

#[test]
fn a_bond_uses_the_requested_mtu_or_that_of_its_partition() {
    run_with("group_mtu=2048", |node| {
        bonded(node, || {
            for (keys, mtu) in [(json!({}), 2044), (json!({"mtu": 1400}), 1400)] {
                let pod = node.pod();
                let conf = on_bond(node, &keys);
                let result = pod.attach(&conf, "net1");
                assert_eq!(result["interfaces"][0]["mtu"], mtu);
                wait_for_ports(&pod);
                for link in pod.links() {
                    assert_eq!(link.mtu, mtu, "{}", link.name);
                }
                pod.check(&conf, "net1").done();
                pod.detach(&conf, "net1");
            }
            let pod = node.pod();
            let before = node.traces(&[&pod]);
            let conf = on_bond(node, &json!({"mtu": 4092}));
            pod.add(&conf, "net1")
                .refused(7, &["net1 has MTU 2044, not 4092"]);
            assert_same(&before, &node.traces(&[&pod]), "after the refusal");
        });
    });
}

#[test]
fn bond_active_uses_the_active_port_and_check_reports_its_failure() {
    run(|node| {
        bonded(node, || {
            let pod = node.pod();
            let conf = on_bond(node, &json!({"bond": "active"}));
            pod.attach(&conf, "net1");
            assert_eq!(pod.link_names(), ["net1"]);
            assert_eq!(pod.link("net1").kind.as_deref(), Some("ipoib"));
            pod.check(&conf, "net1").done();
            cable(0, false);
            soon("CHECK reports it", || !pod.check(&conf, "net1").status.success());
            pod.check(&conf, "net1")
                .refused(102, &["ib0 carries nothing", "softib0 port 1 is"]);
            soon("the next pod is on the other port", || {
                node.status(&conf).status.success()
            });
            let next = node.pod();
            next.attach(&conf, "net1");
            next.check(&conf, "net1").done();
            cable(0, true);
            for pod in [&pod, &next] {
                soon("the child has carrier", || pod.link("net1").carrier);
                pod.check(&conf, "net1").done();
                pod.detach(&conf, "net1");
            }
        });
    });
}

#[test]
fn bond_refuse_names_the_ports() {
    run(|node| {
        bonded(node, || {
            let pod = node.pod();
            let conf = on_bond(node, &json!({"bond": "refuse"}));
            let pieces = ["bond0 is a bond", "name one of its ports: ib0, ib1"];
            pod.add(&conf, "net1").refused(7, &pieces);
            node.status(&conf).refused(50, &pieces);
        });
    });
}

#[test]
fn check_reports_a_port_that_is_gone_or_left_the_bond() {
    run(|node| {
        bonded(node, || {
            let pod = node.pod();
            let conf = on_bond(node, &json!({}));
            pod.attach(&conf, "net1");
            pod.ip("link set net1p1 nomaster");
            pod.check(&conf, "net1")
                .refused(104, &["its port net1p1 (on ib1) is not in it any more"]);
            pod.ip("link del net1p1");
            pod.check(&conf, "net1")
                .refused(104, &["its port on ib1 is gone"]);
            pod.detach(&conf, "net1");
            assert!(pod.links().is_empty());
        });
    });
}

#[test]
fn pods_keep_their_bond_when_the_bond_of_the_node_is_recreated() {
    run(|node| {
        let pod = node.pod();
        let conf = on_bond(node, &json!({}));
        bonded(node, || {
            pod.attach(&conf, "net1");
            node.ip("link del bond0");
            node.status(&conf)
                .refused(50, &["bond0", "does not exist on this node"]);
            // A bond without ports has no children.
            node.ip("link add bond0 type bond mode active-backup fail_over_mac active miimon 100");
            node.ip("link set bond0 up");
            assert!(!node.status(&conf).status.success());
            for port in ["ib1", "ib0"] {
                node.ip(&format!("link set {port} down"));
                node.ip(&format!("link set {port} master bond0"));
            }
            soon("bond0 has carrier", || node.link("bond0").carrier);
            soon("the pod is unchanged", || {
                pod.check(&conf, "net1").status.success()
            });
        });
        pod.detach(&conf, "net1");
        assert!(pod.links().is_empty());
    });
}

#[test]
fn a_port_name_may_exist_on_the_node_but_not_in_the_pod() {
    run(|node| {
        bonded(node, || {
            node.ip("link add net1p0 type dummy");
            let pod = node.pod();
            let conf = on_bond(node, &json!({}));
            pod.attach(&conf, "net1");
            assert_eq!(pod.link_names(), ["net1", "net1p0", "net1p1"]);
            pod.detach(&conf, "net1");
            pod.ip("link add net1p1 type dummy");
            pod.add(&conf, "net1").refused(101, &["net1p1"]);
            pod.ip("link del net1p1");
            let long = "fifteen-bytes-x";
            pod.attach(&conf, long);
            let names = pod.link_names();
            assert_eq!((names.len(), names[0].as_str()), (3, long));
            assert!(
                names[1].starts_with("rb") && names[1].ends_with("p0"),
                "{names:?}"
            );
            pod.check(&conf, long).done();
            pod.detach(&conf, long);
            node.ip("link del net1p0");
        });
    });
}
