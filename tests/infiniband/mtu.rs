// SPDX-License-Identifier: Apache-2.0
//! The MTU: the limits of the partition's group and of connected mode, and the MTU in the result.

use crate::fabric::{address, network, queue_pairs, reaches, run, run_accelerated, run_with, soon};
use common::netlink::{IpoibMode, LinkInfo};
use tests::json;

#[test]
fn without_an_mtu_the_child_and_the_result_have_the_mtu_of_the_port() {
    run(|node| {
        let pod = node.pod();
        let conf = network(node, &json!({}));
        let result = pod.attach(&conf, "net1");
        assert_eq!(
            (pod.link("net1").mtu, &result["interfaces"][0]["mtu"]),
            (4092, &json!(4092))
        );
        pod.detach(&conf, "net1");
    });
}

#[test]
fn a_lower_mtu_stays_after_the_multicast_join_and_check_detects_a_change() {
    run(|node| {
        let pod = node.pod();
        let conf = network(node, &json!({"mtu": 2044}));
        let result = pod.attach(&conf, "net1");
        assert_eq!(
            (pod.link("net1").mtu, &result["interfaces"][0]["mtu"]),
            (2044, &json!(2044))
        );
        pod.check(&conf, "net1").done();
        pod.ip("link set net1 mtu 1500");
        pod.check(&conf, "net1").refused(104, &["MTU is 1500, was 2044"]);
        pod.detach(&conf, "net1");
    });
}

/// Below 1280 bytes a link has no IPv6.
#[test]
fn an_mtu_that_is_too_small_for_ipv6_serves_ipv4_and_refuses_an_ipv6_address() {
    run(|node| {
        let conf = network(node, &json!({"mtu": 1000}));
        let pods = [node.pod(), node.pod()];
        let target = address(&pods[0].attach(&conf, "net1"), false);
        pods[1].attach(&conf, "net1");
        reaches(&pods[1], &target);
        for pod in &pods {
            assert_eq!(pod.link("net1").mtu, 1000);
            pod.check(&conf, "net1").done();
            pod.detach(&conf, "net1");
        }
        let ipv6 = network(node, &json!({"mtu": 1000})).with("ipam", node.rdma_ipam("fd00:7::/64"));
        pods[0].add(&ipv6, "net1").refused(5, &["IPv6", "1280 bytes"]);
        assert!(pods[0].links().is_empty() && node.leases().is_empty());
    });
}

#[test]
fn an_mtu_above_the_limit_of_the_mode_is_refused_with_that_limit() {
    run_accelerated("", |node| {
        let pod = node.pod();
        for (keys, max) in [
            (json!({"mtu": 4093}), "datagram mode: 4092"),
            (
                json!({"mtu": 65521, "ipoibMode": "connected"}),
                "connected mode: 65520",
            ),
        ] {
            pod.add(&network(node, &keys), "net1")
                .refused(7, &["mtu", "ib0", max]);
        }
        assert!(pod.links().is_empty() && node.leases().is_empty());
    });
}

#[test]
fn connected_mode_carries_60000_bytes_in_one_packet() {
    run_accelerated("", |node| {
        let pods = [node.pod(), node.pod()];
        let keys = |master| json!({"ipoibMode": "connected", "mtu": 65520, "master": master});
        let confs = ["ib0", "ib1"].map(|master| network(node, &keys(master)));
        pods[0].attach(&confs[0], "net1");
        let result = pods[1].attach(&confs[1], "net1");
        let link = pods[1].link("net1");
        assert_eq!(link.mtu, 65520);
        assert!(matches!(
            link.info,
            LinkInfo::Ipoib {
                mode: IpoibMode::Connected,
                ..
            }
        ));
        let unconnected = queue_pairs();
        reaches(&pods[0], &format!("-M do -s 60000 {}", address(&result, false)));
        // ipoib leaks a queue and warns if a link is deleted before its connections have ended.
        for pod in &pods {
            pod.ip("link set net1 down");
        }
        soon("the connections end", || queue_pairs() <= unconnected);
        for (pod, conf) in pods.iter().zip(&confs) {
            pod.detach(conf, "net1");
        }
    });
}

#[test]
fn a_multicast_group_with_a_small_mtu_lowers_the_mtu_of_child_and_result() {
    run_with("group_mtu=2048", |node| {
        let pod = node.pod();
        let conf = network(node, &json!({}));
        let result = pod.attach(&conf, "net1");
        assert_eq!(
            (pod.link("net1").mtu, &result["interfaces"][0]["mtu"]),
            (2044, &json!(2044))
        );
        pod.check(&conf, "net1").done();
        pod.detach(&conf, "net1");
    });
}

#[test]
fn an_mtu_above_that_of_the_multicast_group_is_refused_without_a_trace() {
    run_with("group_mtu=2048", |node| {
        let pod = node.pod();
        let before = node.traces(&[&pod]);
        pod.add(&network(node, &json!({"mtu": 4000})), "net1").refused(
            7,
            &["net1 has MTU 2044, not 4000", "multicast group", "subnet manager"],
        );
        tests::traces::assert_same(&before, &node.traces(&[&pod]), "after the refusal");
    });
}
