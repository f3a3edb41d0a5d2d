// SPDX-License-Identifier: Apache-2.0
use super::pool;
use crate::pool::{AddressPlace, BlockState, PoolFile, PoolRanges};
use crate::range::Family;
use crate::testing::{assert_error, block, range};
use common::cni::Code;
use proptest::prelude::*;
use std::net::{IpAddr, Ipv4Addr};
use std::path::Path;

fn ranges(pool: &PoolFile) -> PoolRanges {
    PoolRanges::new(pool, Path::new("/pools/rail0/pool.json")).unwrap()
}

/// Every address that this node may allocate without the agent.
fn given(pool: &PoolFile) -> Vec<u32> {
    let here = ranges(pool).here(Family::V4);
    let member = |number: &u32| here.iter().any(|r| r.free().contains(u128::from(*number)));
    let base = u32::from(Ipv4Addr::new(10, 0, 0, 0));
    (base..base + 512).filter(member).map(|n| n - base).collect()
}

#[test]
fn only_the_edges_of_the_subnet_are_reserved() {
    let mut pool = pool();
    assert_eq!(given(&pool), (1..16).collect::<Vec<_>>());
    pool.blocks[0].cidr = "10.0.0.16/28".parse().unwrap();
    assert_eq!(given(&pool), (16..32).collect::<Vec<_>>());
    pool.blocks[0].cidr = "10.0.0.240/28".parse().unwrap();
    assert_eq!(given(&pool), (240..255).collect::<Vec<_>>());
}

#[test]
fn gateways_exclusions_and_reserved_addresses_are_never_allocated() {
    let mut pool = pool();
    pool.ranges[0].gateway = Some("10.0.0.1".parse().unwrap());
    pool.ranges[0].exclude = vec!["10.0.0.4/30".to_owned(), "10.0.0.9-10.0.0.10".to_owned()];
    pool.reserved = vec!["10.0.0.12".to_owned()];
    assert_eq!(given(&pool), [2, 3, 8, 11, 13, 14, 15]);
}

#[test]
fn addresses_come_only_from_active_blocks() {
    let mut pool = pool();
    pool.blocks = vec![
        block("10.0.0.16/30", BlockState::Draining),
        block("10.0.0.20/30", BlockState::Sharing),
        block("10.0.0.24/30", BlockState::Shared),
        block("10.0.0.28/30", BlockState::Active),
    ];
    assert_eq!(given(&pool), [28, 29, 30, 31]);
    let ranges = ranges(&pool);
    let place = |text: &str| ranges.place(text.parse().unwrap());
    assert!(matches!(place("10.0.0.17"), AddressPlace::Leaving(b) if b.state == BlockState::Draining));
    assert!(matches!(place("10.0.0.21"), AddressPlace::Leaving(b) if b.state == BlockState::Sharing));
    assert_eq!(place("10.0.0.25"), AddressPlace::Elsewhere);
    assert!(matches!(place("10.0.0.29"), AddressPlace::Here(_)));
}

#[test]
fn an_address_has_one_place_in_a_pool() {
    let mut pool = pool();
    pool.ranges.push(range("fd00::/64"));
    pool.ranges[0].gateway = Some("10.0.0.1".parse().unwrap());
    pool.reserved = vec!["10.0.0.8".to_owned()];
    let ranges = ranges(&pool);
    let place = |text: &str| ranges.place(text.parse().unwrap());
    assert_eq!(place("10.0.0.0"), AddressPlace::Kept("the network address"));
    assert_eq!(place("10.0.0.1"), AddressPlace::Kept("a gateway"));
    assert_eq!(place("10.0.0.8"), AddressPlace::Elsewhere, "reserved");
    assert_eq!(
        place("10.0.0.100"),
        AddressPlace::Elsewhere,
        "in no block of this node"
    );
    assert_eq!(
        place("fd00::"),
        AddressPlace::Kept("the subnet-router anycast address")
    );
    assert_eq!(place("fd00::5"), AddressPlace::Elsewhere);
    assert_eq!(place("10.1.0.1"), AddressPlace::Outside);
    assert_eq!(ranges.families(), [Family::V4, Family::V6]);
    assert!(ranges.here(Family::V6).is_empty());
}

#[test]
fn a_fully_excluded_range_does_not_stop_the_others() {
    let mut pool = pool();
    pool.ranges.insert(0, range("10.0.1.0/28"));
    pool.ranges[0].exclude = vec!["10.0.1.0/28".to_owned()];
    assert_eq!(given(&pool), (1..16).collect::<Vec<_>>());
}

#[test]
fn ranges_of_a_pool_that_was_never_accepted_are_damage() {
    let mut pool = pool();
    pool.ranges[0].gateway = Some("10.9.0.1".parse().unwrap());
    let error = PoolRanges::new(&pool, Path::new("/pools/rail0/pool.json")).unwrap_err();
    assert_error(
        &error,
        Code::STORE_CORRUPT,
        &["pool.json is damaged or foreign: ranges[0]: gateway 10.9.0.1 lies outside"],
    );
}

proptest! {
    /// Compares the result with a search over all single addresses.
    #[test]
    fn usable_addresses_equal_a_search_of_all_addresses(
        starts in prop::collection::btree_set(0_u8..32, 0..6),
        excluded in prop::collection::vec((0_u8..=255, 0_u8..8), 0..4),
        reserved in prop::collection::vec(0_u8..=255, 0..4),
        gateway in prop::option::of(1_u8..255),
        window in prop::option::of((1_u8..128, 128_u8..255)),
    ) {
        let ip = |host: u8| IpAddr::from([10, 0, 0, host]);
        let mut pool = pool();
        let states = [BlockState::Active, BlockState::Draining, BlockState::Shared];
        pool.blocks = starts.iter().map(|i| block(&format!("{}/29", ip(i * 8)), states[usize::from(*i) % 3])).collect();
        pool.ranges[0].exclude = excluded.iter().map(|(first, more)| format!("{}-{}", ip(*first), ip(first.saturating_add(*more)))).collect();
        pool.reserved = reserved.iter().map(|host| ip(*host).to_string()).collect();
        pool.ranges[0].gateway = gateway.map(ip);
        (pool.ranges[0].start, pool.ranges[0].end) = (window.map(|w| ip(w.0)), window.map(|w| ip(w.1)));
        let naive = |host: &u8| {
            let active = starts.iter().any(|i| i % 3 == 0 && (i * 8..=i * 8 + 7).contains(host));
            let out = excluded.iter().any(|(first, more)| (*first..=first.saturating_add(*more)).contains(host));
            let inside = window.is_none_or(|(first, last)| (first..=last).contains(host));
            active && !out && inside && !reserved.contains(host) && gateway != Some(*host) && *host != 0 && *host != 255
        };
        let expected: Vec<u32> = (0_u8..=255).filter(naive).map(u32::from).collect();
        prop_assert_eq!(given(&pool), expected);
    }
}
