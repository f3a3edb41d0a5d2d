// SPDX-License-Identifier: Apache-2.0
//! A cluster whose RDMA subsystems are in exclusive mode: each node has its own HCAs, and gives them to pods whole. `tests/all
//! node_exclusive` starts it (`tests/node/up --netns-mode exclusive`).

use crate::cluster::{Cluster, NODES};
use crate::steps::refused;
use crate::witnesses::{agree, nothing_left};
use crate::workload::{one_on_each, ping, ready, remove, remove_trainers, start, trainers};

const NETWORK: &str = "ib-device";

/// The RDMA devices of a node, one per line.
fn devices(cluster: &Cluster, node: &str) -> Result<String, String> {
    cluster.try_at(node, &["ls", "/sys/class/infiniband"])
}

/// The RDMA devices of a pod, one per line.
fn devices_of_pod(cluster: &Cluster, pod: &str) -> Result<String, String> {
    cluster.try_kubectl(&["exec", pod, "--", "ls", "/sys/class/infiniband"])
}

/// Waits until each node has the device and the link of its port, under their names.
fn each_node_has_its_port(cluster: &Cluster) {
    for (port, node) in NODES.iter().enumerate() {
        cluster.until(&format!("{node} has its port"), || {
            let found = devices(cluster, node)?;
            let link = cluster.try_at(node, &["ip", "link", "show", &format!("ib{port}")])?;
            if found == format!("softib{port}") && link.contains("state UP") {
                Ok(())
            } else {
                Err(format!("{found}\n{link}"))
            }
        });
    }
}

#[test]
fn pods_get_whole_ports_and_each_node_gets_its_own_back() {
    let cluster = Cluster::lock();
    each_node_has_its_port(&cluster);
    cluster.kubectl("apply -f conf/networks/ib-device.yaml");
    let first = start(&cluster, "first", NETWORK, "node-1");
    let second = start(&cluster, "second", NETWORK, "node-2");
    for (port, (pod, node)) in ["first", "second"].iter().zip(NODES).enumerate() {
        assert_eq!(devices_of_pod(&cluster, pod).unwrap(), format!("softib{port}"));
        assert_eq!(
            devices(&cluster, node).unwrap(),
            "",
            "{node} keeps the device of its pod"
        );
    }
    ping(&cluster, &first, &second);
    agree(&cluster, 2);

    refused(&cluster, "next", NETWORK, "node-1", 7);
    remove(&cluster, "pod/first");
    let next = ready(&cluster, "next");
    ping(&cluster, &next, &second);

    // The pods lose their namespaces without a DEL.
    cluster.power_off("node-2");
    cluster.power_on("node-2");
    let again = cluster.until("the pod of the node that was reset has its port again", || {
        let pod = ready(&cluster, "second");
        match devices_of_pod(&cluster, "second")? {
            found if found == "softib1" => Ok(pod),
            found => Err(found),
        }
    });
    ping(&cluster, &next, &again);
    remove(&cluster, "pod/next");
    remove(&cluster, "pod/second");
    cluster.kubectl("delete -f conf/networks/ib-device.yaml");
    nothing_left(&cluster);
    each_node_has_its_port(&cluster);
}

#[test]
fn children_of_ports_in_exclusive_mode_reach_each_other() {
    let cluster = Cluster::lock();
    let before = trainers(&cluster);
    agree(&cluster, 4);
    let [here, there] = one_on_each(&before);
    ping(&cluster, here, there);
    remove_trainers(&cluster);
    each_node_has_its_port(&cluster);
}
