// SPDX-License-Identifier: Apache-2.0
use super::*;

fn ip(last: u8) -> IpAddr {
    IpAddr::from([10, 62, 0, last])
}

fn ips(last: impl IntoIterator<Item = u8>) -> BTreeSet<IpAddr> {
    last.into_iter().map(ip).collect()
}

#[test]
fn an_address_of_two_living_sandboxes_is_one_duplicate() {
    let mut tally = Tally::default();
    tally.start("a", ip(1));
    tally.start("b", ip(2));
    tally.start("c", ip(1));
    assert_eq!(tally.take_duplicates(), 1);
    assert_eq!(tally.take_duplicates(), 0, "a duplicate counts once");
}

#[test]
fn an_address_of_an_ended_sandbox_is_no_duplicate() {
    let mut tally = Tally::default();
    tally.start("a", ip(1));
    tally.end("a");
    tally.start("b", ip(1));
    assert_eq!(tally.take_duplicates(), 0);
}

#[test]
fn a_repeated_add_of_one_sandbox_is_no_duplicate() {
    let mut tally = Tally::default();
    tally.start("a", ip(1));
    tally.start("a", ip(1));
    assert_eq!(tally.take_duplicates(), 0);
}

#[test]
fn the_next_sandbox_of_a_pod_is_a_duplicate_while_the_old_one_lives() {
    let mut tally = Tally::default();
    tally.start("pod-on-0", ip(1));
    tally.start("pod-on-1", ip(1));
    assert_eq!(tally.take_duplicates(), 1);
}

#[test]
fn a_record_leaks_if_no_living_sandbox_has_the_address() {
    let mut tally = Tally::default();
    tally.start("a", ip(1));
    tally.start("b", ip(2));
    tally.end("b");
    assert_eq!(tally.leaks(&ips([1, 2, 3])), ips([2, 3]));
    assert_eq!(tally.leaks(&ips([1])), ips([]));
}

#[test]
fn a_leak_counts_once_until_its_address_was_allocated_again() {
    let mut tally = Tally::default();
    tally.count(ips([1, 2]));
    assert_eq!(tally.leaks(&ips([1, 2, 3])), ips([3]));
    tally.start("a", ip(1));
    tally.end("a");
    assert_eq!(tally.leaks(&ips([1, 2, 3])), ips([1, 3]));
}

#[test]
fn an_address_of_a_lost_node_leaks_while_recorded_and_is_exposed_after_that() {
    let mut tally = Tally::default();
    tally.start("a", ip(1));
    tally.start("b", ip(2));
    tally.lose("a");
    tally.lose("b");
    assert_eq!(tally.leaks(&ips([1])), ips([1]));
    assert_eq!(tally.take_exposed(&ips([1])), 1);
    assert_eq!(tally.take_exposed(&ips([])), 0, "an exposed address counts once");
}

#[test]
fn an_address_of_a_living_sandbox_is_not_exposed() {
    let mut tally = Tally::default();
    tally.start("a", ip(1));
    assert_eq!(tally.take_exposed(&ips([])), 0);
}
