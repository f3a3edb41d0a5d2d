// SPDX-License-Identifier: Apache-2.0
//! Faults that strike while pods start: containerd is killed, and a node loses its power.

use crate::cluster::Cluster;
use crate::kills::kill;
use crate::witnesses::{agree, pods};
use crate::workload::{one_on_each, ping, remove_trainers, trainers};

#[test]
fn pods_that_start_and_stop_while_containerd_is_killed_leave_nothing() {
    let cluster = Cluster::lock();
    trainers(&cluster);
    for replicas in ["10", "2", "8", "4"] {
        cluster.kubectl(&format!("scale deployment/trainers --replicas={replicas}"));
        kill(&cluster, "node-1", "containerd");
        kill(&cluster, "node-2", "containerd");
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
    cluster.at("vm", &["nodes", "off", "node-2"]);
    // A pod that starts meanwhile has no address of a pod of the dead node.
    cluster.kubectl(concat!(
        "run late --image=localhost/rdma:1 --image-pull-policy=Never --labels=app=late ",
        "--annotations=k8s.v1.cni.cncf.io/networks=ib-ipoib ",
        r#"--overrides={"spec":{"nodeName":"node-1"}} --command -- sleep infinity"#
    ));
    let late = cluster.until("a pod starts on the other node", || {
        pods(&cluster, "late")
            .pop()
            .ok_or_else(|| cluster.kubectl("describe pod late"))
    });
    assert!(
        before.iter().all(|pod| pod.address != late.address),
        "{late:?} has an address of {before:?}"
    );
    cluster.at("vm", &["nodes", "on", "node-2"]);
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
    cluster.kubectl("delete pod late --grace-period=1 --wait=false");
    remove_trainers(&cluster);
}
