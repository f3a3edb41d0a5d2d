// SPDX-License-Identifier: Apache-2.0
use super::*;
use serde_json::{Value, json};

const NO_OBJECTS: [IpAddress; 0] = [];
const EARLY: &str = "2026-01-01T00:00:00Z";
const LATE: &str = "2026-01-02T00:00:00Z";

fn pool(spec: &Value) -> AcceptedPool {
    api::testing::accepted_pool("rail0", spec).unwrap()
}

/// A /24 in blocks of 16. The last sixteen addresses are reserved.
fn static_pool() -> AcceptedPool {
    pool(&json!({
        "ranges": [{ "subnet": "10.1.0.0/24", "gateway": "none" }], "blockSize": { "v4": 16 },
        "reserved": ["10.1.0.9", "10.1.0.240/28"],
    }))
}

fn block(cidr: &str, node: &str, state: &str, status: &Value) -> Arc<IpBlock> {
    let block = json!({
        "apiVersion": "rdmanet.io/v1alpha1", "kind": "IPBlock", "metadata": { "name": cidr },
        "spec": {
            "pool": "rail0", "cidr": cidr, "epoch": 1, "state": state, "owner": { "node": node, "nodeUID": "u" },
        },
        "status": status,
    });
    Arc::new(serde_json::from_value(block).unwrap())
}

fn address(ip: &str, block: &str, node: &str, state: &str) -> IpAddress {
    let name = format!("default-{:08x}", bits(ip.parse().unwrap()));
    let address = json!({
        "apiVersion": "rdmanet.io/v1alpha1", "kind": "IPAddress", "metadata": { "name": name },
        "spec": {
            "pool": "rail0", "address": ip, "block": block, "state": state, "node": { "node": node, "nodeUID": "u" },
            "since": EARLY,
        },
    });
    serde_json::from_value(address).unwrap()
}

/// The object of an address of a pool without blocks.
fn alone(last: u8, state: &str) -> IpAddress {
    let ip = format!("10.1.0.{last}");
    address(&ip, &format!("{ip}/32"), "a", state)
}

#[test]
fn an_address_in_both_a_block_report_and_an_object_counts_once() {
    let accepted = static_pool();
    let status = json!({ "used": 3, "free": 12, "oldest": LATE });
    let blocks = [block("10.1.0.0/28", "a", "Active", &status)];
    let addresses = [
        // One of the three leases in the store of the block's own node.
        address("10.1.0.9", "10.1.0.0/28", "a", "Bound"),
        // Outside the block of any node: one address in use, one sticky, and one of a gone node.
        address("10.1.0.250", "10.1.0.240/28", "b", "Bound"),
        address("10.1.0.251", "10.1.0.240/28", "a", "Kept"),
        address("10.1.0.252", "10.1.0.240/28", "c", "Orphaned"),
    ];
    let numbers = Usage::of(&accepted, &blocks, &addresses);
    assert_eq!(numbers.counters.used, 3 + 2);
    // The same address on another node is not in the store of this block's node.
    let elsewhere = [address("10.1.0.9", "10.1.0.0/28", "b", "Bound")];
    assert_eq!(Usage::of(&accepted, &blocks, &elsewhere).counters.used, 3 + 1);
}

#[test]
fn the_oldest_attachment_is_found_in_block_reports_and_address_objects() {
    let accepted = static_pool();
    let blocks = [block(
        "10.1.0.0/28",
        "a",
        "Active",
        &json!({ "used": 1, "free": 14, "oldest": LATE }),
    )];
    let oldest = |addresses: &[IpAddress]| {
        let numbers = Usage::of(&accepted, &blocks, addresses);
        serde_json::to_value(numbers.counters.oldest).unwrap()
    };
    assert_eq!(oldest(&NO_OBJECTS), LATE);
    assert_eq!(
        oldest(&[address("10.1.0.250", "10.1.0.240/28", "b", "Kept")]),
        LATE
    );
    assert_eq!(
        oldest(&[address("10.1.0.250", "10.1.0.240/28", "b", "Bound")]),
        EARLY
    );
}

#[test]
fn reserved_addresses_in_use_do_not_exhaust_a_pool_without_blocks() {
    let accepted = pool(&json!({
        "ranges": [{ "subnet": "10.1.0.0/29", "gateway": "none" }], "allocation": "PerAddress", "reserved": ["10.1.0.1-10.1.0.3"],
    }));
    let bound = |last| alone(last, "Bound");
    let mut addresses: Vec<IpAddress> = [1, 2, 3, 4].map(bound).into();
    let numbers = Usage::of(&accepted, &[], &addresses);
    assert_eq!((numbers.counters.used, numbers.counters.free), (4, 2));
    assert!(!numbers.is_exhausted);
    addresses.extend([5, 6].map(bound));
    assert!(Usage::of(&accepted, &[], &addresses).is_exhausted);
}

/// Their machine may still run, so no node gets them before they are released.
#[test]
fn orphaned_addresses_of_a_pool_without_blocks_are_neither_in_use_nor_free() {
    let accepted = pool(&json!({
        "ranges": [{ "subnet": "10.1.0.0/29", "gateway": "none", "exclude": ["10.1.0.6"] }], "allocation": "PerAddress",
    }));
    let orphaned = |last| alone(last, "Orphaned");
    let mut addresses: Vec<IpAddress> = [1, 2, 3, 4].map(orphaned).into();
    let numbers = Usage::of(&accepted, &[], &addresses);
    assert_eq!((numbers.counters.used, numbers.counters.free), (0, 1));
    addresses.extend([5, 6].map(orphaned));
    let numbers = Usage::of(&accepted, &[], &addresses);
    assert!(numbers.is_exhausted);
    assert_eq!(numbers.excluded, 1);
}

#[test]
fn an_excluded_block_is_not_counted_as_outside_the_ranges() {
    let accepted = pool(&json!({
        "ranges": [{ "subnet": "10.1.0.0/24", "gateway": "none", "exclude": ["10.1.0.0/28"] }], "blockSize": { "v4": 16 },
    }));
    let living = || json!({ "used": 2, "free": 0, "excluded": 2 });
    let covered = [block("10.1.0.0/28", "a", "Draining", &living())];
    let numbers = Usage::of(&accepted, &covered, &NO_OBJECTS);
    assert_eq!((numbers.excluded, numbers.outside), (2, 0));
    let outside = [block("10.2.0.0/28", "a", "Draining", &living())];
    let numbers = Usage::of(&accepted, &outside, &NO_OBJECTS);
    assert_eq!((numbers.excluded, numbers.outside), (0, 1));
}

#[test]
fn free_addresses_are_counted_in_unclaimed_active_and_shared_blocks() {
    let accepted = pool(&json!({
        "ranges": [{ "subnet": "10.1.0.0/27", "gateway": "none" }], "blockSize": { "v4": 16 },
    }));
    let full = || json!({ "used": 15, "free": 0 });
    let active = block("10.1.0.0/28", "a", "Active", &full());
    let one = Usage::of(&accepted, std::slice::from_ref(&active), &NO_OBJECTS);
    assert_eq!(
        (one.counters.size, one.counters.free, one.counters.blocks),
        (30, 15, 1)
    );
    assert!(!one.is_exhausted);
    let shared = block("10.1.0.16/28", "b", "Shared", &json!({ "used": 7, "free": 8 }));
    let taken: Vec<IpAddress> = (16..31)
        .map(|last| address(&format!("10.1.0.{last}"), "10.1.0.16/28", "b", "Bound"))
        .collect();
    let both = [active.clone(), shared];
    let all = Usage::of(&accepted, &both, &taken);
    assert_eq!((all.counters.used, all.counters.free), (30, 0));
    let with_room = block("10.1.0.0/28", "a", "Active", &json!({ "used": 5, "free": 10 }));
    let room = Usage::of(&accepted, &[with_room], &NO_OBJECTS);
    assert_eq!((room.counters.free, room.counters.unclaimed), (25, 15));
    assert!(all.is_exhausted);
    assert!(!Usage::of(&accepted, &both, &taken[1..]).is_exhausted);
    let untold = [active, block("10.1.0.16/28", "b", "Active", &Value::Null)];
    assert!(
        !Usage::of(&accepted, &untold, &NO_OBJECTS).is_exhausted,
        "it may have some"
    );
}

#[test]
fn addresses_in_a_block_of_another_pool_are_not_free() {
    let accepted = pool(&json!({
        "ranges": [{ "subnet": "10.1.0.0/27", "gateway": "none" }], "blockSize": { "v4": 16 },
    }));
    let mut theirs = block("10.1.0.0/28", "a", "Active", &json!({ "used": 3, "free": 12 }));
    Arc::make_mut(&mut theirs).spec.pool = "other".to_owned();
    let one = Usage::of(&accepted, &[theirs.clone()], &NO_OBJECTS);
    let counters = &one.counters;
    assert_eq!(
        (counters.used, counters.blocks, counters.free, counters.unclaimed),
        (0, 0, 15, 15)
    );
    let mut second = block("10.1.0.16/28", "b", "Draining", &Value::Null);
    Arc::make_mut(&mut second).spec.pool = "other".to_owned();
    let both = Usage::of(&accepted, &[theirs, second], &NO_OBJECTS);
    assert!(both.is_exhausted && both.counters.free == 0, "{both:?}");
}

#[test]
fn an_address_object_in_use_that_an_edit_excludes_is_counted() {
    let accepted = pool(&json!({
        "ranges": [{ "subnet": "10.1.0.0/28", "gateway": "none", "exclude": ["10.1.0.5", "10.1.0.6"] }],
        "allocation": "PerAddress",
    }));
    let addresses = [
        address("10.1.0.5", "10.1.0.5/32", "a", "Bound"),
        address("10.1.0.6", "10.1.0.6/32", "a", "Kept"),
        address("10.1.0.7", "10.1.0.7/32", "a", "Bound"),
        // No range reaches this one.
        address("10.2.0.5", "10.2.0.5/32", "a", "Bound"),
    ];
    assert_eq!(Usage::of(&accepted, &[], &addresses).excluded, 1);
}

/// 14 IPv4 addresses in one block, and a /64 in blocks of 16.
fn dual_stack_pool() -> AcceptedPool {
    pool(&json!({
        "ranges": [{ "subnet": "10.1.0.0/28", "gateway": "none" }, { "subnet": "fd00::/64", "gateway": "none" }],
        "blockSize": { "v4": 16, "v6": 16 },
    }))
}

/// Otherwise each ADD that needs an IPv4 address fails with code 11, and its request is written and closed again and again.
#[test]
fn a_dual_stack_pool_without_a_free_ipv4_address_is_exhausted() {
    let accepted = dual_stack_pool();
    let v6 = block("fd00::/124", "a", "Active", &json!({ "used": 13, "free": 2 }));
    let with_room = block("10.1.0.0/28", "a", "Active", &json!({ "used": 13, "free": 1 }));
    assert!(!Usage::of(&accepted, &[with_room, v6.clone()], &NO_OBJECTS).is_exhausted);
    let full = block("10.1.0.0/28", "a", "Active", &json!({ "used": 14, "free": 0 }));
    let numbers = Usage::of(&accepted, &[full, v6], &NO_OBJECTS);
    assert!(numbers.is_exhausted);
    let counters = &numbers.counters;
    assert_eq!((counters.size, counters.used), (14, 14));
    assert_eq!((counters.free, counters.unclaimed), (0, 0));
    assert_eq!(counters.blocks, 2, "those of both families");
}

#[test]
fn a_dual_stack_pool_without_blocks_is_exhausted_with_its_ipv4_addresses() {
    let accepted = pool(&json!({
        "ranges": [{ "subnet": "10.1.0.0/30", "gateway": "none" }, { "subnet": "fd00::/64", "gateway": "none" }],
        "allocation": "PerAddress",
    }));
    let bound = |ip: &str, length: u8| address(ip, &format!("{ip}/{length}"), "a", "Bound");
    let mut addresses = vec![
        bound("10.1.0.1", 32),
        bound("fd00::1", 128),
        bound("fd00::2", 128),
    ];
    let numbers = Usage::of(&accepted, &[], &addresses);
    assert!(!numbers.is_exhausted);
    assert_eq!((numbers.counters.used, numbers.counters.free), (1, 1));
    addresses.push(bound("10.1.0.2", 32));
    assert!(Usage::of(&accepted, &[], &addresses).is_exhausted);
}

#[test]
fn the_counters_describe_the_family_with_the_fewest_free_addresses() {
    let spec = |v4: &str, v6: &str| {
        pool(&json!({
            "ranges": [{ "subnet": v4, "gateway": "none" }, { "subnet": v6, "gateway": "none" }],
            "blockSize": { "v4": 16, "v6": 16 },
        }))
    };
    let blocks = [
        block("10.1.0.0/28", "a", "Active", &json!({ "used": 5, "free": 9 })),
        block("fd00::/124", "a", "Active", &json!({ "used": 4, "free": 11 })),
    ];
    let numbers_of = |accepted: &AcceptedPool| {
        let numbers = Usage::of(accepted, &blocks, &NO_OBJECTS);
        let counters = numbers.counters;
        let all = (counters.size, counters.used, counters.free, counters.unclaimed);
        (numbers.family, all)
    };
    let v4 = numbers_of(&spec("10.1.0.0/27", "fd00::/64"));
    assert_eq!(v4, (Family::V4, (30, 5, 24, 15)));
    let v6 = numbers_of(&spec("10.1.0.0/24", "fd00::/123"));
    assert_eq!(v6, (Family::V6, (31, 4, 27, 16)));
}

/// Pods name the reserved addresses, and get the others as well.
#[test]
fn a_family_with_only_reserved_addresses_does_not_exhaust_a_pool() {
    let spec = |reserved: Value| {
        pool(&json!({
            "ranges": [{ "subnet": "10.1.0.0/28", "gateway": "none" }, { "subnet": "fd00::/124", "gateway": "none" }],
            "blockSize": { "v4": 16, "v6": 16 }, "reserved": reserved,
        }))
    };
    let numbers = Usage::of(&spec(json!(["10.1.0.0/28"])), &[], &NO_OBJECTS);
    assert!(!numbers.is_exhausted);
    assert_eq!((numbers.family, numbers.counters.free), (Family::V6, 15));
    let reserved = spec(json!(["10.1.0.0/28", "fd00::/124"]));
    assert!(Usage::of(&reserved, &[], &NO_OBJECTS).is_exhausted);
}
