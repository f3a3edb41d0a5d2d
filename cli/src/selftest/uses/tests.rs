// SPDX-License-Identifier: Apache-2.0
use super::*;
use cni_ipoib::rdma::users::Program;
use common::netlink::{Creator, QueuePair};
use serde_json::json;

/// A node with two unused InfiniBand ports.
fn spare() -> Listing {
    Listing {
        links: vec![
            json!({"ifindex": 2, "ifname": "eth0", "address": "02:00:00:00:00:01"}),
            json!({"ifindex": 3, "ifname": "ib0", "address": "80:00:00:00:01"}),
            json!({"ifindex": 4, "ifname": "ib1", "address": "80:00:00:00:02"}),
        ],
        addresses: vec![
            json!({"ifname": "eth0", "addr_info": [{"local": "192.0.2.1", "prefixlen": 24}]}),
            json!({"ifname": "ib0", "addr_info": [
                {"local": "fe80::1", "prefixlen": 64}, {"local": "169.254.3.4", "prefixlen": 16},
            ]}),
        ],
        routes: vec![
            json!({"dst": "default", "gateway": "192.0.2.9", "dev": "eth0"}),
            json!({"dst": "169.254.0.0/16", "dev": "ib0", "scope": "link"}),
            json!({"dst": "fe80::/64", "dev": "ib0", "protocol": "kernel"}),
            json!({"type": "local", "dst": "fe80::1", "dev": "ib0", "table": "local"}),
            json!({"type": "multicast", "dst": "ff00::/8", "dev": "ib0", "table": "local"}),
        ],
        others: vec![(
            "pod".to_owned(),
            vec![json!({"ifindex": 2, "ifname": "eth0", "link_index": 3,
            "link_netnsid": 0, "linkinfo": {"info_kind": "veth"}})],
        )],
    }
}

/// The queue pairs that `mlx5_0` has when it is idle, and one of `creator` on `port`.
fn pairs(port: Option<u32>, creator: Creator) -> QueuePairs {
    let module = |name: &str| Creator::Module(name.to_owned());
    let all = [
        (Some(1), module("ib_core")),
        (Some(1), module("ib_ipoib")),
        (Some(1), module("mlx4_ib")),
        (None, module("mlx5_ib")),
        (Some(2), module("ib_core")),
        (port, creator),
    ];
    let all = all.map(|(port, creator)| QueuePair { port, creator });
    let program = Program {
        name: "ib_write_bw".to_owned(),
        process: 4710,
    };
    QueuePairs {
        devices: [("mlx5_0".to_owned(), Ok(all.to_vec()))].into(),
        programs: [(4711, program)].into(),
    }
}

#[test]
fn a_link_with_only_link_local_addresses_is_spare() {
    let uses = Uses::of(&spare());
    assert_eq!(uses.of_link("ib0"), None);
    assert_eq!(uses.hardware_address("ib1"), Some("80:00:00:00:02"));
}

#[test]
fn every_use_of_a_link_is_named() {
    type Change = fn(&mut Listing);
    let changes: [(&str, Change); 9] = [
        ("has the node's address 10.0.0.1/24", |node| {
            node.addresses[1]["addr_info"][1] =
                json!({"local": "10.0.0.1", "prefixlen": 24, "scope": "link"});
        }),
        ("has a route of the node: 10.9.0.0/16", |node| {
            node.routes
                .push(json!({"dst": "10.9.0.0/16", "dev": "ib0", "table": "7"}));
        }),
        ("has a route of the node: default", |node| {
            let paths = json!([{"gateway": "10.0.0.9", "dev": "ib1"}, {"gateway": "10.0.0.8", "dev": "ib0"}]);
            node.routes.push(json!({"dst": "default", "nexthops": paths}));
        }),
        ("is a port of bond0", |node| {
            node.links[1]["master"] = json!("bond0");
        }),
        ("is a port of br0", |node| node.links[1]["master"] = json!("br0")),
        ("has ib0.8001 on it", |node| {
            node.links
                .push(json!({"ifindex": 9, "ifname": "ib0.8001", "link": "ib0"}));
        }),
        ("has net1 of the namespace pod on it", |node| {
            let info = json!({"info_kind": "macvlan"});
            let child = json!({"ifindex": 7, "ifname": "net1", "link_index": 3, "linkinfo": info});
            node.others[0].1.push(child);
        }),
        ("has ib0 of the namespace pod on it", |node| {
            let info = json!({"info_kind": "ipoib"});
            let child = json!({"ifindex": 7, "ifname": "ib0", "link": "if3", "linkinfo": info});
            node.others[0].1.push(child);
        }),
        ("has net2 of the namespace pod on it", |node| {
            let info = json!({"info_kind": "ipoib"});
            let sibling = json!({"ifindex": 3, "ifname": "tunl0"});
            let child = json!({"ifindex": 7, "ifname": "net2", "link": "tunl0", "linkinfo": info});
            node.others[0].1.extend([sibling, child]);
        }),
    ];
    for (why, change) in changes {
        let mut node = spare();
        change(&mut node);
        assert_eq!(Uses::of(&node).of_link("ib0"), Some(why));
    }
}

#[test]
fn a_bond_is_used_by_its_ports() {
    let mut node = spare();
    node.links.push(json!({"ifindex": 9, "ifname": "bond0"}));
    assert_eq!(Uses::of(&node).of_link("bond0"), None);
    node.links[1]["master"] = json!("bond0");
    assert_eq!(Uses::of(&node).of_link("bond0"), Some("has the port ib0"));
}

#[test]
fn every_user_of_rdma_is_named_and_uses_its_port_only() {
    let module = |name: &str| Creator::Module(name.to_owned());
    for (creator, why) in [
        (
            module("ib_srp"),
            "the kernel module ib_srp: end its connections first",
        ),
        (
            module("rdma_cm"),
            "the kernel module rdma_cm: end its connections first",
        ),
        (
            Creator::Program(Some(4711)),
            "the program ib_write_bw (process 4710): end it first",
        ),
        (Creator::Program(Some(4712)), "thread 4712: end it first"),
        (
            Creator::Program(None),
            "a program that the kernel does not name: end it first",
        ),
    ] {
        let pairs = pairs(Some(2), creator);
        let why = format!("has a queue pair of {why}");
        assert_eq!(pairs.use_of("mlx5_0", 2), Some(why));
        assert_eq!(pairs.use_of("mlx5_0", 1), None);
        assert_eq!(pairs.use_of("mlx5_1", 2), None);
    }
}

#[test]
fn a_queue_pair_without_a_port_uses_every_port_of_its_device() {
    let pairs = pairs(None, Creator::Program(Some(4711)));
    let why = "is a port of mlx5_0, which has a queue pair of the program ib_write_bw (process 4710) without a \
               port: end it first";
    for port in [1, 2] {
        assert_eq!(pairs.use_of("mlx5_0", port).as_deref(), Some(why));
    }
    assert_eq!(pairs.use_of("mlx5_1", 1), None);
}

#[test]
fn a_device_whose_queue_pairs_are_not_listed_is_spare_and_the_reason_is_known() {
    let refused = Err("the kernel refused: EOPNOTSUPP".to_owned());
    let pairs = QueuePairs {
        devices: [("mlx5_0".to_owned(), refused)].into(),
        ..QueuePairs::default()
    };
    assert_eq!(pairs.use_of("mlx5_0", 1), None);
    let why = pairs.unknown("mlx5_0").unwrap();
    assert_eq!(
        why,
        "the kernel did not list the queue pairs of mlx5_0: the kernel refused: EOPNOTSUPP"
    );
}

#[test]
fn the_queue_pairs_of_a_device_that_the_kernel_does_not_have_are_unknown() {
    let pairs = QueuePairs::read(["no_such_device"].into_iter());
    assert_eq!(pairs.use_of("no_such_device", 1), None);
    assert!(pairs.unknown("no_such_device").is_some(), "{pairs:?}");
}
