// SPDX-License-Identifier: Apache-2.0
//! Partitions that a subnet manager adds and removes while pods run, with the network of conf/networks/ib-partition.yaml.

use crate::cluster::{Cluster, NODES};
use crate::steps::refused;
use crate::witnesses::{agree, nothing_left};
use crate::workload::{ping, ready, remove, start, try_ping};

const NETWORK: &str = "ib-partition";

/// Sets the P_Key table of the port of the node with this index in `NODES`.
fn set_table(cluster: &Cluster, node: usize, table: &str) {
    let script = format!("echo {table} >/sys/devices/platform/softib.{node}/pkeys");
    cluster.at("vm", &["sh", "-c", &script]);
}

#[test]
fn pods_of_a_partition_start_when_their_ports_are_members_and_reach_only_each_other() {
    let cluster = Cluster::lock();
    cluster.kubectl("apply -f conf/networks/ib-partition.yaml");
    refused(&cluster, "tenant-2", NETWORK, "node-2", 7);
    for node in 0..NODES.len() {
        set_table(&cluster, node, "0xffff,0x8001");
    }
    let second = ready(&cluster, "tenant-2");
    let first = start(&cluster, "tenant-1", NETWORK, "node-1");
    let other = start(&cluster, "other", "ib-ipoib", "node-1");
    ping(&cluster, &first, &second);
    let outside =
        try_ping(&cluster, &other, &second).expect_err("a pod of another partition reaches the tenant");
    assert!(outside.contains("100% packet loss"), "{outside}");
    agree(&cluster, 3);

    // The port of node-2 leaves the partition while a pod uses it, and returns.
    set_table(&cluster, 1, "0xffff");
    cluster.until(
        "the tenant's pods no longer reach each other",
        || match try_ping(&cluster, &first, &second) {
            Ok(said) => Err(said),
            Err(_) => Ok(()),
        },
    );
    refused(&cluster, "late", NETWORK, "node-2", 7);
    set_table(&cluster, 1, "0xffff,0x8001");
    ping(&cluster, &first, &second);
    let late = ready(&cluster, "late");
    ping(&cluster, &first, &late);
    agree(&cluster, 4);
    for pod in ["late", "tenant-1", "tenant-2", "other"] {
        remove(&cluster, &format!("pod/{pod}"));
    }
    cluster.kubectl("delete -f conf/networks/ib-partition.yaml");
    for node in 0..NODES.len() {
        set_table(&cluster, node, "0xffff");
    }
    nothing_left(&cluster);
}
