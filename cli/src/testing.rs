// SPDX-License-Identifier: Apache-2.0
//! A cluster for tests, built from its objects.

#![allow(clippy::unwrap_used, reason = "a fixture that cannot be made fails its test")]

use crate::cluster::pods::PodFacts;
use crate::cluster::snapshot::Snapshot;
use common::cni::{Attachment, CniResult};
use ipam::config::Space;
use ipam::store::{Lease, Sandbox};
use serde_json::{Value, json};
use std::time::Duration;

/// A pool of these ranges, accepted.
pub(crate) fn pool(name: &str, ranges: &Value) -> Value {
    let spec = json!({ "ranges": ranges, "blockSize": { "v4": 16 } });
    json!({
        "apiVersion": "rdmanet.io/v1alpha1", "kind": "IPPool", "metadata": { "name": name, "uid": format!("{name}-uid") },
        "spec": spec,
        "status": { "observedGeneration": 1, "accepted": spec, "conditions": [{
            "type": "Ready", "status": "True", "reason": "Accepted", "message": "addresses are allocated",
            "lastTransitionTime": "2026-01-01T00:00:00Z",
        }] },
    })
}

/// The same pool with these further members of its spec, accepted too.
pub(crate) fn pool_with(name: &str, ranges: &Value, more: &Value) -> Value {
    let mut pool = pool(name, ranges);
    for at in ["/spec", "/status/accepted"] {
        let spec = pool.pointer_mut(at).unwrap().as_object_mut().unwrap();
        spec.extend(more.as_object().unwrap().clone());
    }
    pool
}

/// The lease of an interface of a container, without an address.
pub(crate) fn lease(container: &str, ifname: &str) -> Lease {
    Lease {
        owner: Attachment {
            container_id: container.to_owned().try_into().unwrap(),
            ifname: ifname.to_owned().try_into().unwrap(),
        },
        network: "rail0".to_owned(),
        sandbox: Sandbox::default(),
        api: Vec::new(),
        space: Space::default(),
        since: String::new(),
        since_boot: Duration::ZERO,
        result: CniResult::default(),
    }
}

/// A block of 16 addresses that `node` has.
pub(crate) fn block(pool: &str, cidr: &str, node: &str) -> Value {
    let first: std::net::Ipv4Addr = cidr.split('/').next().unwrap().parse().unwrap();
    let prefix = cidr.split('/').nth(1).unwrap();
    json!({
        "apiVersion": "rdmanet.io/v1alpha1", "kind": "IPBlock",
        "metadata": { "name": format!("default-4-{:08x}-{prefix}", first.to_bits()) },
        "spec": {
            "pool": pool, "cidr": cidr, "epoch": 1, "state": "Active",
            "owner": { "node": node, "nodeUID": format!("{node}-uid") },
        },
        "status": { "used": 1, "free": 15 },
    })
}

/// The address object of `pod`.
pub(crate) fn address(pool: &str, ip: &str, node: &str, pod: &str) -> Value {
    json!({
        "apiVersion": "rdmanet.io/v1alpha1", "kind": "IPAddress", "metadata": { "name": format!("default-{ip}") },
        "spec": {
            "pool": pool, "address": ip, "block": format!("{ip}/32"), "state": "Bound", "node": { "node": node, "nodeUID": format!("{node}-uid") },
            "attachment": { "containerID": format!("c-{pod}"), "ifname": "net1", "network": "rail0" },
            "pod": { "namespace": "ml", "name": pod, "uid": format!("{pod}-uid") },
            "since": "2026-01-01T01:00:00Z",
        },
    })
}

/// The same object, marked as orphaned with a quarantine of 600 s. The API server's time of that write is `changed`.
pub(crate) fn orphaned(pool: &str, ip: &str, node: &str, pod: &str, changed: &str) -> Value {
    let mut orphaned = address(pool, ip, node, pod);
    orphaned["spec"]["state"] = json!("Orphaned");
    orphaned["spec"]["quarantineSeconds"] = json!(600);
    let write =
        |manager: &str, time: &str| json!({ "manager": manager, "operation": "Update", "time": time });
    orphaned["metadata"]["managedFields"] = json!([
        write("rdmanet-controller", changed),
        write("rdmanet-agent", "1970-01-01T00:00:00Z"),
    ]);
    orphaned
}

/// Pod `ml/NAME` on `node`, whose `net1` of network `ml/rail0` has `ip`.
pub(crate) fn pod(name: &str, node: &str, ip: &str) -> PodFacts {
    let status = json!([{ "name": "ml/rail0", "interface": "net1", "ips": [ip] }]);
    let pod = json!({
        "metadata": {
            "name": name, "namespace": "ml", "uid": format!("{name}-uid"),
            "annotations": { "k8s.v1.cni.cncf.io/network-status": status.to_string() },
        },
        "spec": { "nodeName": node, "containers": [] },
        "status": { "phase": "Running", "startTime": "2026-01-01T00:30:00Z" },
    });
    PodFacts::of(&serde_json::from_value(pod).unwrap())
}

/// Nodes a and b; pool `rail0` of 10.1.0.0/24, of which `a` has the second block of 16 and `b` the third.
pub(crate) fn cluster() -> Snapshot {
    with(&[], &[])
}

/// The same cluster with these additional blocks and addresses.
pub(crate) fn with(blocks: &[Value], addresses: &[Value]) -> Snapshot {
    let ranges = json!([{ "subnet": "10.1.0.0/24", "exclude": ["10.1.0.200-10.1.0.209"] }]);
    let own = [
        block("rail0", "10.1.0.16/28", "a"),
        block("rail0", "10.1.0.32/28", "b"),
    ];
    let mut snapshot = Snapshot::of(
        vec![read(&pool("rail0", &ranges))],
        own.iter().chain(blocks).map(read).collect(),
        addresses.iter().map(read).collect(),
    );
    snapshot.nodes = ["a", "b"]
        .map(|name| (name.to_owned(), format!("{name}-uid")))
        .into();
    snapshot.agents = snapshot.nodes.keys().map(|node| (node.clone(), true)).collect();
    snapshot
}

fn read<T: serde::de::DeserializeOwned>(value: &Value) -> T {
    serde_json::from_value(value.clone()).unwrap()
}
