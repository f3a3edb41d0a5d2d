// SPDX-License-Identifier: Apache-2.0
//! Who is given an address that is there already.

use super::*;
use ipam::agent::AskedBy;

fn asked(container: &str) -> AskedBy {
    serde_json::from_value(
        serde_json::json!({ "containerID": container, "ifname": "net1", "network": "net" }),
    )
    .unwrap()
}

fn claimant(asked: &AskedBy) -> Claimant<'_> {
    Claimant {
        asked,
        pod: None,
        holder: None,
    }
}

/// `ip`, which was given to `container` on `node`.
fn given(ip: &str, container: &str, node: &str) -> IpAddress {
    serde_json::from_value(serde_json::json!({
        "apiVersion": "rdmanet.io/v1alpha1", "kind": "IPAddress", "metadata": { "name": ip },
        "spec": {
            "pool": "rail0", "address": ip, "block": "10.1.0.0/28", "node": { "node": node, "nodeUID": "u" }, "state": "Bound",
            "attachment": { "containerID": container, "ifname": "net1", "network": "net" },
        },
    }))
    .unwrap()
}

/// A pool that ran full while agents answered late lost an address for a minute with each answer.
#[test]
fn an_attachment_that_asks_again_has_the_address_that_it_was_given_before() {
    let there = [
        given("10.1.0.3", "other", "n"),
        given("10.1.0.4", "pod", "m"),
        given("fd00::5", "pod", "n"),
        given("10.1.0.5", "pod", "n"),
    ];
    let asked = asked("pod");
    let before = |there: &[IpAddress]| given_before(there, "n", Family::V4, &claimant(&asked));
    assert_eq!(before(&there), Some("10.1.0.5".parse().unwrap()));
    assert_eq!(before(&there[..3]), None);
}
