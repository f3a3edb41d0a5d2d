// SPDX-License-Identifier: Apache-2.0
use super::*;
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
