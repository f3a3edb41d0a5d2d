// SPDX-License-Identifier: Apache-2.0
//! Two hundred attachments, eight at a time, with kills at random times, namespaces that die, missing DELs and
//! concurrent GCs.

use tests::storm::{Size, seed, storm};
use tests::{Node, json};

#[test]
fn a_storm_of_attachments_leaves_nothing_and_allocates_no_address_twice() {
    Node::run(|node| {
        let confs = [("net-a", "10.7.0.0/24"), ("net-b", "10.8.0.0/24")].map(|(name, subnet)| {
            let ipam = node.rdma_ipam(subnet);
            node.conf(json!({"name": name, "ipam": ipam}))
        });
        let size = Size {
            attachments: 200,
            at_once: 8,
        };
        storm(node, &confs, size, seed());
    });
}
