// SPDX-License-Identifier: Apache-2.0
//! CHECK finds every change that a process other than the runtime made in the pod.

use tests::{Conf, Node, Pod, json};

/// Attaches a pod, lets `tamper` change it, and expects each of `findings` in CHECK's error.
fn found(tamper: impl FnOnce(&Node, &Pod<'_>) + Send, findings: &[&str]) {
    Node::run(|node| {
        let pod = node.pod();
        let conf = network(node);
        pod.attach(&conf, "net1");
        pod.check(&conf, "net1").done();
        tamper(node, &pod);
        pod.check(&conf, "net1")
            .refused(104, &[&["net1"], findings].concat());
    });
}

fn network(node: &Node) -> Conf {
    let mut ipam = node.dual_stack_ipam();
    ipam["routes"] = json!([{"dst": "10.8.0.0/16"}, {"dst": "10.9.0.0/16", "table": 1000}]);
    node.conf(json!({"ipam": ipam}))
}

#[test]
fn check_detects_a_changed_mtu() {
    found(
        |_, pod| drop(pod.ip("link set net1 mtu 1300")),
        &["MTU is 1300, was 1500"],
    );
}

#[test]
fn check_detects_a_changed_hardware_address() {
    found(
        |_, pod| drop(pod.ip("link set net1 address 02:00:00:00:00:77")),
        &["its address is 02:00:00:00:00:77"],
    );
}

#[test]
fn check_detects_a_missing_address_of_either_family() {
    for family in ["-4", "-6"] {
        found(
            |_, pod| {
                let addresses = pod.global("net1");
                let of_family = |a: &&String| a.contains(':') == (family == "-6");
                let address = addresses.iter().find(of_family).unwrap();
                pod.ip(&format!("addr del {address} dev net1"));
            },
            &["address ", " is gone"],
        );
    }
}

#[test]
fn check_detects_a_missing_route_in_any_table() {
    found(
        |_, pod| drop(pod.ip("route del 10.8.0.0/16 dev net1")),
        &["route to 10.8.0.0/16 is gone"],
    );
    found(
        |_, pod| drop(pod.ip("route del 10.9.0.0/16 dev net1 table 1000")),
        &["route to 10.9.0.0/16 is gone"],
    );
}

#[test]
fn check_reports_a_link_that_is_down_and_its_lost_routes() {
    found(
        |_, pod| drop(pod.ip("link set net1 down")),
        &["it is down", "route to 10.8.0.0/16 is gone"],
    );
}

#[test]
fn check_detects_a_missing_link() {
    found(|_, pod| drop(pod.ip("link del net1")), &["it is gone"]);
}

#[test]
fn check_detects_a_foreign_link_of_the_same_name() {
    found(
        |_, pod| {
            pod.ip("link del net1");
            pod.ip("link add net1 type veth peer name far");
        },
        &["another program made it"],
    );
}

#[test]
fn check_detects_a_changed_macvlan_mode() {
    found(
        |_, pod| drop(pod.ip("link set net1 type macvlan mode private")),
        &["macvlan mode is private, want bridge"],
    );
}

#[test]
fn check_reports_a_missing_lease_found_by_the_ipam_plugin() {
    found(
        |node, _| {
            // The lease's file name contains its owner; docs/store.md describes the store's layout.
            for lease in node.leases().iter().filter(|name| name.contains("/leases/")) {
                std::fs::remove_file(node.path("rdma-ipam").join(lease)).unwrap();
            }
        },
        &["rdma-ipam", "no lease"],
    );
}

#[test]
fn check_names_every_difference_in_one_error() {
    found(
        |_, pod| {
            pod.ip("link set net1 mtu 1300");
            pod.ip("route del 10.8.0.0/16 dev net1");
        },
        &["MTU is 1300", "10.8.0.0/16"],
    );
}

#[test]
fn check_without_the_result_of_add_is_refused() {
    Node::run(|node| {
        let pod = node.pod();
        let conf = network(node);
        pod.attach(&conf, "net1");
        pod.forget();
        pod.check(&conf, "net1").refused(7, &["prevResult", "net1"]);
    });
}

#[test]
fn check_reports_a_missing_netns_with_its_own_code() {
    Node::run(|node| {
        let pod = node.pod();
        let conf = network(node);
        pod.attach(&conf, "net1");
        pod.die();
        pod.check(&conf, "net1").refused(3, &["CNI_NETNS", "gone"]);
    });
}
