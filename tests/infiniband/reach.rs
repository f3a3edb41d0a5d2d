// SPDX-License-Identifier: Apache-2.0
//! The main job: pods reach each other over InfiniBand, and DEL leaves nothing.

use crate::fabric::{address, groups, network, reaches, run, soon};
use common::netlink::Address;
use std::net::IpAddr;
use tests::{Conf, Node, Pod, json, traces::assert_same};

fn dual_stack(node: &Node, master: &str) -> Conf {
    let ipam = node.dual_stack_ipam();
    network(node, &json!({"master": master, "ipam": ipam}))
}

fn link_local(pod: &Pod<'_>) -> String {
    let of_link = |pod: &Pod<'_>| pod.addresses("net1").into_iter().find(|a| a.scope == 253);
    soon("a link-local address without a duplicate", || {
        of_link(pod).is_some_and(|address| !address.tentative)
    });
    let found = of_link(pod).unwrap();
    assert!(
        !found.dad_failed,
        "{} has the link-local address of another: {found:?}",
        pod.id
    );
    found.address.ip().to_string()
}

/// Attaches one pod to each master and asserts that the first reaches every address of the second.
fn two_pods(node: &Node, masters: [&str; 2]) {
    let pods = [node.pod(), node.pod()];
    let before = node.traces(&[&pods[0], &pods[1]]);
    let confs = masters.map(|master| dual_stack(node, master));
    let results = [
        pods[0].attach(&confs[0], "net1"),
        pods[1].attach(&confs[1], "net1"),
    ];
    reaches(&pods[0], &address(&results[1], false));
    reaches(&pods[0], &address(&results[1], true));
    let locals = [link_local(&pods[0]), link_local(&pods[1])];
    assert_ne!(locals[0], locals[1], "children of one port must differ");
    reaches(&pods[0], &format!("{}%net1", locals[1]));
    for (pod, conf) in pods.iter().zip(&confs) {
        pod.check(conf, "net1").done();
        pod.detach(conf, "net1");
    }
    assert_same(&before, &node.traces(&[&pods[0], &pods[1]]), "after DEL");
}

#[test]
fn two_pods_on_one_hca_reach_each_other_over_ipv4_ipv6_and_link_local_addresses() {
    run(|node| two_pods(node, ["ib0", "ib0"]));
}

#[test]
fn two_pods_on_two_hcas_reach_each_other_over_ipv4_ipv6_and_link_local_addresses() {
    run(|node| two_pods(node, ["ib0", "ib1"]));
}

#[test]
fn the_result_contains_the_address_mtu_and_netns_of_the_child() {
    run(|node| {
        let pod = node.pod();
        let conf = network(node, &json!({}));
        let result = pod.attach(&conf, "net1");
        let link = pod.link("net1");
        assert_eq!(link.address.len(), 20);
        let interface = &result["interfaces"][0];
        assert_eq!(interface["name"], "net1");
        assert_eq!(interface["mac"], link.address.to_string());
        assert_eq!(interface["mtu"], link.mtu);
        assert_eq!(interface["sandbox"], pod.netns.display().to_string());
        assert_eq!(result["ips"][0]["interface"], 0);
        pod.detach(&conf, "net1");
    });
}

/// The end of the solicited-node group of an IPv6 address, as the list of groups has it.
fn solicited_node(address: &Address) -> Option<String> {
    let IpAddr::V6(address) = address.address.ip() else {
        return None;
    };
    let [.., high, low] = address.segments();
    Some(format!(":0001:ff{:02x}:{low:04x} ", high & 0xff))
}

#[test]
fn after_del_no_port_is_a_member_of_the_pods_multicast_groups() {
    run(|node| {
        let pod = node.pod();
        let conf = dual_stack(node, "ib2");
        pod.attach(&conf, "net1");
        // The ports of the node join groups of their own, at any time.
        let pods: Vec<String> = pod.addresses("net1").iter().filter_map(solicited_node).collect();
        assert_eq!(pods.len(), 2, "one of the range, one link-local");
        let members = || {
            let groups = groups().into_iter();
            let of_pod = groups.filter(|group| pods.iter().any(|end| group.contains(end)));
            of_pod.filter(|group| group.contains("softib2:")).count()
        };
        soon("the pod's groups are joined", || members() == pods.len());
        pod.detach(&conf, "net1");
        soon("the pod's groups are left", || members() == 0);
    });
}

#[test]
fn eight_pods_attach_at_once_and_no_two_share_an_address() {
    run(|node| {
        let pods: Vec<_> = (0..8).map(|_| node.pod()).collect();
        let conf = dual_stack(node, "ib0");
        std::thread::scope(|scope| {
            for pod in &pods {
                scope.spawn(|| pod.attach(&conf, "net1"));
            }
        });
        let mut all: Vec<_> = pods
            .iter()
            .flat_map(|pod| {
                let mut of_pod = pod.global("net1");
                of_pod.push(link_local(pod));
                of_pod
            })
            .collect();
        assert_eq!(all.len(), 24);
        all.sort();
        all.dedup();
        assert_eq!(all.len(), 24, "some addresses are the same: {all:?}");
        std::thread::scope(|scope| {
            for pod in &pods {
                scope.spawn(|| pod.detach(&conf, "net1"));
            }
        });
        assert!(pods.iter().all(|pod| pod.links().is_empty()));
    });
}
