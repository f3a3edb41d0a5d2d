// SPDX-License-Identifier: Apache-2.0
//! A port without a cable or a subnet manager: ADD refuses it, STATUS reports it, and existing pods survive it. A subnet
//! manager that answers late: ADD waits for it, or fails with the cause.

use crate::choice::{any, intent, port_of};
use crate::fabric::{
    address, cable, groups, network, pings, reaches, run, sa_delay, soon, without_subnet_manager,
};
use tests::{Conf, Node, Pod, json, traces::assert_same};

/// A network in a partition in which the ports of the node have no link. The first child of a port in this partition joins
/// the broadcast group of the partition. A child in the partition of its parent gets carrier without a join, because the
/// port is a member already (`mcast_work_handler` of `drivers/infiniband/core/multicast.c`).
fn in_partition(node: &Node, master: &str) -> Conf {
    network(node, &json!({"master": master, "pkey": "0x8001"}))
}

/// Whether the port of `ib1` is a member of a group in that partition.
fn is_member() -> bool {
    let of_port = |group: &String| group.contains("pkey 0x8001") && group.contains("softib1:full");
    groups().iter().any(of_port)
}

fn whole_link(node: &Node, master: &str) -> Conf {
    let keys = json!({"master": master, "mode": "device", "hostAddresses": "restore"});
    network(node, &keys)
}

/// Two pods on `ib1` and `ib2`, and their networks. The second pod reaches the address, which is that of the first one.
fn attached_pods(node: &Node) -> ([Pod<'_>; 2], [Conf; 2], String) {
    let pods = [node.pod(), node.pod()];
    let confs = ["ib1", "ib2"].map(|master| network(node, &json!({"master": master})));
    let target = address(&pods[0].attach(&confs[0], "net1"), false);
    pods[1].attach(&confs[1], "net1");
    reaches(&pods[1], &target);
    (pods, confs, target)
}

/// Asserts that ADD fails because the join of `net1` has no response, and that neither ADD nor DEL leaves anything.
fn join_fails(node: &Node, pod: &Pod<'_>, conf: &Conf, cause: &str) {
    let before = node.traces(&[pod]);
    sa_delay(20_000);
    let pieces = [
        "net1 has no carrier after 10s",
        cause,
        "the subnet manager did not answer in time",
    ];
    pod.add(conf, "net1").refused(102, &pieces);
    assert_same(&before, &node.traces(&[pod]), "after the failed ADD");
    pod.detach(conf, "net1");
    assert_same(&before, &node.traces(&[pod]), "after DEL");
}

#[test]
fn a_port_that_is_down_is_refused_by_add_and_reported_by_status() {
    run(|node| {
        let pod = node.pod();
        let before = node.traces(&[&pod]);
        let conf = network(node, &json!({"master": "ib2"}));
        node.status(&conf).done();
        cable(2, false);
        let pieces = ["ib2 carries nothing", "softib2 port 1 is", "cable"];
        pod.add(&conf, "net1").refused(102, &pieces);
        node.status(&conf).refused(51, &pieces);
        assert_same(&before, &node.traces(&[&pod]), "after the refusal");
        cable(2, true);
        node.status(&conf).done();
        pod.attach(&conf, "net1");
        pod.detach(&conf, "net1");
    });
}

#[test]
fn a_port_without_a_subnet_manager_is_refused_by_add_and_reported_by_status() {
    run(|node| {
        let (pod, peer) = (node.pod(), node.pod());
        let before = node.traces(&[&pod]);
        let child = network(node, &json!({"master": "ib2"}));
        let whole = whole_link(node, "ib2");
        without_subnet_manager(2);
        soon("ib2 has no carrier", || !node.link("ib2").carrier);
        let pieces = [
            "ib2 carries nothing: softib2 port 1 is initializing (LinkUp)",
            "no subnet manager has configured it; start one that reaches this port",
        ];
        for conf in [&child, &whole] {
            pod.add(conf, "net1").refused(102, &pieces);
            node.status(conf).refused(51, &pieces);
            assert_same(&before, &node.traces(&[&pod]), "after the refusal");
        }
        cable(2, true);
        node.status(&child).done();
        let other = network(node, &json!({"master": "ib1"}));
        let target = address(&peer.attach(&other, "net1"), false);
        pod.attach(&child, "net1");
        reaches(&pod, &target);
        pod.detach(&child, "net1");
        peer.detach(&other, "net1");
    });
}

#[test]
fn a_described_master_skips_a_port_without_a_subnet_manager_and_names_it() {
    run(|node| {
        let (pod, conf) = (node.pod(), any(node));
        without_subnet_manager(0);
        pod.attach(&conf, "net1");
        assert_eq!(port_of(node, &pod), "ib1");
        let why = intent(node, &pod)["why"].to_string();
        let skipped = "ib0 (InfiniBand, softib0/1) carries nothing: softib0 port 1 is initializing (LinkUp), because no subnet manager has configured it";
        assert!(why.contains(skipped), "{why}");
        pod.detach(&conf, "net1");

        let before = node.traces(&[&pod]);
        without_subnet_manager(1);
        without_subnet_manager(2);
        let every = [
            "no link of this node fits master",
            skipped,
            "softib1 port 1 is initializing",
            "softib2 port 1 is initializing",
        ];
        pod.add(&conf, "net1").refused(102, &every);
        node.status(&conf).refused(51, &every);
        assert_same(&before, &node.traces(&[&pod]), "after the refusal");
        for hca in 0..3 {
            cable(hca, true);
        }
        pod.attach(&conf, "net1");
        assert_eq!(port_of(node, &pod), "ib0");
        pod.detach(&conf, "net1");
    });
}

#[test]
fn a_pod_survives_the_absence_of_the_subnet_manager() {
    run(|node| {
        let (pods, confs, target) = attached_pods(node);
        without_subnet_manager(2);
        soon("the child has no carrier", || !pods[1].link("net1").carrier);
        cable(2, true);
        soon("the child has carrier", || pods[1].link("net1").carrier);
        reaches(&pods[1], &target);
        for (pod, conf) in pods.iter().zip(&confs) {
            pod.check(conf, "net1").done();
            pod.detach(conf, "net1");
        }
    });
}

/// The kernel waits three seconds for each response.
#[test]
fn add_waits_for_a_subnet_manager_that_answers_after_a_second() {
    run(|node| {
        let (pod, conf) = (node.pod(), in_partition(node, "ib1"));
        soon("the port has left the partition's groups", || !is_member());
        sa_delay(1000);
        pod.attach(&conf, "net1");
        assert!(pod.link("net1").carrier, "ADD ended before the answer");
        assert!(is_member(), "{:?}", groups());
        sa_delay(0);
        pod.check(&conf, "net1").done();
        pod.detach(&conf, "net1");
    });
}

/// As after a power cut, when the subnet manager has the joins of all nodes to answer.
#[test]
fn an_unanswered_join_fails_with_the_cause_leaves_nothing_and_succeeds_later() {
    run(|node| {
        let (pod, other) = (node.pod(), node.pod());
        let conf = in_partition(node, "ib1");
        let joined = network(node, &json!({"master": "ib1"}));
        soon("the port has left the partition's groups", || !is_member());
        let cause = "it has not joined the broadcast group of partition 0x8001 through ib1";
        join_fails(node, &pod, &conf, cause);
        // The port has joined the group of its parent's partition, so this child needs no answer.
        other.attach(&joined, "net1");
        sa_delay(0);
        pod.attach(&conf, "net1");
        pod.check(&conf, "net1").done();
        pod.detach(&conf, "net1");
        other.detach(&joined, "net1");
    });
}

/// A link that moves leaves its group, and joins it again in the pod.
#[test]
fn a_whole_link_whose_join_is_unanswered_returns_to_the_host() {
    run(|node| {
        let (pod, conf) = (node.pod(), whole_link(node, "ib1"));
        join_fails(
            node,
            &pod,
            &conf,
            "it has not joined the broadcast group of its partition",
        );
        sa_delay(0);
        pod.attach(&conf, "net1");
        pod.check(&conf, "net1").done();
        pod.detach(&conf, "net1");
        soon("ib1 has carrier", || node.link("ib1").carrier);
    });
}

#[test]
fn a_pod_survives_a_pulled_cable_and_can_be_detached_without_it() {
    run(|node| {
        let (pods, confs, target) = attached_pods(node);
        cable(2, false);
        soon("the child has no carrier", || !pods[1].link("net1").carrier);
        assert!(!pings(&pods[1], &target));
        cable(2, true);
        reaches(&pods[1], &target);
        cable(2, false);
        for (pod, conf) in pods.iter().zip(&confs) {
            pod.detach(conf, "net1");
            assert!(pod.links().is_empty());
        }
        cable(2, true);
    });
}

#[test]
fn a_pod_keeps_its_ipv6_address_and_loses_its_route_while_its_parent_is_down() {
    run(|node| {
        let pod = node.pod();
        let (address, route) = ("fd00:7::5/64", "fd00:8::/64");
        let result = json!({
            "ips": [{"address": address, "gateway": "fd00:7::1"}],
            "routes": [{"dst": route}],
        });
        let conf = network(node, &json!({"ipam": node.scripted_ipam(&result)}));
        pod.attach(&conf, "net1");
        pod.route("net1", route);
        node.ip("link set ib0 down");
        soon("the child is down", || !pod.link("net1").up);
        node.ip("link set ib0 up");
        soon("ib0 has carrier", || node.link("ib0").carrier);
        soon("the child has carrier", || pod.link("net1").carrier);
        assert_eq!(pod.global("net1"), [address]);
        let routes = pod.routes("net1");
        assert!(
            routes.iter().all(|left| left.dst.to_string() != route),
            "docs/operate.md says that the route is gone: {routes:#?}"
        );
        pod.detach(&conf, "net1");
    });
}
