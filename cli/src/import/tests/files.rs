// SPDX-License-Identifier: Apache-2.0
//! Allocations that only copied files of nodes have.

use super::*;
use crate::import::source::SourceAllocation;

/// The files of the nodes `n1` and `n2`, of which this run was given `nodes`.
fn host_local_files(nodes: &[&str], addresses: &[(&str, &str)]) -> SourceData {
    let ipam = json!({ "type": "host-local", "subnet": "10.0.0.0/24" });
    let is_given = |(node, _): &&(&str, &str)| nodes.contains(node);
    let of_node = |(node, address): &(&str, &str)| SourceAllocation {
        address: address.parse().unwrap(),
        pod: None,
        reported_by: format!("/copies/{node}/n/{address}"),
    };
    let found = addresses.iter().filter(is_given).map(of_node).collect();
    SourceData {
        files: Some(
            nodes
                .iter()
                .map(|node| format!("/copies/{node}").into())
                .collect(),
        ),
        ..host_local::interpret(vec![network("n", &ipam)], [("n".to_owned(), found)].into())
    }
}

/// The copy from a node may fail, or a person forgets the node.
#[test]
fn an_address_from_a_file_ends_only_if_a_later_run_gets_the_file_of_its_node() {
    let options = PlanOptions {
        source: "host-local",
        ..OPTIONS
    };
    let next = |reading: &SourceData, snapshot: &Snapshot| {
        let (mut steps, refused) = plan(reading, snapshot, &options);
        assert_eq!(refused, []);
        steps.remove(0)
    };
    let both = [("n1", "10.0.0.11"), ("n2", "10.0.0.12")];
    let first = next(&host_local_files(&["n1", "n2"], &both), &Snapshot::default());
    let mut snapshot = Snapshot::of(vec![accepted(&first)], vec![], vec![]);
    for (nodes, addresses, in_use) in [
        (&["n2"][..], &both[1..], &["10.0.0.11-10.0.0.12"][..]),
        (&["n2"], &[], &["10.0.0.11"]),
        (&[], &[], &["10.0.0.11"]),
        (&["n10"], &[], &["10.0.0.11"]),
        (&["n1"], &[], &[]),
    ] {
        let step = next(&host_local_files(nodes, addresses), &snapshot);
        assert_eq!(step.spec.ranges[0].exclude, in_use, "{nodes:?}");
        snapshot = Snapshot::of(vec![accepted(&step)], vec![], vec![]);
    }
}
