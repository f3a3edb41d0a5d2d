// SPDX-License-Identifier: Apache-2.0
use super::*;
use api::listing::entry;
use api::testing::accepted_pool;
use serde_json::json;

fn listed(subnet: &str, size: i64) -> PoolEntry {
    let spec = json!({ "ranges": [{ "subnet": subnet, "gateway": "none" }], "blockSize": { "v4": size } });
    entry(&accepted_pool("two", &spec).unwrap())
}

fn object(name: &str, ip: &str, block: &str) -> IpAddress {
    serde_json::from_value(json!({
        "apiVersion": "rdmanet.io/v1alpha1", "kind": "IPAddress", "metadata": { "name": name },
        "spec": {
            "pool": "one", "address": ip, "block": block, "state": "Bound",
            "node": { "node": "a", "nodeUID": "u" },
        },
    }))
    .unwrap()
}

#[test]
fn an_address_object_of_another_cut_is_a_conflict_wherever_its_pool_is() {
    let two = listed("10.1.0.0/24", 16);
    let added = AddedAddresses::new("default", &two, None);
    let found = |name, ip, block| added.conflicting_address(&[object(name, ip, block)]);
    let conflict = found("default-0a010005", "10.1.0.5", "10.1.0.5/32").unwrap();
    assert!(
        conflict.contains("default-0a010005") && conflict.contains("pool one"),
        "{conflict}"
    );
    assert!(found("default-0a010005", "10.1.0.5", "10.1.0.0/27").is_some());
    assert_eq!(
        found("default-0a010005", "10.1.0.5", "10.1.0.0/28"),
        None,
        "the same cut"
    );
    assert_eq!(
        found("default-0a020005", "10.2.0.5", "10.2.0.5/32"),
        None,
        "outside"
    );
    assert_eq!(
        found("fab-0a010005", "10.1.0.5", "10.1.0.5/32"),
        None,
        "another space"
    );
}

#[test]
fn addresses_that_the_pool_had_before_are_not_searched() {
    let (before, after) = (listed("10.1.0.0/25", 16), listed("10.1.0.0/24", 16));
    let added = AddedAddresses::new("default", &after, Some(&before));
    let there = [object("default-0a010005", "10.1.0.5", "10.1.0.5/32")];
    assert_eq!(added.conflicting_address(&there), None);
    let block = |name: &str| added.conflicting_block(&[name.to_owned()]);
    assert_eq!(block("default-4-0a010000-27"), None);
    assert_eq!(block("default-4-0a010080-28"), None, "the same size");
    assert!(block("default-4-0a010080-27").is_some());
    assert!(AddedAddresses::new("default", &before, Some(&after)).is_empty());
}

/// An object that was made while the pool had no range of the family names a block of one address.
#[test]
fn a_range_that_returns_is_searched_for_objects_of_the_time_without_it() {
    let mut before = listed("10.1.0.0/24", 16);
    before.shift_v4 = 0;
    let after = listed("10.1.0.0/24", 16);
    let added = AddedAddresses::new("default", &after, Some(&before));
    let there = [object("default-0a010005", "10.1.0.5", "10.1.0.5/32")];
    assert!(added.conflicting_address(&there).is_some());
}
