// SPDX-License-Identifier: Apache-2.0

use super::*;
use serde_json::json;

fn assignment(address: &str, pod: &str) -> Assignment {
    Assignment {
        address: address.parse().unwrap(),
        pod: pod.to_owned(),
    }
}

#[test]
fn an_address_of_two_pods_is_one_duplicate() {
    let results = [
        assignment("10.0.0.1", "a"),
        assignment("10.0.0.1", "b"),
        assignment("10.0.0.2", "c"),
    ];
    assert_eq!(duplicates(&results), 1);
    assert_eq!(duplicates(&results[1..]), 0);
    assert_eq!(duplicates(&[]), 0);
}

#[test]
fn records_of_other_pods_and_addresses_differ_from_the_results() {
    let results = [assignment("10.0.0.1", "a"), assignment("10.0.0.2", "b")];
    for (records, unrecorded, leaked) in [
        (
            vec![assignment("10.0.0.1", "a"), assignment("10.0.0.2", "b")],
            0,
            0,
        ),
        (vec![assignment("10.0.0.1", "a")], 1, 0),
        (
            vec![assignment("10.0.0.1", "a"), assignment("10.0.0.2", "c")],
            1,
            1,
        ),
        (
            vec![
                assignment("10.0.0.1", "a"),
                assignment("10.0.0.2", "b"),
                assignment("10.0.0.3", "b"),
            ],
            0,
            1,
        ),
        // Two nodes have the same record.
        (
            vec![
                assignment("10.0.0.1", "a"),
                assignment("10.0.0.1", "a"),
                assignment("10.0.0.2", "b"),
            ],
            0,
            1,
        ),
    ] {
        let difference = Difference { unrecorded, leaked };
        assert_eq!(compare(&results, &records), difference, "{records:?}");
    }
    assert_eq!(compare(&[], &results).leaked, 2);
}

fn block(cidr: &str, owner: &str, state: &str) -> IpBlock {
    let object = json!({
        "apiVersion": "rdmanet.io/v1alpha1", "kind": "IPBlock", "metadata": { "name": cidr },
        "spec": { "pool": "p", "cidr": cidr, "owner": { "node": owner, "nodeUID": "u" }, "epoch": 1, "state": state },
    });
    serde_json::from_value(object).unwrap()
}

#[test]
fn an_address_is_covered_by_its_owned_block_or_by_an_object_in_a_shared_one() {
    let blocks = [
        block("10.0.0.0/26", "a", "Active"),
        block("10.0.0.64/26", "b", "Shared"),
    ];
    let object = json!({
        "apiVersion": "rdmanet.io/v1alpha1", "kind": "IPAddress", "metadata": { "name": "x" },
        "spec": {
            "pool": "p", "address": "10.0.0.70", "block": "10.0.0.64/26", "node": { "node": "c", "nodeUID": "u" },
            "state": "Bound",
        },
    });
    let objects: [IpAddress; 1] = [serde_json::from_value(object).unwrap()];
    for (node, address, count) in [
        ("a", "10.0.0.5", 0),
        ("b", "10.0.0.5", 1),
        ("c", "10.0.0.70", 0),
        ("b", "10.0.0.70", 1),
        ("c", "10.0.0.71", 1),
        ("a", "10.0.1.1", 1),
    ] {
        let result = [(node, address.parse().unwrap())];
        assert_eq!(uncovered(&result, &blocks, &objects), count, "{node} {address}");
    }
    let twice = [blocks[0].clone(), blocks[0].clone()];
    assert_eq!(uncovered(&[("a", "10.0.0.5".parse().unwrap())], &twice, &[]), 1);
}
