// SPDX-License-Identifier: Apache-2.0
//! A port without a cable: ADD refuses it, STATUS reports it, and existing pods survive it.

use crate::fabric::{address, cable, network, pings, reaches, run, soon};
use tests::{json, traces::assert_same};

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
fn a_pod_survives_a_pulled_cable_and_can_be_detached_without_it() {
    run(|node| {
        let pods = [node.pod(), node.pod()];
        let confs = ["ib1", "ib2"].map(|master| network(node, &json!({"master": master})));
        let target = address(&pods[0].attach(&confs[0], "net1"), false);
        pods[1].attach(&confs[1], "net1");
        reaches(&pods[1], &target);
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
