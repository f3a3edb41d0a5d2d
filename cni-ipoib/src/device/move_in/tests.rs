// SPDX-License-Identifier: Apache-2.0
use crate::device::fixture::{WAYS, add, fixture};

fn requests(way: (common::netlink::NetnsMode, bool), link: &str) -> Vec<String> {
    let fixture = fixture(way);
    add(&fixture, link).unwrap();
    let log = fixture.kernel.get().log.clone();
    let words = ["move", "rename", "set mode", "delete altname"];
    log.into_iter()
        .filter(|request| words.iter().any(|word| request.starts_with(word)))
        .collect()
}

#[test]
fn on_infiniband_the_rdma_device_moves_before_the_link() {
    let on_host = [
        "move RDMA device 1 from Host",
        "move #4 from Host as net1",
        "set mode connected on #4 in Pod",
    ];
    assert_eq!(requests(WAYS[1], "ib0"), on_host);
    let in_pod = [
        "move RDMA device 1 from Host",
        "rename #1004 to net1 in Pod",
        "set mode connected on #1004 in Pod",
    ];
    assert_eq!(requests(WAYS[2], "ib0"), in_pod);
}

#[test]
fn in_shared_mode_and_on_ethernet_the_link_moves_alone() {
    let alone = [
        "delete altname ibp59s0 of #4 in Host",
        "delete altname rail0 of #4 in Host",
        "move #4 from Host as net1",
    ];
    assert_eq!(requests(WAYS[0], "ib0"), alone);
    let alone = [
        "delete altname ens1np0 of #6 in Host",
        "move #6 from Host as net1",
    ];
    assert_eq!(requests(WAYS[1], "ens1"), alone);
}
