// SPDX-License-Identifier: Apache-2.0
//! Tests of the snapshot that the fault tests compare: it contains every kind of object that an attachment could leave.

use std::fs;
use tests::Node;

#[test]
fn a_snapshot_shows_every_change_of_links_addresses_routes_and_rules() {
    Node::run(|node| {
        let pod = node.pod();
        let before = node.settled_snapshot(&[&pod]);
        let seen = |change: &str, what: &str| {
            node.ip(change);
            let difference = node.snapshot(&[&pod]).since(&before).to_string();
            assert!(
                difference.contains(what),
                "after `ip {change}` the difference is {difference:?}"
            );
        };
        for (change, back, what) in [
            (
                "link add left0 type veth peer name left1",
                "link del left0",
                "link left0",
            ),
            ("link set eth0 mtu 1400", "link set eth0 mtu 1500", "Mtu(1400)"),
            (
                "link property add dev eth0 altname left",
                "link property del dev eth0 altname left",
                "left",
            ),
            ("link set eth0 group 7", "link set eth0 group 0", "Group(7)"),
            (
                "addr add 10.9.0.1/24 dev eth0",
                "addr del 10.9.0.1/24 dev eth0",
                "10.9.0.1",
            ),
            (
                "route add 10.10.0.0/16 dev eth0 table 77",
                "route del 10.10.0.0/16 dev eth0 table 77",
                "10.10.0.0",
            ),
            (
                "rule add from 10.9.0.9 table 77",
                "rule del from 10.9.0.9 table 77",
                "10.9.0.9",
            ),
            (
                "neigh add 10.9.0.3 lladdr 02:00:00:00:00:03 dev eth0 nud permanent",
                "neigh del 10.9.0.3 dev eth0",
                "neighbour on eth0",
            ),
        ] {
            seen(change, what);
            node.ip(back);
            node.assert_as_before(&before, &[&pod], format!("after `ip {back}`"));
        }
        seen("link set eth0 address 02:00:00:00:00:07", "02:00:00:00:00:07");
        seen("link set eth0 alias somebody", "somebody");
    });
}

#[test]
fn a_snapshot_shows_settings_state_files_and_the_netns_of_the_pod() {
    Node::run(|node| {
        let pod = node.pod();
        let before = node.settled_snapshot(&[&pod]);
        let differs = |what: &str| {
            let difference = node.snapshot(&[&pod]).since(&before).to_string();
            assert!(difference.contains(what), "{what}: {difference:?}");
        };
        fs::write("/proc/sys/net/ipv4/conf/eth0/rp_filter", "2").unwrap();
        differs("rp_filter = 2");
        fs::create_dir_all(node.path("state/attachments/net-a")).unwrap();
        fs::write(node.path("state/attachments/net-a/pod-1@net1"), "").unwrap();
        differs("pod-1@net1");
        pod.ip("link add left2 type veth peer name left3");
        differs("pod 0: link left2");
        pod.ip("rule add from 10.9.0.9 table 78");
        differs("pod 0: rule");
    });
}
