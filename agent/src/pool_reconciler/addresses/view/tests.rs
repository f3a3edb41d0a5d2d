// SPDX-License-Identifier: Apache-2.0
//! The use of a list of addresses, and its maximum age.

use super::*;
use crate::pool_reconciler::testing::{address_object, asked, claimant};
use ipam::interval::Interval;
use ipam::range::bits;

/// The object of `ip`, which `container` on `node` has.
fn given(ip: &str, container: &str, node: &str) -> IpAddress {
    serde_json::from_value(address_object(ip, container, node)).unwrap()
}

/// A list of two blocks with these objects, for the node `n`.
fn view(there: &[IpAddress]) -> View {
    let cidrs = ["10.1.0.0/30", "fd00::/126"].map(|cidr| BlockCidr::of(cidr.parse().unwrap()).unwrap());
    View::new(Instant::now(), 7, cidrs.to_vec(), there.to_vec(), "n")
}

fn layout(family: Family, first: &str) -> BlockLayout {
    let first = bits(first.parse().unwrap());
    let usable = Interval {
        first,
        last: first + 3,
    };
    BlockLayout::new(family, 2, [usable].into_iter().collect())
}

/// In an exhausted pool with slow agents, each late answer once blocked an address for a minute.
#[test]
fn a_repeated_add_gets_the_address_of_the_first_add() {
    let there = [
        given("10.1.0.3", "other", "n"),
        given("10.1.0.4", "pod", "m"),
        given("fd00::5", "pod", "n"),
        given("10.1.0.5", "pod", "n"),
    ];
    let asked = asked("pod");
    let before = |there: &[IpAddress]| view(there).given_before(Family::V4, &claimant(&asked));
    assert_eq!(before(&there), Some("10.1.0.5".parse().unwrap()));
    assert_eq!(before(&there[..3]), None);
    // An object that was created after the list counts as well.
    let mut later = view(&there[..3]);
    later.made(&there[3]);
    assert_eq!(
        later.given_before(Family::V4, &claimant(&asked)),
        Some("10.1.0.5".parse().unwrap())
    );
}

#[test]
fn an_address_taken_after_the_list_is_not_free() {
    let (v4, v6) = (layout(Family::V4, "10.1.0.0"), layout(Family::V6, "fd00::"));
    let mut view = view(&[given("10.1.0.1", "a", "n")]);
    assert_eq!((view.free(&v4).count(), view.free(&v6).count()), (3, 4));
    view.take("10.1.0.2".parse().unwrap());
    view.made(&given("10.1.0.0", "b", "n"));
    assert_eq!(
        view.free(&v4).intervals().to_vec(),
        [single("10.1.0.3".parse().unwrap())]
    );
    assert_eq!(view.free(&v6).count(), 4);
}

#[test]
fn a_list_without_free_addresses_expires_once_the_pool_changes() {
    let v4 = layout(Family::V4, "10.1.0.0");
    let mut view = view(&[]);
    let later = |millis| view.at + Duration::from_millis(millis);
    let (soon, late, too_late) = (later(400), later(600), later(2100));
    let is_good = |view: &View, version, now| view.recent_free(&v4, version, now).is_some();
    assert!(is_good(&view, 8, late));
    assert!(!is_good(&view, 7, too_late));
    (0..4).for_each(|i| view.take(IpAddr::from([10, 1, 0, i])));
    assert!(is_good(&view, 7, soon));
    assert!(!is_good(&view, 8, soon));
    assert!(!is_good(&view, 7, late));
}
