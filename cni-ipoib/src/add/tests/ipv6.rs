// SPDX-License-Identifier: Apache-2.0
//! Links without IPv6: the kernel has none (`ipv6.disable=1`), or the MTU is below 1280 bytes. The kernel then
//! answers a request with an IPv6 setting with `EAFNOSUPPORT`.

use super::assert_clean;
use crate::model::{Fixture, Ipam};
use common::cni::Code;
use serde_json::{Value, json};

/// How a node makes the link of a pod: the child of an HCA as mlx5's, of another one, or a bond of children.
const NODES: [fn(Fixture) -> Fixture; 3] = [|node| node, Fixture::plain, Fixture::on_bond];

fn with_ipv4() -> Fixture {
    Fixture::with(Ipam::giving(&json!({"ips": [{"address": "10.0.0.2/24"}]})))
}

fn attach_and_detach(fixture: &Fixture, keys: &Value) {
    let before = fixture.kernel.state();
    fixture.add_with("c1", keys).unwrap();
    fixture.del("c1").unwrap();
    assert_clean(fixture, &before, &keys.to_string());
}

#[test]
fn on_a_node_without_ipv6_a_pod_gets_its_ipv4_address() {
    for node in NODES {
        attach_and_detach(&node(with_ipv4()).without_ipv6(), &json!({}));
    }
}

#[test]
fn a_link_may_have_an_mtu_that_is_too_small_for_ipv6() {
    for node in NODES {
        attach_and_detach(&node(with_ipv4()), &json!({"mtu": 1000}));
    }
}

#[test]
fn an_ipv6_address_needs_a_kernel_with_ipv6_and_an_mtu_of_1280() {
    for (node, keys) in [
        (Fixture::without_ipv6 as fn(Fixture) -> Fixture, json!({})),
        (|node| node, json!({"mtu": 1000})),
    ] {
        let fixture = node(Fixture::new());
        let before = fixture.kernel.state();
        let error = fixture.add_with("c1", &keys).unwrap_err();
        assert_eq!(error.code, Code::IO, "{error:?}");
        let text = error.to_string();
        for part in [
            "/proc/sys/net/ipv6/conf/net1",
            "1280 bytes",
            "IPv4 addresses only",
        ] {
            assert!(text.contains(part), "{text}");
        }
        assert_clean(&fixture, &before, &text);
    }
}
