// SPDX-License-Identifier: Apache-2.0
//! What docs/operate.md says of the condition `rdmanet.io/LinksReady`.
//!
//! Invariant: each test ends with the cluster as it was before.

use crate::cluster::Cluster;
use crate::witnesses::nothing_left;
use crate::workload::{ready, remove, single};
use serde_json::Value;

/// The conditions of an object's status.
fn conditions(object: &Value) -> Vec<Value> {
    object["status"]["conditions"]
        .as_array()
        .cloned()
        .unwrap_or_default()
}

/// Waits until a condition of the object `words` has this status and reason.
fn becomes(cluster: &Cluster, words: &str, kind: &str, status: &str, reason: &str) {
    cluster.until(&format!("{kind} of {words} is {status}: {reason}"), || {
        let conditions = conditions(&cluster.get(words));
        let is = |one: &&Value| one["type"] == kind && one["status"] == status && one["reason"] == reason;
        conditions
            .iter()
            .find(is)
            .map(drop)
            .ok_or_else(|| format!("{conditions:?}"))
    });
}

fn links_become(cluster: &Cluster, node: &str, status: &str, reason: &str) {
    becomes(
        cluster,
        &format!("node {node}"),
        "rdmanet.io/LinksReady",
        status,
        reason,
    );
}

/// Plugs the cable of node-2's port, or pulls it.
fn cable(cluster: &Cluster, state: &str) {
    let file = format!("echo {state} >/sys/devices/platform/softib.1/link");
    cluster.at("vm", &["sh", "-c", &file]);
}

/// Waits for an Event of a Node.
fn node_event(cluster: &Cluster, node: &str, reason: &str) {
    let words = format!(
        "get events --all-namespaces --field-selector reason={reason},involvedObject.name={node} -o name"
    );
    cluster.until(&format!("{node} has the Event {reason}"), || {
        if cluster.kubectl(&words).is_empty() {
            Err(cluster.kubectl("get events --all-namespaces --field-selector involvedObject.kind=Node"))
        } else {
            Ok(())
        }
    });
}

/// Applies a pod that is refused, and waits until `rdmanet explain` finds this code in what kubectl prints about it.
fn refused(cluster: &Cluster, name: &str, network: &str, node: &str, code: u32) {
    cluster.apply(&[single(name, network, Some(node))]);
    cluster.until(&format!("pod {name} is refused with code {code}"), || {
        let said = cluster.kubectl(&format!("describe pod {name}"));
        let explained = cluster.rdmanet_args(&["explain", &said]);
        if explained.contains(&format!("code {code},")) {
            Ok(())
        } else {
            Err(format!("{explained}\n{said}"))
        }
    });
}

#[test]
fn the_condition_of_a_node_follows_its_cable_and_its_administrator() {
    let cluster = Cluster::lock();
    links_become(&cluster, "node-2", "True", "LinksUp");
    cable(&cluster, "0");
    links_become(&cluster, "node-2", "False", "LinkDown");
    node_event(&cluster, "node-2", "LinkDown");
    let check = cluster.rdmanet("check");
    assert!(check.contains("node-2"), "{check}");
    refused(&cluster, "cut", "ib-ipoib", "node-2", 102);
    cable(&cluster, "1");
    links_become(&cluster, "node-2", "True", "LinksUp");
    node_event(&cluster, "node-2", "LinkUp");
    ready(&cluster, "cut");
    remove(&cluster, "pod/cut");

    cluster.at("node-2", &["ip", "link", "set", "ib1", "down"]);
    links_become(&cluster, "node-2", "Unknown", "NoLinks");
    cluster.at("node-2", &["ip", "link", "set", "ib1", "up"]);
    links_become(&cluster, "node-2", "True", "LinksUp");
    nothing_left(&cluster);
}
