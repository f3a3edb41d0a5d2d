// SPDX-License-Identifier: Apache-2.0
//! Nodes whose Node object is deleted: the pod garbage collector of kube-controller-manager deletes the objects of their pods, and the
//! machine registers again later.

use crate::cluster::Cluster;
use crate::install::add_network;
use crate::pools::gone;
use crate::steps::agent_of;
use crate::witnesses::{Pod, agree, links, no_duplicate, nothing_left, pods};
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
        let agent = agent_of(cluster, node)?;
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

/// Sets or removes the quarantine of agents and controller, then creates the pool again, so that its blocks record it.
fn quarantine(cluster: &Cluster, variable: &str, seconds: u64) {
    nothing_left(cluster);
    for (owner, options) in [
        ("daemonset/rdmanet-agent", "--containers=agent"),
        ("deployment/rdmanet-controller", ""),
    ] {
        cluster.kubectl(&format!("-n rdmanet-system set env {owner} {options} {variable}"));
        cluster.rolled_out("rdmanet-system", owner);
    }
    cluster.kubectl("delete ippools.rdmanet.io rail0 --wait=false");
    gone(cluster, "rail0");
    add_network(cluster);
    let blocks = cluster.get("ipblocks");
    for block in blocks["items"].as_array().unwrap() {
        assert_eq!(block["spec"]["quarantineSeconds"], seconds, "{block}");
    }
}

/// Waits until node-2 owns a block for which `is` holds.
fn has_block(cluster: &Cluster, what: &str, is: impl Fn(&Value) -> bool) {
    cluster.until(&format!("node-2 owns a block, and {what}"), || {
        let blocks = cluster.get("ipblocks");
        let mut all = blocks["items"].as_array().unwrap().iter();
        if all.any(|block| block["spec"]["owner"]["node"] == "node-2" && is(block)) {
            Ok(())
        } else {
            Err(blocks.to_string())
        }
    });
}

/// docs/operate.md, "A node that is gone", with the shortest quarantine.
#[test]
fn an_administrator_releases_the_addresses_of_a_dead_machine() {
    let cluster = Cluster::lock();
    quarantine(&cluster, "RDMANET_QUARANTINE=2m", 120);
    trainers(&cluster);
    agree(&cluster, 4);
    has_block(
        &cluster,
        "in its last report two addresses of it are in use",
        |block| block["status"]["used"] == 2,
    );
    let release = || cluster.rdmanet("release --node node-2 --yes");
    let said = release();
    assert!(said.contains("node node-2 is registered"), "{said}");
    cluster.power_off("node-2");
    delete_node(&cluster, "node-2");
    has_block(&cluster, "it is orphaned", |block| {
        block["spec"]["state"] == "Orphaned"
    });
    let said = release();
    assert!(said.contains("quarantine"), "{said}");
    cluster.until("the quarantine is over", || {
        let said = release();
        if said.contains("released from node node-2: block ") && said.contains("had 2 addresses in use") {
            Ok(())
        } else {
            Err(said)
        }
    });
    let owners = cluster.kubectl("get ipblocks -o jsonpath={.items[*].spec.owner.node}");
    assert!(!owners.contains("node-2"), "{owners}");
    cluster.power_on("node-2");
    back(&cluster, "node-2");
    spread_again(&cluster);
    remove_trainers(&cluster);
    quarantine(&cluster, "RDMANET_QUARANTINE-", 600);
}
