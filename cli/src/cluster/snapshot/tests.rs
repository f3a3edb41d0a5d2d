// SPDX-License-Identifier: Apache-2.0
use super::*;
use crate::testing::block;
use serde_json::from_value;

fn of(blocks: &[(&str, &str)]) -> Snapshot {
    let objects = blocks.iter().map(|(cidr, node)| block("rail0", cidr, node));
    Snapshot::of(
        Vec::new(),
        objects.map(|object| from_value(object).unwrap()).collect(),
        Vec::new(),
    )
}

#[test]
fn every_address_finds_the_blocks_that_contain_it() {
    let snapshot = of(&[
        ("10.1.0.16/28", "a"),
        ("10.1.0.0/24", "b"),
        ("10.1.0.16/30", "c"),
        ("10.1.1.0/28", "d"),
        ("10.1.0.32/32", "e"),
    ]);
    for last in 0..=u8::MAX {
        for third in 0..3 {
            let ip = IpAddr::from([10, 1, third, last]);
            let found: Vec<&str> = snapshot.blocks_with(ip).map(Block::name).collect();
            let all = snapshot.blocks().iter().filter(|block| block.cidr.contains(ip));
            let mut expected: Vec<&Block> = all.collect();
            expected.sort_by_key(|block| block.cidr.prefix());
            let expected: Vec<&str> = expected.into_iter().map(Block::name).collect();
            assert_eq!(found, expected, "{ip}");
        }
    }
    assert_eq!(snapshot.blocks_with("fd00::1".parse().unwrap()).count(), 0);
}
