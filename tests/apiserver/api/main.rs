// SPDX-License-Identifier: Apache-2.0
//! Our definitions, rights and policies on a real API server.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a test says what it lacks by failing"
)]

mod addresses;
mod blocks;
mod columns;
mod disturbed;
mod examples;
mod fairness;
mod pools;
mod proxied;
mod rights;
mod scripts;
mod skew;
mod stolen;

use kube::core::Status;
use serde_json::{Value, json};

/// The status with which the API server refused a request.
fn refusal<T: std::fmt::Debug>(answer: Result<T, kube::Error>) -> Status {
    match answer {
        Err(kube::Error::Api(status)) => *status,
        other => panic!("expected a refusal, got {other:?}"),
    }
}

/// Sets the value at each path of `changes` in `object`.
fn changed(mut object: Value, changes: &[(&str, Value)]) -> Value {
    for (path, value) in changes {
        let (parent, member) = path.rsplit_once('/').unwrap();
        let parent = object
            .pointer_mut(parent)
            .unwrap_or_else(|| panic!("no {parent}"));
        parent[member] = value.clone();
    }
    object
}

/// An `IPPool` whose spec has only ranges.
fn pool(name: &str, ranges: &Value) -> Value {
    json!({
        "apiVersion": "rdmanet.io/v1alpha1",
        "kind": "IPPool",
        "metadata": { "name": name },
        "spec": { "ranges": ranges },
    })
}

/// An `IPBlock` of `node`.
fn block(name: &str, cidr: &str, node: &str) -> Value {
    json!({
        "apiVersion": "rdmanet.io/v1alpha1",
        "kind": "IPBlock",
        "metadata": { "name": name },
        "spec": {
            "pool": "pool", "cidr": cidr, "epoch": 1, "state": "Active",
            "owner": { "node": node, "nodeUID": format!("{node}-uid") },
        },
    })
}

/// An `IPAddress` of an attachment on `node`.
fn address(name: &str, ip: &str, node: &str) -> Value {
    json!({
        "apiVersion": "rdmanet.io/v1alpha1",
        "kind": "IPAddress",
        "metadata": { "name": name },
        "spec": {
            "pool": "pool", "address": ip, "state": "Bound",
            "block": format!("{ip}/{}", if ip.contains(':') { 128 } else { 32 }),
            "node": { "node": node, "nodeUID": format!("{node}-uid") },
            "attachment": { "containerID": "c1", "ifname": "net1", "network": "rail0" },
        },
    })
}
