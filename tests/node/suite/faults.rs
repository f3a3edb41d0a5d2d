// SPDX-License-Identifier: Apache-2.0
//! Faults that strike while pods start: kubelet and container runtime are killed, and a node loses its power.

use crate::cluster::{Cluster, NODES};
use crate::kills::kill;
use crate::witnesses::{agree, nothing_left, pods};
use crate::workload::{
    deployment, one_on_each, ping, ready, remove, remove_trainers, single, start, trainers,
};

/// The pods that start when a node is reset. Each takes some 20 MB of the VM's memory: containerd's shim, and two processes.
const CROWD: usize = 50;

/// Waits until a pod of the node has an address, then kills kubelet and runtime. The pod has no container yet. Argument: the name of
/// the runtime's process.
pub(crate) const KILL_AFTER_ADD: &str = r#"
    until for netns in /run/netns/*; do ip -n "${netns##*/}" -4 -o addr show dev net1 2>/dev/null; done | grep -q inet; do sleep 0.02; done
    kill -9 $(pidof kubelet) $(pidof "$1")
"#;

#[test]
fn a_pod_starts_when_kubelet_and_runtime_are_killed_after_its_add() {
    let cluster = Cluster::lock();
    for node in NODES {
        cluster.apply(&[single("struck", "ib-ipoib", Some(node))]);
        cluster.at(node, &["sh", "-c", KILL_AFTER_ADD, "sh", cluster.runtime]);
        let said = cluster.kubectl("get pod struck -o jsonpath={.status.containerStatuses[0].started}");
        assert_ne!(
            said, "true",
            "the kill on {node} came after the start of the container"
        );
        ready(&cluster, "struck");
        agree(&cluster, 1);
        remove(&cluster, "pod/struck");
        agree(&cluster, 0);
    }
}

#[test]
fn pods_that_start_and_stop_while_the_runtime_is_killed_leave_nothing() {
    let cluster = Cluster::lock();
    trainers(&cluster);
    for replicas in ["10", "2", "8", "4"] {
        cluster.kubectl(&format!("scale deployment/trainers --replicas={replicas}"));
        kill(&cluster, "node-1", cluster.runtime);
        kill(&cluster, "node-2", cluster.runtime);
    }
    cluster.rolled_out("default", "deployment/trainers");
    agree(&cluster, 4);
    remove_trainers(&cluster);
}

#[test]
fn a_node_without_power_comes_back_without_a_duplicate_and_without_a_leak() {
    let cluster = Cluster::lock();
    let before = trainers(&cluster);
    agree(&cluster, 4);
    cluster.power_off("node-2");
    // A pod that starts meanwhile has no address of a pod of the dead node.
    let late = start(&cluster, "late", "ib-ipoib", "node-1");
    assert!(
        before.iter().all(|pod| pod.address != late.address),
        "{late:?} has an address of {before:?}"
    );
    cluster.power_on("node-2");
    cluster.until("the pods of the node run again", || {
        let ready = pods(&cluster, "trainers");
        // Until the kubelet has looked at them, the API server has what was true before.
        let restarted = cluster.kubectl("get events --field-selector reason=Rebooted -o name");
        if ready.len() == 4 && !restarted.is_empty() {
            Ok(())
        } else {
            Err(format!("{ready:?}"))
        }
    });
    agree(&cluster, 5);
    let after = pods(&cluster, "trainers");
    let [here, there] = one_on_each(&after);
    ping(&cluster, here, there);
    remove(&cluster, "pod/late");
    remove_trainers(&cluster);
}

#[test]
fn a_node_that_is_reset_while_fifty_pods_start_leaves_no_duplicate_and_no_leak() {
    let cluster = Cluster::lock();
    cluster.apply(&[deployment("crowd", "ib-ipoib", CROWD, None)]);
    cluster.until("pods start on the node", || {
        let ready = pods(&cluster, "crowd");
        let there = ready.iter().filter(|pod| pod.node == "node-2").count();
        if there > 2 {
            Ok(())
        } else {
            Err(format!("{there} of {ready:?}"))
        }
    });
    let ready = pods(&cluster, "crowd").len();
    cluster.power_off("node-2");
    cluster.power_on("node-2");
    println!("did: reset of a node with {ready} of {CROWD} pods ready");
    cluster.rolled_out("default", "deployment/crowd");
    agree(&cluster, CROWD);
    remove(&cluster, "deployment/crowd");
    nothing_left(&cluster);
}
