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
