// SPDX-License-Identifier: Apache-2.0
use super::*;
use proptest::prelude::*;
use std::collections::BTreeSet;

/// Offsets of a test's small numbers in the address family: at the start, in the middle, at the end.
const BASES: [u128; 3] = [0, 1 << 100, u128::MAX - 255];

fn usable(base: u128, pairs: &[(u8, u8)]) -> IntervalSet {
    pairs
        .iter()
        .filter_map(|(a, b)| Interval::new(base + u128::from(*a), base + u128::from(*b)))
        .collect()
}

/// Reference implementation: assigns every address to its block by division.
fn oracle(base: u128, pairs: &[(u8, u8)], shift: u32) -> BTreeSet<u128> {
    pairs
        .iter()
        .flat_map(|(a, b)| (*a..=*b).map(|n| base + u128::from(n)))
        .map(|address| address / (1 << shift))
        .collect()
}

fn pairs() -> impl Strategy<Value = Vec<(u8, u8)>> {
    prop::collection::vec(
        (any::<u8>(), 0_u8..40).prop_map(|(a, length)| (a, a.saturating_add(length))),
        0..8,
    )
}

proptest! {
    #[test]
    fn a_layout_has_exactly_the_blocks_of_its_addresses(
        base in prop::sample::select(&BASES[..]), pairs in pairs(), shift in 0_u32..8
    ) {
        let layout = BlockLayout::new(Family::V6, shift, usable(base, &pairs));
        let oracle = oracle(base, &pairs, shift);
        prop_assert_eq!(layout.blocks(), oracle.len() as u128);
        let blocks: Vec<BlockCidr> = (0..layout.blocks()).filter_map(|index| layout.block(index)).collect();
        let firsts: Vec<u128> = blocks.iter().map(|cidr| cidr.interval().first).collect();
        prop_assert_eq!(firsts, oracle.iter().map(|number| number << shift).collect::<Vec<_>>());
        prop_assert_eq!(layout.block(layout.blocks()), None);
        prop_assert!(blocks.iter().all(|cidr| cidr.interval().count() == 1 << shift && layout.has(*cidr)));
    }

    #[test]
    fn the_blocks_of_a_layout_contain_every_address_once(
        base in prop::sample::select(&BASES[..]), pairs in pairs(), shift in 0_u32..8
    ) {
        let usable = usable(base, &pairs);
        let layout = BlockLayout::new(Family::V6, shift, usable.clone());
        let parts: Vec<IntervalSet> = (0..layout.blocks())
            .filter_map(|index| layout.block(index))
            .map(|cidr| layout.usable(cidr))
            .collect();
        prop_assert_eq!(parts.iter().map(IntervalSet::count).sum::<u128>(), usable.count());
        let all: IntervalSet = parts.iter().flat_map(|part| part.intervals().to_vec()).collect();
        prop_assert_eq!(all, usable);
    }

    #[test]
    fn the_first_missing_block_is_the_first_that_is_not_taken(
        pairs in pairs(), shift in 0_u32..6, taken in prop::collection::btree_set(0_u128..64, 0..40)
    ) {
        let layout = BlockLayout::new(Family::V6, shift, usable(0, &pairs));
        let blocks: Vec<BlockCidr> = (0..layout.blocks()).filter_map(|index| layout.block(index)).collect();
        let is_taken = |cidr: &BlockCidr| taken.contains(&(cidr.interval().first >> shift));
        let set: IntervalSet = blocks.iter().filter(|cidr| is_taken(cidr)).map(|cidr| cidr.interval()).collect();
        prop_assert_eq!(layout.first_missing(&set), blocks.iter().copied().find(|cidr| !is_taken(cidr)));
    }
}

#[test]
fn a_block_is_named_after_its_space_its_first_address_and_its_size() {
    let name = |ip: &str, shift| {
        BlockCidr::containing(ip.parse().unwrap(), shift)
            .unwrap()
            .name("default")
    };
    assert_eq!(name("10.0.0.77", 6), "default-4-0a000040-26");
    assert_eq!(
        name("fd00::1:5", 10),
        "default-6-fd000000000000000000000000010000-118"
    );
    assert_eq!(name("255.255.255.255", 0), "default-4-ffffffff-32");
}

#[test]
fn an_address_object_is_named_after_its_space_and_its_address() {
    assert_eq!(
        address_name("default", "10.0.0.77".parse().unwrap()),
        "default-0a00004d"
    );
    assert_eq!(
        address_name("blue", "fd00::5".parse().unwrap()),
        "blue-fd000000000000000000000000000005"
    );
}

#[test]
fn two_pools_with_the_same_block_size_have_the_same_block_boundaries() {
    let layout = |first: u128, last: u128| {
        BlockLayout::new(Family::V4, 6, [Interval { first, last }].into_iter().collect())
    };
    let (one, other) = (layout(10, 200), layout(70, 300));
    for index in 0..other.blocks() {
        let cidr = other.block(index).unwrap();
        assert_eq!(one.has(cidr), one.usable(cidr).count() > 0);
        assert_eq!(cidr.interval().first % 64, 0);
    }
}

#[test]
fn a_whole_address_family_is_one_block_or_one_block_per_address() {
    let all = |last| [Interval { first: 0, last }].into_iter().collect::<IntervalSet>();
    let whole = BlockLayout::new(Family::V6, 128, all(u128::MAX));
    assert_eq!(whole.blocks(), 1);
    assert_eq!(whole.block(0).unwrap().to_string(), "::/0");
    let single = BlockLayout::new(Family::V4, 0, all(u32::MAX.into()));
    assert_eq!(single.blocks(), 1 << 32);
    assert_eq!(
        single.block((1 << 32) - 1).unwrap().to_string(),
        "255.255.255.255/32"
    );
}

#[test]
fn block_sizes_are_powers_of_two_that_fit_the_family() {
    assert_eq!(shift_of(64, Family::V4), Some(6));
    assert_eq!(shift_of(1, Family::V4), Some(0));
    for bad in [0, 3, 100, 1 << 33] {
        assert_eq!(shift_of(bad, Family::V4), None, "{bad}");
    }
}
