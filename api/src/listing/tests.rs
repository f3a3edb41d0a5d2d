// SPDX-License-Identifier: Apache-2.0
use super::*;
use crate::testing::accepted_pool;
use serde_json::{Value, json};

fn accepted(name: &str, subnet: &str, size: i64) -> AcceptedPool {
    accepted_pool(name, &spec(subnet, size)).unwrap()
}

fn spec(subnet: &str, size: i64) -> Value {
    json!({ "ranges": [{ "subnet": subnet, "gateway": "none" }], "blockSize": { "v4": size } })
}

fn space(pools: &[&AcceptedPool]) -> AddressSpaceSpec {
    AddressSpaceSpec {
        pools: pools.iter().map(|accepted| entry(accepted)).collect(),
        probe: false,
    }
}

fn cidr(cidr: &str) -> BlockCidr {
    BlockCidr::of(cidr.parse().unwrap()).unwrap()
}

#[test]
fn overlapping_pools_with_the_same_block_size_are_both_listed() {
    let (one, two) = (
        accepted("one", "10.1.0.0/24", 16),
        accepted("two", "10.1.0.0/25", 16),
    );
    let apart = accepted("apart", "10.2.0.0/24", 32);
    let listing = check(&space(&[&one, &apart]), &entry(&two));
    assert_eq!(listing, Listing::Accepted(vec!["one".to_owned()]));
    let itself = check(&space(&[&one]), &entry(&accepted("one", "10.1.0.0/24", 16)));
    assert_eq!(itself, Listing::Accepted(Vec::new()));
}

#[test]
fn an_overlapping_pool_with_another_block_size_is_not_listed() {
    let one = accepted("one", "10.1.0.0/24", 16);
    let conflict = Listing::Conflict {
        pool: "one".to_owned(),
        ip: "10.1.0.128".parse().unwrap(),
    };
    assert_eq!(
        check(&space(&[&one]), &entry(&accepted("two", "10.1.0.128/25", 32))),
        conflict
    );
    let mut each = spec("10.1.0.128/25", 16);
    each["allocation"] = json!("PerAddress");
    assert_eq!(
        check(&space(&[&one]), &entry(&accepted_pool("two", &each).unwrap())),
        conflict,
        "a pool without a block size has blocks of one address"
    );
}

#[test]
fn two_subnets_in_one_block_are_found_with_the_size_that_separates_them() {
    let split = |one: &AcceptedPool, other: &AcceptedPool| {
        let found = split_block(one, None, other);
        assert_eq!(found, split_block(other, None, one));
        found.map(|split| (split.cidr.to_string(), split.size))
    };
    let block = |cidr: &str, size| Some((cidr.to_owned(), size));
    let one = accepted("one", "10.5.0.0/27", 64);
    assert_eq!(
        split(&one, &accepted("two", "10.5.0.32/27", 64)),
        block("10.5.0.0/26", 32)
    );
    assert_eq!(
        split(
            &accepted("one", "10.5.0.8/29", 64),
            &accepted("two", "10.5.0.16/29", 64)
        ),
        block("10.5.0.0/26", 16)
    );
    assert_eq!(
        split(&one, &accepted("two", "10.5.0.64/27", 64)),
        None,
        "another block"
    );
    assert_eq!(
        split(&one, &accepted("two", "10.5.0.32/27", 32)),
        None,
        "another size"
    );
    assert_eq!(
        split(&one, &accepted("two", "10.5.0.0/26", 64)),
        None,
        "common addresses"
    );
    assert_eq!(
        split_block(&one, Some(&one), &accepted("two", "10.5.0.32/27", 64)),
        None,
        "an edit of anything else"
    );
    let mut each = spec("10.5.0.32/27", 64);
    each["allocation"] = json!("PerAddress");
    assert_eq!(
        split(&one, &accepted_pool("two", &each).unwrap()),
        None,
        "no blocks"
    );
}

#[test]
fn a_pool_created_again_conflicts_with_other_blocks_of_the_earlier_one() {
    let mut earlier = entry(&accepted("one", "10.1.0.0/24", 16));
    earlier.uid = "earlier".to_owned();
    let space = AddressSpaceSpec {
        pools: vec![earlier],
        ..AddressSpaceSpec::default()
    };
    let other = check(&space, &entry(&accepted("one", "10.1.0.0/24", 32)));
    assert!(matches!(other, Listing::Conflict { .. }), "{other:?}");
    let same = check(&space, &entry(&accepted("one", "10.1.0.0/24", 16)));
    assert_eq!(same, Listing::Accepted(Vec::new()), "it takes the blocks over");
}

#[test]
fn a_removed_range_stays_listed_while_it_contains_a_block() {
    let shrunk = entry(&accepted("one", "10.1.0.0/25", 16));
    let (inside, outside) = (cidr("10.1.0.16/28"), cidr("10.1.0.240/28"));
    let before = entry(&accepted("one", "10.1.0.0/24", 16));
    assert_eq!(
        with_intervals_of(shrunk.clone(), Some(&before), &[inside]),
        shrunk
    );
    // Without an earlier entry the block itself is listed.
    let alone = with_intervals_of(shrunk.clone(), None, &[inside, outside]);
    assert!(addresses(&alone, Family::V4).contains(outside.interval().first));
    let wide = with_intervals_of(shrunk.clone(), Some(&before), &[inside, outside]);
    assert!(addresses(&wide, Family::V4).contains(outside.interval().first));
    let other = AddressSpaceSpec {
        pools: vec![wide],
        ..AddressSpaceSpec::default()
    };
    let rival = check(&other, &entry(&accepted("two", "10.1.0.128/25", 32)));
    assert!(matches!(rival, Listing::Conflict { .. }), "{rival:?}");
}

#[test]
fn a_removed_range_with_many_blocks_is_listed_as_one_stretch() {
    let before = entry(&accepted("one", "10.1.0.0/16", 16));
    let blocks: Vec<BlockCidr> = (0..64).map(|i| cidr(&format!("10.1.{i}.0/28"))).collect();
    let moved = entry(&accepted("one", "10.2.0.0/16", 16));
    let wide = with_intervals_of(moved.clone(), Some(&before), &blocks);
    assert!(wide.stretches.len() <= 64, "{}", wide.stretches.len());
    let all = addresses(&wide, Family::V4);
    assert!(blocks.iter().all(|block| all.contains(block.interval().first)));
    assert_eq!(
        with_intervals_of(moved.clone(), Some(&wide), &blocks),
        wide,
        "the next rounds write nothing"
    );
    let few = with_intervals_of(moved.clone(), Some(&wide), &blocks[1..]);
    assert!(!addresses(&few, Family::V4).contains(blocks[0].interval().first));
    assert_eq!(
        with_intervals_of(moved.clone(), Some(&few), &[]),
        moved,
        "the last block is gone"
    );
}

#[test]
fn a_block_that_reaches_outside_a_small_subnet_keeps_no_earlier_range() {
    let before = entry(&accepted("one", "10.1.0.0/24", 64));
    let shrunk = entry(&accepted("one", "10.1.0.0/27", 64));
    let listed = with_intervals_of(shrunk, Some(&before), &[cidr("10.1.0.0/26")]);
    let space = AddressSpaceSpec {
        pools: vec![listed],
        ..AddressSpaceSpec::default()
    };
    let two = entry(&accepted("two", "10.1.0.128/25", 32));
    assert!(matches!(check(&space, &two), Listing::Accepted(_)));
}

#[test]
fn an_edited_pool_still_requires_probes_for_addresses_of_gone_nodes() {
    let mut before = entry(&accepted("one", "10.1.0.0/24", 16));
    before.probe = true;
    let mut edited = entry(&accepted("one", "10.1.0.0/25", 16));
    edited.carry_over(&AddressSpaceSpec {
        pools: vec![before],
        ..AddressSpaceSpec::default()
    });
    assert!(edited.probe);
}

/// A pod of a gone node may still have an address of each pool that has the address now.
#[test]
fn probes_are_required_for_each_later_pool_with_addresses_of_gone_nodes() {
    let mut before = entry(&accepted("one", "10.1.0.0/24", 16));
    before.probe = true;
    let listed = AddressSpaceSpec {
        pools: vec![before],
        ..AddressSpaceSpec::default()
    };
    let unlisted = AddressSpaceSpec {
        pools: Vec::new(),
        probe: true,
    };
    for space in [&listed, &unlisted] {
        let mut again = entry(&accepted("one", "10.1.0.0/24", 16));
        again.uid = "another".to_owned();
        again.carry_over(space);
        let mut overlapping = entry(&accepted("two", "10.1.0.0/25", 16));
        overlapping.carry_over(space);
        assert!(again.probe && overlapping.probe);
    }
    let mut first = entry(&accepted("one", "10.1.0.0/24", 16));
    first.carry_over(&AddressSpaceSpec::default());
    assert!(!first.probe, "no node is gone yet");
}

#[test]
fn a_claim_counts_only_if_it_matches_the_listed_pool() {
    let one = accepted("one", "10.1.0.0/24", 16);
    let layout = one.layout(Family::V4).unwrap();
    let admitted = |space: &AddressSpaceSpec| admits(space, &one, layout, cidr("10.1.0.16/28"));
    assert!(admitted(&space(&[&one])));
    assert!(!admitted(&space(&[])), "not listed");
    let listed = |change: fn(&mut PoolEntry)| {
        let mut space = space(&[&one]);
        change(&mut space.pools[0]);
        space
    };
    assert!(
        !admitted(&listed(|pool| pool.uid = "another".to_owned())),
        "created again under its name"
    );
    assert!(
        !admitted(&listed(|pool| pool.generation += 1)),
        "a newer edit than is known here"
    );
    assert!(admitted(&listed(|pool| pool.generation -= 1)));
    assert!(!admitted(&listed(|pool| pool.shift_v4 = 5)), "cut otherwise");
    assert!(
        !admitted(&listed(|pool| pool.stretches.clear())),
        "without these addresses"
    );
}

#[test]
fn two_pools_overlap_if_a_subnet_of_one_contains_a_subnet_of_the_other() {
    let spec = |subnets: &[&str]| -> IpPoolSpec {
        let ranges: Vec<_> = subnets
            .iter()
            .map(|subnet| serde_json::json!({ "subnet": subnet }))
            .collect();
        serde_json::from_value(serde_json::json!({ "ranges": ranges })).unwrap()
    };
    let common = |one: &[&str], other: &[&str]| {
        let (one, other) = (spec(one), spec(other));
        let common = common_address(&one, &other);
        assert_eq!(common, common_address(&other, &one));
        common.map(|ip| ip.to_string())
    };
    assert_eq!(
        common(&["10.1.0.0/24"], &["10.1.0.128/25"]).as_deref(),
        Some("10.1.0.128")
    );
    assert_eq!(
        common(&["10.1.0.0/24"], &["10.2.0.0/24", "10.0.0.0/8"]).as_deref(),
        Some("10.1.0.0")
    );
    assert_eq!(common(&["fd00::/64"], &["fd00::/64"]).as_deref(), Some("fd00::"));
    assert_eq!(
        common(&["10.1.0.0/24", "fd00::/64"], &["10.1.1.0/24", "fd00:1::/64"]),
        None
    );
}

#[test]
fn an_address_counts_only_if_the_list_has_it_for_this_pool_and_cut() {
    let mut each = spec("10.1.0.0/24", 16);
    each["allocation"] = json!("PerAddress");
    let one = accepted_pool("one", &each).unwrap();
    let ip: IpAddr = "10.1.0.5".parse().unwrap();
    let admitted = |change: fn(&mut PoolEntry)| {
        let mut space = space(&[&one]);
        change(&mut space.pools[0]);
        admits_address(&space, &one, ip)
    };
    assert!(admitted(|_| {}));
    assert!(
        admitted(|pool| pool.generation += 1),
        "a newer edit that keeps the address"
    );
    assert!(!admitted(|pool| pool.stretches.clear()), "a removed range");
    assert!(!admitted(|pool| pool.uid = "another".to_owned()));
    assert!(!admitted(|pool| pool.shift_v4 = 4), "cut otherwise");
    assert!(!admits_address(&AddressSpaceSpec::default(), &one, ip));
}
