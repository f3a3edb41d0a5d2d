// SPDX-License-Identifier: Apache-2.0
//! kill -9 of kubelet and container runtime while their pods run.

use crate::cluster::Cluster;
use crate::witnesses::{agree, pods};
use crate::workload::{one_on_each, ping, remove_trainers, trainers};

/// Kills a program of a node and waits until another process runs in its place.
pub(crate) fn kill(cluster: &Cluster, node: &str, program: &str) {
    let before = cluster.runs(node, program);
    cluster.at(node, &["kill", "-9", &before]);
    cluster.until(&format!("{program} runs again on {node}"), || {
        let now = cluster.try_at(node, &["pidof", program])?;
        if now == before { Err(now) } else { Ok(()) }
    });
}

#[test]
fn pods_keep_their_addresses_when_kubelet_and_runtime_are_killed() {
    let cluster = Cluster::lock();
    let before = trainers(&cluster);
    for program in ["kubelet", cluster.runtime] {
        kill(&cluster, "node-2", program);
        let [here, there] = one_on_each(&before);
        ping(&cluster, here, there);
    }
    // The pods that live are the ones of before, and new ones start.
    cluster.kubectl("scale deployment/trainers --replicas=6");
    cluster.rolled_out("default", "deployment/trainers");
    let after = pods(&cluster, "trainers");
    assert_eq!(after.len(), 6, "{after:?}");
    for pod in &before {
        let same = after
            .iter()
            .any(|other| other.name == pod.name && other.address == pod.address);
        assert!(same, "{pod:?} is not in {after:?}");
    }
    agree(&cluster, 6);
    remove_trainers(&cluster);
}
