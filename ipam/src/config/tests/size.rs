// SPDX-License-Identifier: Apache-2.0
//! The cost of large configurations.

use super::*;
use crate::config::ranges::{MOST_EXCLUSIONS, MOST_RANGES};
use crate::interval::WORK;
use std::sync::Arc;

/// A set of subnets of 256 addresses, and exclusions; only some of the exclusions are in a range.
fn large(ranges: usize, exclusions: usize, own: bool) -> Value {
    let range = |i: usize| {
        let mut range = json!({"subnet": format!("10.{}.{}.0/24", i / 256, i % 256)});
        if own {
            range["exclude"] = json!([format!("10.{}.{}.9", i / 256, i % 256)]);
        }
        range
    };
    let exclusion = |i: usize| format!("1{}.{}.{}.7", i % 2, i / 2 / 256 % 256, i / 2 % 256);
    json!({
        "ranges": [(0..ranges).map(range).collect::<Vec<_>>()],
        "exclude": (0..exclusions).map(exclusion).collect::<Vec<_>>(),
    })
}

/// The number of intervals that the parser visits for such a configuration.
fn work(ranges: usize, exclusions: usize, own: bool) -> usize {
    let ipam = large(ranges, exclusions, own);
    WORK.set(0);
    let config = read(&ipam).unwrap();
    assert_eq!(config.sets[0].len(), ranges);
    WORK.get()
}

/// A thousand ranges and five thousand exclusions took 99 s and 956 MB, when each range had a copy of all exclusions.
#[test]
fn ranges_and_exclusions_cost_their_sum_not_their_product() {
    for own in [false, true] {
        let (one, two) = (work(500, 2500, own), work(1000, 5000, own));
        assert!(
            one < 10 * 3000,
            "own {own}: {one} intervals for 500 ranges and 2,500 exclusions"
        );
        assert!(two < one * 5 / 2, "own {own}: {one}, and {two} for twice as many");
    }
}

#[test]
fn all_ranges_share_one_copy_of_the_common_exclusions() {
    let config = read(&large(1000, 5000, false)).unwrap();
    let intervals: usize = config.sets[0]
        .iter()
        .map(|range| range.free().intervals().len())
        .sum();
    assert!(intervals < 1000 + 5000, "{intervals} intervals");
    let first = config.sets[0][0].shared();
    assert!(
        config.sets[0]
            .iter()
            .all(|range| Arc::ptr_eq(first, range.shared()))
    );
    let range = &config.sets[0][3];
    assert_eq!(range.membership(ip("10.0.3.7")), Membership::Reserved("excluded"));
    assert_eq!(
        range.membership(ip("10.0.3.1")),
        Membership::Reserved("a gateway")
    );
    assert_eq!(range.membership(ip("10.0.3.8")), Membership::Usable);
    assert_eq!(config.notes.len(), 4000, "one in five lies in a subnet");
}

#[test]
fn too_many_ranges_or_exclusions_are_refused_with_the_limit() {
    let cases = [
        (
            large(MOST_RANGES + 1, 0, false),
            "ipam has 4097 ranges, and at most 4096 are read",
        ),
        (
            large(1, MOST_EXCLUSIONS + 1, false),
            "ipam has 65537 exclusions, and at most 65536 are read",
        ),
        (large(2, MOST_EXCLUSIONS - 1, true), "ipam has 65537 exclusions"),
        (
            json!({"ipRanges": vec![json!({"range": "10.0.0.0/24"}); MOST_RANGES + 1]}),
            "ipam has 4097 ranges",
        ),
    ];
    for (ipam, expected) in cases {
        let error = read(&ipam).unwrap_err();
        assert_error(&error, Code::INVALID_CONFIG, &[expected]);
    }
    read(&large(MOST_RANGES, MOST_EXCLUSIONS, false)).unwrap();
}
