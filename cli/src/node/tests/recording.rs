// SPDX-License-Identifier: Apache-2.0
use crate::node::recording::{Recorded, write_sysfs};
use cni_ipoib::select::View;
use common::netlink::{BondMode, IpoibMode, LinkInfo};

#[test]
fn the_mode_and_active_port_of_a_recorded_bond_are_read() {
    let links = r#"[
        {"ifindex": 2, "ifname": "ib0", "link_type": "infiniband", "master": "bond0", "flags": ["UP"], "linkinfo": {"info_kind": "ipoib", "info_data": {"key": "0x8001", "mode": "connected"}}},
        {"ifindex": 3, "ifname": "bond0", "link_type": "infiniband", "flags": ["UP", "LOWER_UP"], "addr_info": [{"local": "10.0.0.1", "prefixlen": 24, "scope": "global"}],
         "linkinfo": {"info_kind": "bond", "info_data": {"mode": "active-backup", "active_slave": "ib0", "miimon": 100}}}]"#;
    let mut node = Recorded::read(links, r#"[{"dst": "default", "dev": "bond0"}]"#).unwrap();
    let LinkInfo::Bond { mode, active, .. } = node.links[1].info else {
        panic!("{:?}", node.links[1]);
    };
    assert_eq!((mode, active), (BondMode::ActiveBackup, Some(2)));
    let LinkInfo::Ipoib { pkey, mode, .. } = node.links[0].info else {
        panic!("{:?}", node.links[0]);
    };
    assert_eq!(
        (pkey.to_string().as_str(), mode),
        ("0x8001", IpoibMode::Connected)
    );
    assert_eq!(node.addresses(3).unwrap().len(), 1);
    assert_eq!(node.routes(3).unwrap().len(), 1);
}

#[test]
fn an_invalid_recording_is_refused_with_the_place() {
    for (links, routes, what) in [
        ("{", "[]", "the links are no list"),
        ("[]", "{", "the routes are no list"),
        (r#"[{"ifname": "ib0"}]"#, "[]", "link \"ib0\" has no ifindex"),
        (
            "[]",
            r#"[{"dst": "default", "dev": "eth0"}]"#,
            "\"eth0\", which is no link",
        ),
        (
            r#"[{"ifindex": 1, "addr_info": [{"local": "x", "prefixlen": 1}]}]"#,
            "[]",
            "x/1 is no address",
        ),
    ] {
        let error = Recorded::read(links, routes).unwrap_err();
        assert!(error.contains(what), "{error}");
    }
}

#[test]
fn a_recording_writes_nothing_outside_its_directory() {
    let root = tempfile::tempdir().unwrap();
    for line in ["../x = y", "/x = y", "a -> ../b"] {
        assert!(write_sysfs(line, root.path()).is_err(), "{line}");
    }
}

#[test]
fn a_default_route_over_several_links_goes_over_each_of_them() {
    let links = r#"[{"ifindex": 2, "ifname": "eth0"}, {"ifindex": 3, "ifname": "eth1"}, {"ifindex": 4, "ifname": "eth2"}]"#;
    let routes = r#"[
        {"dst": "default", "nexthops": [{"dev": "eth0", "weight": 1}, {"dev": "eth1", "weight": 1}]},
        {"type": "unreachable", "dst": "default", "metric": 4278198272}]"#;
    let mut node = Recorded::read(links, routes).unwrap();
    let over = [2, 3, 4].map(|index| node.routes(index).unwrap().len());
    assert_eq!(over, [1, 1, 0]);
}
