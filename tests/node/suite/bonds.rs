// SPDX-License-Identifier: Apache-2.0
//! Nodes whose two InfiniBand ports are an active-backup bond. `tests/all node_bonds` starts their cluster (`tests/node/up --rails 2`).

use crate::cluster::{Cluster, NODES};
use crate::steps::{Events, links_become, set_cable, shell};
use crate::witnesses::{Pod, agree, nothing_left, pods};
use crate::workload::{deployment, one_on_each, ping, remove};

const NETWORK: &str = "ib-bond";

/// Bonds the ports of a node, as an administrator does. IPoIB allows this mode only, and each port keeps its own address. Arguments: the
/// ports.
const BOND: &str = r#"
    set -e
    ip link show bond0 >/dev/null 2>&1 || ip link add bond0 type bond mode active-backup miimon 100 fail_over_mac active
    for port; do ip link set "$port" down; ip link set "$port" master bond0; ip link set "$port" up; done
    ip link set bond0 up
"#;

/// The ports of the node with this index.
fn ports(index: usize) -> [String; 2] {
    [0, 1].map(|port| format!("ib{}", 2 * index + port))
}

/// The port that carries the bond `link` in the namespace of a node.
fn active_port(cluster: &Cluster, node: &str) -> Result<String, String> {
    let active = cluster.try_at(node, &["cat", "/sys/class/net/bond0/bonding/active_slave"])?;
    if active.is_empty() {
        Err("none".into())
    } else {
        Ok(active)
    }
}

/// The child that carries the bond of a pod, if it has carrier.
fn active_in(cluster: &Cluster, pod: &Pod) -> Result<String, String> {
    let script = "a=$(cat /sys/class/net/net1/bonding/active_slave) && [ \"$(cat /sys/class/net/$a/carrier)\" = 1 ] && echo $a";
    cluster.try_kubectl(&["exec", &pod.name, "--", "sh", "-c", script])
}

/// Waits until both pods reach each other.
fn both_ways(cluster: &Cluster, [here, there]: [&Pod; 2]) {
    ping(cluster, here, there);
    ping(cluster, there, here);
}

#[test]
fn pods_on_bonds_outlive_a_cable_and_the_condition_of_the_node_names_it() {
    let cluster = Cluster::lock();
    for (index, node) in NODES.iter().enumerate() {
        let [first, second] = ports(index);
        cluster.at(node, &["sh", "-c", BOND, "sh", &first, &second]);
        links_become(&cluster, node, "True", "LinksUp");
    }
    cluster.kubectl("apply -f conf/networks/ib-bond.yaml");
    cluster.apply(&[deployment("bonded", NETWORK, 4, None)]);
    cluster.rolled_out("default", "deployment/bonded");
    agree(&cluster, 4);
    let all = pods(&cluster, "bonded");
    let pair = one_on_each(&all);
    both_ways(&cluster, pair);

    let active = cluster.until("the bond of node-2 has an active port", || {
        active_port(&cluster, "node-2")
    });
    let [first, second] = ports(1);
    let other = if active == first { &second } else { &first };
    let events = Events::of_node_from_now(&cluster, "node-2");
    set_cable(&cluster, &active, "0");
    links_become(&cluster, "node-2", "True", "BondDegraded");
    events.wait(&cluster, "BondFailover", "Warning");
    both_ways(&cluster, pair);
    let child = cluster.until("the pod's bond is on a child with carrier", || {
        active_in(&cluster, pair[1])
    });
    // A pod that starts now gets a bond of both ports.
    cluster.kubectl("scale deployment/bonded --replicas=6");
    cluster.rolled_out("default", "deployment/bonded");
    agree(&cluster, 6);

    set_cable(&cluster, other, "0");
    links_become(&cluster, "node-2", "False", "LinkDown");
    let events = Events::of_node_from_now(&cluster, "node-2");
    set_cable(&cluster, &active, "1");
    links_become(&cluster, "node-2", "True", "BondDegraded");
    events.wait(&cluster, "BondFailover", "Normal");
    cluster.until("the pod's bond is on its other child", || {
        match active_in(&cluster, pair[1])? {
            now if now == child => Err(now),
            _ => Ok(()),
        }
    });
    set_cable(&cluster, other, "1");
    links_become(&cluster, "node-2", "True", "LinksUp");
    for pod in pods(&cluster, "bonded").iter().filter(|pod| pod.node == "node-2") {
        both_ways(&cluster, [pair[0], pod]);
    }
    let list = shell(&cluster, "node-2", "cat /proc/net/bonding/bond0");
    assert!(list.contains(&first) && list.contains(&second), "{list}");
    remove(&cluster, "deployment/bonded");
    cluster.kubectl("delete -f conf/networks/ib-bond.yaml");
    nothing_left(&cluster);
}
