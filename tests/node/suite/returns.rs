// SPDX-License-Identifier: Apache-2.0
//! Nodes whose Node object is deleted: the pod garbage collector of kube-controller-manager deletes the objects of their pods, and the
//! machine registers again later.

use crate::cluster::Cluster;
use crate::witnesses::{Pod, agree, links, no_duplicate, pods};
use crate::workload::{one_on_each, ping, remove_trainers, trainers};
use serde_json::Value;
use std::collections::BTreeSet;

/// Deletes the Node object, and waits until the garbage collector has deleted the objects of all of its pods.
pub(crate) fn delete_node(cluster: &Cluster, node: &str) {
    cluster.kubectl(&format!("delete node {node}"));
    cluster.until(&format!("the objects of the pods of {node} are gone"), || {
        let left = cluster.kubectl(&format!(
            "get pods --all-namespaces --field-selector spec.nodeName={node} -o name"
        ));
        if left.is_empty() { Ok(()) } else { Err(left) }
    });
}

/// Waits until the node is registered and Ready, and runs an agent again.
pub(crate) fn back(cluster: &Cluster, node: &str) {
    cluster.until(&format!("{node} is registered again"), || {
        cluster.try_kubectl(&[
            "wait",
            &format!("node/{node}"),
            "--for=condition=Ready",
            "--timeout=5s",
        ])
    });
    cluster.until(&format!("an agent is ready on {node}"), || {
        let agents = cluster.get("-n rdmanet-system pods -l app.kubernetes.io/name=rdmanet-agent");
        let here = |pod: &&Value| pod["spec"]["nodeName"] == node;
        let agent = agents["items"].as_array().unwrap().iter().find(here).cloned();
        let agent = agent.ok_or_else(|| format!("no agent on {node}: {agents}"))?;
        let ready = |container: &Value| container["ready"] == true;
        let containers = agent["status"]["containerStatuses"].as_array();
        if containers.is_some_and(|containers| containers.iter().all(ready)) {
            Ok(())
        } else {
            Err(agent["status"].to_string())
        }
    });
}

/// Waits until four trainers are ready, all of them on node-1.
fn moved(cluster: &Cluster) -> Vec<Pod> {
    cluster.until("four pods are ready on the other node", || {
        let ready = pods(cluster, "trainers");
        if ready.len() == 4 && ready.iter().all(|pod| pod.node == "node-1") {
            Ok(ready)
        } else {
            Err(format!("{ready:?}"))
        }
    })
}

/// The owners of all blocks, each with the UID of its Node object.
fn block_owners(cluster: &Cluster) -> BTreeSet<String> {
    let blocks = cluster.get("ipblocks");
    let owner = |block: &Value| block["spec"]["owner"]["nodeUID"].as_str().unwrap().to_owned();
    blocks["items"].as_array().unwrap().iter().map(owner).collect()
}

/// Starts as many pods on the node that is back as on the other, and waits until every block is of a registered node.
fn spread_again(cluster: &Cluster) {
    cluster.kubectl("scale deployment/trainers --replicas=8");
    cluster.rolled_out("default", "deployment/trainers");
    agree(cluster, 8);
    let ready = pods(cluster, "trainers");
    let [here, there] = one_on_each(&ready);
    ping(cluster, here, there);
    cluster.until("every block is of a registered node", || {
        let nodes = cluster.kubectl("get nodes -o jsonpath={.items[*].metadata.uid}");
        let owners = block_owners(cluster);
        if owners.iter().all(|uid| nodes.contains(uid)) {
            Ok(())
        } else {
            Err(format!("{owners:?} of {nodes}"))
        }
    });
}

#[test]
fn a_node_that_returns_after_its_deletion_gives_no_address_twice() {
    let cluster = Cluster::lock();
    let before = trainers(&cluster);
    agree(&cluster, 4);
    cluster.power_off("node-2");
    delete_node(&cluster, "node-2");
    let after = moved(&cluster);
    let lost: Vec<&Pod> = before.iter().filter(|pod| pod.node == "node-2").collect();
    for pod in &after {
        assert!(
            lost.iter().all(|other| other.address != pod.address),
            "{pod:?} has an address of {lost:?} within the quarantine"
        );
    }
    cluster.power_on("node-2");
    back(&cluster, "node-2");
    spread_again(&cluster);
    remove_trainers(&cluster);
}

#[test]
fn pods_that_outlive_their_node_object_keep_their_addresses() {
    let cluster = Cluster::lock();
    let before = trainers(&cluster);
    agree(&cluster, 4);
    let alive: BTreeSet<String> = before
        .iter()
        .filter(|pod| pod.node == "node-2")
        .map(|pod| pod.address.clone())
        .collect();
    // The kubelet hangs. Its pods run on, and so does the agent, whose token ends with the object of its pod.
    let kubelet = cluster.at("node-2", &["pidof", "kubelet"]);
    cluster.at("node-2", &["kill", "-STOP", &kubelet]);
    delete_node(&cluster, "node-2");
    moved(&cluster);
    no_duplicate(&cluster);
    assert_eq!(
        links(&cluster).unwrap()["node-2"],
        alive,
        "the pods of the deleted node have lost their links"
    );
    cluster.at("node-2", &["kill", "-9", &kubelet]);
    back(&cluster, "node-2");
    spread_again(&cluster);
    remove_trainers(&cluster);
}
