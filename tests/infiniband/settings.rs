// SPDX-License-Identifier: Apache-2.0
//! Mode, umcast, MTU and addresses of IPoIB children.

use crate::fabric::{assert_reaches, network, on_fabric, soon};
use common::netlink::{IpoibMode, LinkInfo};
use std::thread::sleep;
use std::time::Duration;
use tests::{Node, Pod, json, traces::assert_same};

fn info(pod: &Pod<'_>) -> (IpoibMode, bool) {
    match pod.link("net1").info {
        LinkInfo::Ipoib { mode, umcast, .. } => (mode, umcast),
        other => panic!("net1 is no IPoIB link but {other:?}"),
    }
}

#[test]
fn connected_mode_carries_packets_of_65520_bytes() {
    on_fabric(|node| {
        let conf = |master| network(node, master, &json!({"ipoibMode": "connected", "mtu": 65520}));
        let (a, b) = (node.pod(), node.pod());
        a.attach(&conf("ib0"), "net1");
        let result = b.attach(&conf("ib1"), "net1");
        assert_eq!(info(&b).0, IpoibMode::Connected);
        assert_eq!(result["interfaces"][0]["mtu"], 65520);
        assert_reaches(&a, &b);
        let address = b.global("net1")[0].split('/').next().unwrap().to_owned();
        let large = || {
            a.exec("ping", &format!("-q -c 1 -W 1 -M do -s 60000 {address}"))
                .status
                .success()
        };
        assert!(soon(large), "60000 bytes do not arrive in one packet");
        a.check(&conf("ib0"), "net1").done();
        for (pod, master) in [(&a, "ib0"), (&b, "ib1")] {
            // tests/fabric/README.md: deleting a link that has connections makes ipoib warn and leak a queue.
            pod.ip("link set net1 down");
            sleep(Duration::from_secs(1));
            pod.detach(&conf(master), "net1");
        }
    });
}

#[test]
fn mode_and_umcast_are_as_asked_or_as_the_parents() {
    on_fabric(|node| {
        for (keys, want) in [
            (json!({}), (IpoibMode::Datagram, false)),
            (json!({"umcast": true}), (IpoibMode::Datagram, true)),
            (
                json!({"ipoibMode": "connected", "umcast": false}),
                (IpoibMode::Connected, false),
            ),
        ] {
            let pod = node.pod();
            let conf = network(node, "ib0", &keys);
            pod.attach(&conf, "net1");
            assert_eq!(info(&pod), want, "{keys}");
            pod.detach(&conf, "net1");
        }
    });
}

#[test]
fn a_lower_mtu_is_applied_and_a_larger_one_refused() {
    on_fabric(|node| {
        let pod = node.pod();
        let conf = network(node, "ib0", &json!({"mtu": 2044}));
        let result = pod.attach(&conf, "net1");
        assert_eq!(result["interfaces"][0]["mtu"], 2044);
        assert_eq!(pod.link("net1").mtu, 2044);
        pod.check(&conf, "net1").done();
        pod.detach(&conf, "net1");
        let before = node.traces(&[&pod]);
        for (keys, pieces) in [
            (json!({"mtu": 9000}), ["mtu 9000", "ib0", "datagram mode"]),
            (
                json!({"mtu": 65521, "ipoibMode": "connected"}),
                ["mtu 65521", "connected mode", "65520"],
            ),
        ] {
            pod.add(&network(node, "ib0", &keys), "net1").refused(7, &pieces);
        }
        assert_same(&before, &node.traces(&[&pod]), "after refused ADDs");
    });
}

#[test]
fn an_mtu_that_the_multicast_group_does_not_allow_is_found_after_the_join_and_undone() {
    on_fabric(|node| {
        reload(node, "devices=3 pkeys=0xffff,0x8001 group_mtu=2048");
        let pod = node.pod();
        let before = node.traces(&[&pod]);
        let refused = pod.add(&network(node, "ib0", &json!({"mtu": 4092})), "net1");
        let follows = network(node, "ib0", &json!({}));
        let followed = pod.add(&follows, "net1");
        pod.detach(&follows, "net1");
        let after = node.traces(&[&pod]);
        reload(node, "devices=3 pkeys=0xffff,0x8001");
        refused.refused(7, &["4092", "2044"]);
        assert_eq!(followed.result()["interfaces"][0]["mtu"], 2044);
        assert_same(&before, &after, "after a refused ADD and a DEL");
    });
}

/// Loads softib anew with these parameters and waits until its ports work.
fn reload(node: &Node, parameters: &str) {
    for words in ["-r softib".to_owned(), format!("softib {parameters}")] {
        let output = node.exec("modprobe", &words);
        assert!(
            output.status.success(),
            "modprobe {words}: {}",
            String::from_utf8_lossy(&output.stderr)
        );
    }
    for master in ["ib0", "ib1", "ib2"] {
        assert!(
            soon(|| node.link_names().contains(&master.to_owned())),
            "{master} is not back"
        );
        node.ip(&format!("link set {master} up"));
        assert!(soon(|| node.link(master).carrier), "{master} has no carrier");
    }
}

#[test]
fn a_hardware_address_or_guid_that_is_not_the_ports_is_refused_with_the_reason() {
    on_fabric(|node| {
        let pod = node.pod();
        for (keys, key) in [
            (json!({"mac": "02:00:00:00:00:01"}), "mac"),
            (json!({"runtimeConfig": {"mac": "02:00:00:00:00:01"}}), "mac"),
            (
                json!({"runtimeConfig": {"infinibandGUID": "00:02:c9:03:00:00:00:01"}}),
                "infinibandGUID",
            ),
        ] {
            pod.add(&network(node, "ib0", &keys), "net1")
                .refused(7, &[key, "ib0", "5254:00ff:fe00:0001", "virtual function"]);
        }
        assert!(pod.links().is_empty() && node.leases().is_empty());
    });
}

#[test]
fn the_ports_own_guid_is_accepted() {
    on_fabric(|node| {
        let pod = node.pod();
        let keys = json!({"runtimeConfig": {"infinibandGUID": "52:54:00:ff:fe:00:00:01"}});
        let conf = network(node, "ib0", &keys);
        pod.attach(&conf, "net1");
        pod.detach(&conf, "net1");
    });
}
