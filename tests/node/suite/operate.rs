// SPDX-License-Identifier: Apache-2.0
//! What docs/operate.md says of a cluster at work: conditions of nodes and pools, what continues while a part does not run, and what an
//! administrator does then.
//!
//! Invariant: each test ends with the cluster as it was before.

use crate::cluster::{Cluster, NODES};
use crate::pools::{gone, remove_pool, small_pool};
use crate::witnesses::{agree, nothing_left};
use crate::workload::{network, one_on_each, ping, ready, remove, remove_trainers, single, start, trainers};
use serde_json::{Value, json};

/// A label that no node has.
const NOWHERE: &str = "rdmanet.io/nowhere";

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

/// Waits until `rdmanet explain` finds this code in what kubectl prints about a pod.
pub(crate) fn has_code(cluster: &Cluster, pod: &str, code: u32) {
    cluster.until(&format!("pod {pod} is refused with code {code}"), || {
        let description = cluster.kubectl(&format!("describe pod {pod}"));
        let explained = cluster.rdmanet_args(&["explain", &description]);
        if explained.contains(&format!("code {code},")) {
            Ok(())
        } else {
            Err(format!("{explained}\n{description}"))
        }
    });
}

/// Applies a pod that is refused, and waits until it has this code.
pub(crate) fn refused(cluster: &Cluster, name: &str, network: &str, node: &str, code: u32) {
    cluster.apply(&[single(name, network, Some(node))]);
    has_code(cluster, name, code);
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

#[test]
fn the_agent_of_each_node_serves_health_and_metrics() {
    let cluster = Cluster::lock();
    trainers(&cluster);
    for node in NODES {
        let read = |path: &str| {
            let url = format!("http://127.0.0.1:9471{path}");
            cluster.try_at(node, &["wget", "-qO-", &url])
        };
        read("/healthz").unwrap();
        cluster.until("the agent is ready", || read("/readyz"));
        cluster.until("the metrics count two addresses and one link", || {
            let metrics = read("/metrics")?;
            let used = metrics.contains("rdmanet_addresses_used{pool=\"rail0\"} 2\n");
            let link = metrics
                .lines()
                .any(|line| line.starts_with("rdmanet_link_up{") && line.ends_with(" 1"));
            if used && link { Ok(()) } else { Err(metrics) }
        });
    }
    remove_trainers(&cluster);
}

/// Sets the label that a node must have for an agent. `null` is none, as in the manifests.
fn agents_on(cluster: &Cluster, label: &Value) {
    let patch = json!({ "spec": { "template": { "spec": { "nodeSelector": { NOWHERE: label } } } } });
    cluster.kubectl(&format!(
        "-n rdmanet-system patch daemonset rdmanet-agent --type merge -p {patch}"
    ));
}

/// Waits until no pod of rdmanet with this name is left.
fn none_of(cluster: &Cluster, name: &str) {
    cluster.until(&format!("no pod of {name} is left"), || {
        let left = cluster.kubectl(&format!(
            "-n rdmanet-system get pods -l app.kubernetes.io/name={name} -o name"
        ));
        if left.is_empty() { Ok(()) } else { Err(left) }
    });
}

#[test]
fn without_agents_pods_start_and_end_in_the_blocks_of_their_nodes() {
    let cluster = Cluster::lock();
    agents_on(&cluster, &json!("none"));
    none_of(&cluster, "rdmanet-agent");
    let before = trainers(&cluster);
    let [here, there] = one_on_each(&before);
    ping(&cluster, here, there);
    // A pod of a StatefulSet's name needs the agent for an address that stays with it.
    cluster.kubectl("apply -f conf/pools/stateful.yaml");
    cluster.apply(&[network("databases")]);
    becomes(&cluster, "ippool databases", "Ready", "True", "Accepted");
    refused(&cluster, "db-0", "databases", "node-1", 11);
    remove(&cluster, "pod/db-0");
    remove_trainers(&cluster);
    agents_on(&cluster, &Value::Null);
    cluster.rolled_out("rdmanet-system", "daemonset/rdmanet-agent");
    start(&cluster, "db-0", "databases", "node-1");
    remove(&cluster, "pod/db-0");
    remove_pool(&cluster, "databases");
}

/// The pool `small` with these keys in its spec.
fn small(spec: &Value) -> Value {
    let mut pool = small_pool();
    for (key, value) in spec.as_object().unwrap() {
        pool["spec"][key] = value.clone();
    }
    pool
}

#[test]
fn without_a_controller_pods_start_and_a_new_pool_waits_for_one() {
    let cluster = Cluster::lock();
    cluster.kubectl("-n rdmanet-system scale deployment rdmanet-controller --replicas=0");
    none_of(&cluster, "rdmanet-controller");
    cluster.apply(&[network("small"), small(&json!({}))]);
    let before = trainers(&cluster);
    agree(&cluster, before.len());
    let pool = cluster.get("ippool small");
    assert_eq!(pool["status"]["observedGeneration"], -1, "{pool}");
    refused(&cluster, "early", "small", "node-1", 11);
    cluster.kubectl("-n rdmanet-system scale deployment rdmanet-controller --replicas=2");
    becomes(&cluster, "ippool small", "Ready", "True", "Accepted");
    ready(&cluster, "early");
    remove(&cluster, "pod/early");
    remove_trainers(&cluster);
    remove_pool(&cluster, "small");
}

#[test]
fn a_lost_pool_file_is_written_again_and_a_damaged_one_is_refused_until_it_is_removed() {
    let cluster = Cluster::lock();
    let file = "/var/lib/cni/rdma-ipam/pools/rail0/pool.json";
    let kept = start(&cluster, "kept", "ib-ipoib", "node-1");
    let write = format!("echo damaged >{file}");
    cluster.at("node-1", &["sh", "-c", &write]);
    refused(&cluster, "later", "ib-ipoib", "node-1", 114);
    cluster.at("node-1", &["rm", file]);
    let later = ready(&cluster, "later");
    assert_ne!(kept.address, later.address);
    agree(&cluster, 2);
    remove(&cluster, "pod/kept");
    remove(&cluster, "pod/later");
    nothing_left(&cluster);
}

#[test]
fn a_block_that_a_person_deletes_goes_with_its_last_pod() {
    let cluster = Cluster::lock();
    let kept = start(&cluster, "kept", "ib-ipoib", "node-1");
    cluster.kubectl("delete ipblocks --all --wait=false");
    let later = start(&cluster, "later", "ib-ipoib", "node-1");
    assert_ne!(kept.address, later.address);
    agree(&cluster, 2);
    ping(&cluster, &later, &kept);
    remove(&cluster, "pod/kept");
    cluster.until("no block that a person has deleted is left", || {
        let blocks = cluster.get("ipblocks");
        let deleted = |block: &&Value| !block["metadata"]["deletionTimestamp"].is_null();
        let left: Vec<&Value> = blocks["items"]
            .as_array()
            .unwrap()
            .iter()
            .filter(deleted)
            .collect();
        if left.is_empty() {
            Ok(())
        } else {
            Err(format!("{left:?}"))
        }
    });
    agree(&cluster, 1);
    remove(&cluster, "pod/later");
    nothing_left(&cluster);
}

#[test]
fn the_conditions_of_a_pool_say_what_an_edit_waits_for() {
    let cluster = Cluster::lock();
    let edit = |spec: Value| cluster.apply(&[small(&spec)]);
    let small_becomes =
        |kind: &str, status: &str, reason: &str| becomes(&cluster, "ippool small", kind, status, reason);
    cluster.apply(&[network("small")]);
    edit(json!({ "fallback": ["nowhere"] }));
    small_becomes("FallbackMissing", "True", "NoSuchPool");
    edit(json!({ "fallback": [] }));
    small_becomes("FallbackMissing", "False", "None");

    let kept = start(&cluster, "kept", "small", "node-1");
    edit(json!({ "ranges": [{ "subnet": "10.79.0.0/28", "gateway": "none", "exclude": [kept.address] }] }));
    small_becomes("ExclusionOverLive", "True", "InUse");
    edit(json!({ "ranges": [{ "subnet": "10.79.1.0/28", "gateway": "none" }] }));
    small_becomes("ShrinkPending", "True", "BlocksInUse");
    edit(json!({}));
    small_becomes("ShrinkPending", "False", "None");

    cluster.kubectl("delete ippools.rdmanet.io small --wait=false");
    small_becomes("Ready", "False", "Deleting");
    let table = cluster.rdmanet("addresses --pool small");
    assert!(table.contains("kept"), "{table}");
    refused(&cluster, "late", "small", "node-1", 116);
    let check = cluster.rdmanet("check");
    assert!(check.contains("pool small Ready: Deleting"), "{check}");
    remove(&cluster, "pod/late");
    remove(&cluster, "pod/kept");
    gone(&cluster, "small");
    cluster.kubectl("delete network-attachment-definitions small");
    nothing_left(&cluster);
}
