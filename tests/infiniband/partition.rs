// SPDX-License-Identifier: Apache-2.0
//! Partition keys: they select the partition of a pod, and partitions isolate pods.

use crate::fabric::{address, network, pings, reaches, run};
use common::netlink::LinkInfo;
use common::rdma::Pkey;
use tests::{Pod, json};

fn pkey(pod: &Pod<'_>) -> Pkey {
    match pod.link("net1").info {
        LinkInfo::Ipoib { pkey, .. } => pkey,
        other => panic!("net1 is no IPoIB link but {other:?}"),
    }
}

#[test]
fn without_a_pkey_the_child_is_in_its_parents_partition() {
    run(|node| {
        let pod = node.pod();
        let conf = network(node, &json!({}));
        pod.attach(&conf, "net1");
        assert_eq!(pkey(&pod), Pkey(0xffff));
        assert_eq!(pod.link("net1").broadcast.as_bytes()[8..10], [0xff, 0xff]);
        pod.detach(&conf, "net1");
    });
}

#[test]
fn pods_reach_only_pods_of_their_own_partition() {
    run(|node| {
        let pods = [node.pod(), node.pod(), node.pod(), node.pod()];
        // A text and a number name the same partition.
        let confs = [
            json!({"pkey": "0x8001"}),
            json!({"pkey": 0x8001, "master": "ib1"}),
            json!({}),
            json!({"master": "ib1"}),
        ]
        .map(|keys| network(node, &keys));
        let results: Vec<_> = pods
            .iter()
            .zip(&confs)
            .map(|(pod, conf)| pod.attach(conf, "net1"))
            .collect();
        assert_eq!(
            pods.each_ref().map(pkey),
            [Pkey(0x8001), Pkey(0x8001), Pkey(0xffff), Pkey(0xffff)]
        );
        reaches(&pods[0], &address(&results[1], false));
        reaches(&pods[2], &address(&results[3], false));
        assert!(
            !pings(&pods[0], &address(&results[2], false)),
            "0x8001 reaches 0xffff"
        );
        assert!(
            !pings(&pods[2], &address(&results[0], false)),
            "0xffff reaches 0x8001"
        );
        for (pod, conf) in pods.iter().zip(&confs) {
            pod.check(conf, "net1").done();
            pod.detach(conf, "net1");
        }
    });
}

#[test]
fn a_pkey_that_the_port_lacks_is_refused_with_the_pkey_table_of_the_port() {
    run(|node| {
        let pod = node.pod();
        let before = node.traces(&[&pod]);
        let conf = network(node, &json!({"pkey": "0x8002"}));
        pod.add(&conf, "net1").refused(
            7,
            &[
                "pkey 0x8002",
                "softib0 port 1",
                "0xffff, 0x8001",
                "subnet manager",
            ],
        );
        node.status(&conf).refused(50, &["pkey 0x8002", "softib0 port 1"]);
        tests::traces::assert_same(&before, &node.traces(&[&pod]), "after the refusal");
    });
}

#[test]
fn a_child_of_a_child_is_created_on_the_root_port() {
    run(|node| {
        node.ip("link add link ib0 name ib0.8001 type ipoib pkey 0x8001");
        node.ip("link set ib0.8001 up");
        let pod = node.pod();
        let conf = network(node, &json!({"master": "ib0.8001"}));
        pod.attach(&conf, "net1");
        assert_eq!(pkey(&pod), Pkey(0x8001), "the partition is the named master's");
        pod.check(&conf, "net1").done();
        // The child's parent is ib0, so the link between them can be deleted.
        node.ip("link del ib0.8001");
        assert_eq!(pod.link_names(), ["net1"]);
        pod.detach(&conf, "net1");
        assert!(pod.links().is_empty());
    });
}

#[test]
fn check_finds_a_child_of_another_partition() {
    run(|node| {
        let pod = node.pod();
        let conf = network(node, &json!({}));
        pod.attach(&conf, "net1");
        let other = conf.clone().with("pkey", "0x8001");
        pod.check(&other, "net1")
            .refused(104, &["P_Key is 0xffff, want 0x8001"]);
        pod.detach(&conf, "net1");
    });
}
