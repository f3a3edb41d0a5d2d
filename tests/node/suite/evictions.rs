// SPDX-License-Identifier: Apache-2.0
//! Pods that end in another way than by the deletion of their Deployment: by force, by a drain, by the kubelet, and static pods.

use crate::cluster::Cluster;
use crate::kills::kill;
use crate::witnesses::{Pod, agree, no_duplicate, nothing_left, pods};
use crate::workload::{one_on_each, ping, remove, remove_trainers, single, trainers};

/// Where the kubelet looks for static pods (`staticPodPath`).
const STATIC: &str = "/var/machine/pods/static.json";

/// The one pod with this label, once it is Ready.
fn one(cluster: &Cluster, app: &str) -> Pod {
    cluster.until(&format!("{app} is ready"), || {
        let found = pods(cluster, app).pop();
        found.ok_or_else(|| cluster.kubectl(&format!("describe pods -l app={app}")))
    })
}

#[test]
fn pods_that_are_deleted_by_force_share_no_address_with_their_successors() {
    let cluster = Cluster::lock();
    for _ in 0..2 {
        for pod in trainers(&cluster) {
            cluster.kubectl(&format!("delete pod {} --force --grace-period=0", pod.name));
        }
        // The objects are gone, and the pods still run beside their successors.
        no_duplicate(&cluster);
        agree(&cluster, 4);
    }
    remove_trainers(&cluster);
}

#[test]
fn a_drained_node_has_no_address_in_use_and_its_pods_come_back() {
    let cluster = Cluster::lock();
    trainers(&cluster);
    cluster.until("node-2 is drained", || {
        let words = "drain node-2 --ignore-daemonsets --delete-emptydir-data --timeout=60s";
        cluster.try_kubectl(&words.split_whitespace().collect::<Vec<_>>())
    });
    // The Deployment spreads its pods, so the other node takes none of them.
    agree(&cluster, 2);
    assert!(pods(&cluster, "trainers").iter().all(|pod| pod.node == "node-1"));
    cluster.kubectl("uncordon node-2");
    cluster.rolled_out("default", "deployment/trainers");
    agree(&cluster, 4);
    let after = pods(&cluster, "trainers");
    let [here, there] = one_on_each(&after);
    ping(&cluster, here, there);
    remove_trainers(&cluster);
}

#[test]
fn a_pod_that_the_kubelet_evicts_loses_its_address_while_its_object_stays() {
    let cluster = Cluster::lock();
    let mut greedy = single("greedy", "ib-ipoib", None);
    greedy["spec"]["volumes"] = serde_json::json!([{"name": "scratch", "emptyDir": {"sizeLimit": "1Mi"}}]);
    greedy["spec"]["containers"][0]["volumeMounts"] =
        serde_json::json!([{"name": "scratch", "mountPath": "/scratch"}]);
    cluster.apply(&[greedy]);
    one(&cluster, "greedy");
    agree(&cluster, 1);
    cluster.kubectl("exec greedy -- dd if=/dev/zero of=/scratch/file bs=1M count=8");
    cluster.until("the kubelet evicts the pod", || {
        let status = cluster.get("pod greedy")["status"].clone();
        if status["reason"] == "Evicted" {
            Ok(())
        } else {
            Err(status.to_string())
        }
    });
    agree(&cluster, 0);
    remove(&cluster, "pod/greedy");
    nothing_left(&cluster);
}

#[test]
fn a_static_pod_has_an_address_and_keeps_it_when_the_kubelet_is_killed() {
    let cluster = Cluster::lock();
    let manifest = single("static", "ib-ipoib", None).to_string();
    let write = [
        "sh",
        "-c",
        "printf %s \"$1\" >/var/machine/new && mv /var/machine/new $2",
        "sh",
        &manifest,
        STATIC,
    ];
    cluster.at("node-1", &write);
    let before = one(&cluster, "static");
    agree(&cluster, 1);
    kill(&cluster, "node-1", "kubelet");
    agree(&cluster, 1);
    assert_eq!(one(&cluster, "static").address, before.address);
    cluster.at("node-1", &["rm", STATIC]);
    nothing_left(&cluster);
}
