// SPDX-License-Identifier: Apache-2.0
//! HCAs whose driver has its own data path for `IPoIB`, as mlx5 has (`tests/fabric/README.md`): what differs there.
//!
//! The other modules hold on both kinds of HCA. If a child uses the wrong link as its parent, the kernel logs a `BUG:`,
//! which fails the run.

use crate::fabric::{address, network, pings, reaches, run_accelerated, run_with, soon};
use tests::{json, traces::assert_same};

#[test]
fn a_pod_link_with_the_index_of_the_parent_is_not_mistaken_for_the_parent() {
    run_accelerated("all", |node| {
        let parent = node.link("ib0").index;
        let pods = [node.pod(), node.pod()];
        pods[0].ip(&format!("link add other index {parent} type dummy"));
        let conf = network(node, &json!({}));
        pods[0].attach(&conf, "net1");
        let result = pods[1].attach(&conf, "net1");
        assert_eq!(pods[0].link("net1").parent, Some(parent));
        reaches(&pods[0], &address(&result, false));
        for pod in &pods {
            pod.check(&conf, "net1").done();
            pod.detach(&conf, "net1");
        }
        assert_eq!(pods[0].link_names(), ["other"]);
    });
}

#[test]
fn pods_on_an_accelerated_and_on_a_plain_hca_reach_each_other() {
    run_accelerated("0", |node| {
        for keys in [json!({}), json!({"pkey": "0x8001"})] {
            let pods = [node.pod(), node.pod()];
            let confs = ["ib0", "ib1"].map(|master| network(node, &keys).with("master", json!(master)));
            let results = [
                pods[0].attach(&confs[0], "net1"),
                pods[1].attach(&confs[1], "net1"),
            ];
            reaches(&pods[0], &address(&results[1], false));
            reaches(&pods[1], &address(&results[0], false));
            for (pod, conf) in pods.iter().zip(&confs) {
                pod.check(conf, "net1").done();
                pod.detach(conf, "net1");
                assert!(pod.links().is_empty());
            }
        }
    });
}

/// A child has as many receive queues as the machine has processors, at most 128. The VM has fewer processors than 64.
#[test]
fn the_error_of_a_parent_with_too_many_receive_queues_names_the_remedy() {
    run_with("accelerated=0,1,2 rx_queues=64", |node| {
        let pod = node.pod();
        let conf = network(node, &json!({}));
        pod.add(&conf, "net1").refused(
            100,
            &["net1 on ib0", "receive queues", "`ethtool -L ib0 combined 128`"],
        );
        assert!(pod.link_names().is_empty());
        let output = node.exec("ethtool", "-L ib0 combined 1");
        assert!(output.status.success(), "{output:?}");
        pod.attach(&conf, "net1");
        pod.detach(&conf, "net1");
    });
}

#[test]
fn a_pod_is_reachable_again_after_its_parent_was_down() {
    run_accelerated("all", |node| {
        let pods = [node.pod(), node.pod()];
        let confs = ["ib0", "ib1"].map(|master| network(node, &json!({"master": master})));
        pods[0].attach(&confs[0], "net1");
        let target = address(&pods[1].attach(&confs[1], "net1"), false);
        reaches(&pods[0], &target);
        node.ip("link set ib1 down");
        assert!(!pings(&pods[0], &target), "receive goes through the parent");
        node.ip("link set ib1 up");
        soon("ib1 has carrier", || node.link("ib1").carrier);
        reaches(&pods[0], &target);
        for (pod, conf) in pods.iter().zip(&confs) {
            pod.detach(conf, "net1");
        }
    });
}

#[test]
fn connected_mode_is_refused_and_nothing_is_left() {
    run_accelerated("all", |node| {
        let pod = node.pod();
        let before = node.traces(&[&pod]);
        let conf = network(node, &json!({"ipoibMode": "connected"}));
        pod.add(&conf, "net1").refused(
            2,
            &[
                "ipoibMode connected",
                "ib0",
                "mlx5_core[ib_ipoib]",
                "set ipoibMode to datagram",
            ],
        );
        assert_same(&before, &node.traces(&[&pod]), "after the refusal");
    });
}
