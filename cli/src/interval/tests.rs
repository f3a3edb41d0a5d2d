// SPDX-License-Identifier: Apache-2.0

use super::*;

#[test]
fn an_interval_entry_is_printed_as_it_was_parsed() {
    for entry in ["10.0.0.1", "10.0.0.1-10.0.0.9", "fd00::1-fd00::ff"] {
        let (family, interval) = parse(entry).unwrap();
        assert_eq!(format_interval(family, interval), entry);
    }
    assert_eq!(
        parse("10.0.0.0/30")
            .map(|(f, i)| format_interval(f, i))
            .as_deref(),
        Some("10.0.0.0-10.0.0.3")
    );
    for wrong in ["", "10.0.0.9-10.0.0.1", "10.0.0.1-fd00::1", "10.0.0.0/33"] {
        assert_eq!(parse(wrong), None, "{wrong}");
    }
}

#[test]
fn too_many_intervals_are_merged_into_fewer_larger_ones() {
    let set: IntervalSet = [1_u128, 3, 100, 104, 500]
        .into_iter()
        .map(|n| Interval { first: n, last: n })
        .collect();
    assert_eq!(merged(&set, 5).len(), 5);
    let three = merged(&set, 3);
    assert_eq!(
        three.iter().map(|i| (i.first, i.last)).collect::<Vec<_>>(),
        [(1, 3), (100, 104), (500, 500)]
    );
    assert!(
        [1, 3, 100, 104, 500]
            .iter()
            .all(|n| merged(&set, 1)[0].contains(*n))
    );
}
