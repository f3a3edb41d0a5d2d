// SPDX-License-Identifier: Apache-2.0
//! Two hundred attachments on two ports and an Ethernet link, eight at a time, with kills at random times, namespaces
//! that die, missing DELs and concurrent GCs. The job `storm` of `tests/all` gives the two ports HCAs of both kinds; the
//! accelerated one has children in two partitions.

use crate::fabric::{network, run};
use tests::json;
use tests::storm::{Size, seed, storm};

#[test]
fn a_storm_of_attachments_leaves_nothing_and_allocates_no_address_twice() {
    run(|node| {
        node.cable("eth9");
        let networks = [
            ("net-a", "10.7.0.0/24", json!({"master": "ib0", "pkey": "0x8001"})),
            ("net-b", "10.8.0.0/24", json!({"master": "ib0"})),
            ("net-c", "10.9.0.0/24", json!({"master": "ib1", "pkey": "0x8001"})),
            ("net-d", "10.10.0.0/24", json!({"master": "eth9"})),
        ];
        let confs = networks.map(|(name, subnet, keys)| {
            let ipam = node.rdma_ipam(subnet);
            network(node, &keys).named(name).with("ipam", ipam)
        });
        let size = Size {
            attachments: 200,
            at_once: 8,
        };
        storm(node, &confs, size, seed());
        node.ip("link del eth9");
    });
}
