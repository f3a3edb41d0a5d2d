// SPDX-License-Identifier: Apache-2.0
//! Invalid ranges and exhausted ranges, called through `cni-ipoib` as users call them.

use tests::{Node, Value, json, traces::assert_same};

/// Asserts that ADD with these ranges is refused with `code` and `pieces`, and leaves nothing.
fn refused(ranges: &Value, code: u64, pieces: &[&str]) {
    Node::run(|node| {
        let mut ipam = node.rdma_ipam("10.7.0.0/24");
        ipam["ranges"] = ranges.clone();
        let conf = node.conf(json!({"ipam": ipam}));
        let pod = node.pod();
        let before = node.traces(&[&pod]);
        pod.add(&conf, "net1")
            .refused(code, &[&["rdma-ipam"], pieces].concat());
        assert_same(&before, &node.traces(&[&pod]), "after a refused ADD");
    });
}

#[test]
fn an_empty_range_is_refused() {
    refused(&json!([]), 7, &["range"]);
    refused(&json!([[]]), 7, &["ipam.ranges[0]", "empty"]);
}

#[test]
fn an_inverted_range_is_refused_with_both_ends() {
    let ranges = json!([[{"subnet": "10.7.0.0/24", "rangeStart": "10.7.0.20", "rangeEnd": "10.7.0.10"}]]);
    refused(&ranges, 7, &["10.7.0.20", "10.7.0.10"]);
}

#[test]
fn a_fully_excluded_range_is_refused() {
    let ranges = json!([[{"subnet": "10.7.0.0/29", "exclude": ["10.7.0.0/29"]}]]);
    refused(
        &ranges,
        7,
        &["ipam.ranges[0][0]", "10.7.0.1-10.7.0.6", "exclude less"],
    );
}

#[test]
fn a_gateway_outside_its_subnet_is_refused() {
    let ranges = json!([[{"subnet": "10.7.0.0/24", "gateway": "10.8.0.1"}]]);
    refused(&ranges, 7, &["gateway", "10.8.0.1", "10.7.0.0/24"]);
}

#[test]
fn a_range_that_begins_outside_its_subnet_is_refused() {
    let ranges = json!([[{"subnet": "10.7.0.0/24", "rangeStart": "10.8.0.1"}]]);
    refused(&ranges, 7, &["range start 10.8.0.1", "10.7.0.0/24"]);
}

#[test]
fn an_unknown_key_of_a_range_is_refused_with_the_nearest_known_key() {
    let ranges = json!([[{"subnet": "10.7.0.0/24", "rangStart": "10.7.0.9"}]]);
    refused(&ranges, 7, &["rangStart", "rangeStart"]);
}

#[test]
fn an_exhausted_pool_is_reported_and_serves_again_after_a_release() {
    Node::run(|node| {
        let conf = node.conf(json!({"ipam": node.rdma_ipam("10.7.0.0/29")}));
        // The network, broadcast and gateway addresses are not allocated.
        let pods: Vec<_> = (0..5).map(|_| node.pod()).collect();
        for pod in &pods {
            pod.attach(&conf, "net1");
        }
        let late = node.pod();
        let before = node.traces(&[&late]);
        late.add(&conf, "net1")
            .refused(110, &["net-a", "10.7.0.1-10.7.0.6", "5 of 5 in use"]);
        assert_same(&before, &node.traces(&[&late]), "after a refused ADD");
        pods[2].detach(&conf, "net1");
        late.attach(&conf, "net1");
    });
}

#[test]
fn a_released_address_is_in_cooldown_while_another_is_free() {
    Node::run(|node| {
        let mut ipam = node.rdma_ipam("10.7.0.0/29");
        ipam["cooldown"] = json!(60);
        let conf = node.conf(json!({"ipam": ipam}));
        let pod = node.pod();
        let released = pod.attach(&conf, "net1")["ips"][0]["address"].clone();
        pod.detach(&conf, "net1");
        // Four other addresses are free; the allocation then starts at the beginning of the range.
        for _ in 0..4 {
            let other = node.pod();
            assert_ne!(other.attach(&conf, "net1")["ips"][0]["address"], released);
        }
    });
}

#[test]
fn excluded_addresses_are_never_allocated() {
    Node::run(|node| {
        let mut ipam = node.rdma_ipam("10.7.0.0/28");
        ipam["ranges"] = json!([[{
            "subnet": "10.7.0.0/28",
            "exclude": ["10.7.0.2/31", "10.7.0.5", "10.7.0.7-10.7.0.12"],
        }]]);
        let conf = node.conf(json!({"ipam": ipam}));
        let mut given = Vec::new();
        loop {
            let pod = node.pod();
            let answer = pod.add(&conf, "net1");
            if !answer.status.success() {
                answer.refused(110, &["10.7.0.1-10.7.0.14", "4 of 4 in use"]);
                break;
            }
            given.extend(pod.global("net1"));
        }
        given.sort();
        assert_eq!(
            given,
            ["10.7.0.13/28", "10.7.0.14/28", "10.7.0.4/28", "10.7.0.6/28"]
        );
    });
}
