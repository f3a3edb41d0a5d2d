// SPDX-License-Identifier: Apache-2.0

use super::{Exact, Slices};
use std::net::Ipv4Addr;

const BASE: Ipv4Addr = Ipv4Addr::new(10, 62, 0, 0);

#[test]
fn a_subnet_has_exactly_the_requested_addresses() {
    for (count, subnet, last, excluded) in [
        (
            1000,
            "10.62.0.0/22",
            "10.62.3.232",
            Some("10.62.3.233-10.62.3.254"),
        ),
        (20, "10.62.0.0/27", "10.62.0.20", Some("10.62.0.21-10.62.0.30")),
        (
            1021,
            "10.62.0.0/22",
            "10.62.3.253",
            Some("10.62.3.254-10.62.3.254"),
        ),
        (1022, "10.62.0.0/22", "10.62.3.254", None),
        (1023, "10.62.0.0/21", "10.62.3.255", Some("10.62.4.0-10.62.7.254")),
    ] {
        let exact = Exact::new(BASE, count);
        assert_eq!(exact.subnet.to_string(), subnet);
        assert_eq!(exact.first().to_string(), "10.62.0.1");
        assert_eq!(exact.last.to_string(), last);
        assert_eq!(exact.excluded().as_deref(), excluded);
    }
}

#[test]
fn each_node_has_a_slice_with_room_for_its_pods() {
    let slices = Slices::new(BASE, 10, 100);
    assert_eq!(slices.subnet.to_string(), "10.62.0.0/21");
    assert_eq!(slices.nodes.len(), 10);
    assert_eq!(slices.nodes[0].to_string(), "10.62.0.0/25");
    assert_eq!(slices.nodes[9].to_string(), "10.62.4.128/25");
}
