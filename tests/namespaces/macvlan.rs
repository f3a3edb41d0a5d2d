// SPDX-License-Identifier: Apache-2.0
//! The keys of a macvlan child and their effect on the link in the pod.

use common::netlink::{LinkInfo, MacvlanMode};
use std::net::UdpSocket;
use tests::{Node, json};

#[test]
fn every_macvlan_mode_reaches_the_kernel() {
    Node::run(|node| {
        for (word, mode) in [
            ("private", MacvlanMode::Private),
            ("vepa", MacvlanMode::Vepa),
            ("bridge", MacvlanMode::Bridge),
        ] {
            let pod = node.pod();
            let conf = node.conf(json!({"mode": "macvlan", "macvlanMode": word}));
            pod.attach(&conf, "net1");
            assert_eq!(pod.link("net1").info, LinkInfo::Macvlan { mode });
        }
    });
}

#[test]
fn passthru_reserves_the_parent_for_one_child() {
    Node::run(|node| {
        let pod = node.pod();
        let conf = node.conf(json!({"macvlanMode": "passthru"}));
        pod.attach(&conf, "net1");
        let link = pod.link("net1");
        assert_eq!(
            link.info,
            LinkInfo::Macvlan {
                mode: MacvlanMode::Passthru
            }
        );
        assert_eq!(link.address, node.link("eth0").address);
        let second = node.pod();
        for mode in ["passthru", "bridge"] {
            let conf = node.conf(json!({"macvlanMode": mode}));
            second
                .add(&conf, "net1")
                .refused(7, &["eth0 cannot have a macvlan child", "passthru", "pod-1"]);
        }
        second
            .add(
                &node.conf(json!({"macvlanMode": "passthru", "mac": "02:00:00:00:00:05"})),
                "net1",
            )
            .refused(7, &["mac is 02:00:00:00:00:05", "passthru", "remove mac"]);
    });
}

#[test]
fn a_passthru_child_never_takes_an_address_of_the_node() {
    Node::run(|node| {
        let (far, pod) = (node.pod(), node.pod());
        node.ip(&format!("link set eth0-far netns {}", far.netns.display()));
        far.ip("link set eth0-far up");
        far.ip("addr add 192.0.2.2/24 dev eth0-far");
        node.ip("addr add 192.0.2.1/24 dev eth0");
        node.socket()
            .wait_for_carrier(node.link("eth0").index, std::time::Duration::from_secs(60))
            .unwrap();
        let receiver = receiver("192.0.2.1");
        let reaches = || {
            far.open().run(|| send("192.0.2.1")).unwrap();
            receives(&receiver)
        };
        assert!(reaches(), "the node does not have its own address");
        let before = node.traces(&[&pod]);
        let conf = node.conf(json!({"macvlanMode": "passthru", "ipam": node.rdma_ipam("10.7.0.0/24")}));
        pod.add(&conf, "net1")
            .refused(7, &["eth0", "mode passthru", "192.0.2.1", "name another master"]);
        node.status(&conf).refused(50, &["eth0", "192.0.2.1"]);
        tests::traces::assert_same(&before, &node.traces(&[&pod]), "after a refused ADD");
        assert!(reaches(), "the node has lost its address");
    });
}

#[test]
fn installed_as_macvlan_passthru_never_takes_the_default_route() {
    Node::run(|node| {
        node.install_as("macvlan");
        node.ip("addr add 192.0.2.1/24 dev eth0");
        node.ip("route add default via 192.0.2.2");
        let conf = node
            .conf(json!({"type": "macvlan", "mode": "passthru"}))
            .without("master");
        let pod = node.pod();
        pod.add(&conf, "net1")
            .refused(7, &["eth0", "mode passthru", "the node's default route"]);
        assert!(pod.links().is_empty());
    });
}

#[test]
fn bridge_is_the_default_mode_on_an_ethernet_parent() {
    Node::run(|node| {
        let pod = node.pod();
        pod.attach(&node.conf(json!({})), "net1");
        assert_eq!(
            pod.link("net1").info,
            LinkInfo::Macvlan {
                mode: MacvlanMode::Bridge
            }
        );
    });
}

#[test]
fn an_unknown_mode_is_refused_with_the_known_modes() {
    Node::run(|node| {
        let pod = node.pod();
        for (keys, code, pieces) in [
            (
                json!({"macvlanMode": "brige"}),
                7,
                ["macvlanMode", "brige", "bridge"],
            ),
            (
                json!({"macvlanMode": "source"}),
                2,
                ["macvlanMode", "source", "list"],
            ),
            (json!({"mode": "bridge"}), 7, ["mode", "bridge", "macvlanMode"]),
        ] {
            pod.add(&node.conf(keys), "net1").refused(code, &pieces);
        }
        assert!(pod.links().is_empty());
    });
}

#[test]
fn mtu_is_applied_and_reported() {
    Node::run(|node| {
        let pod = node.pod();
        let result = pod.attach(&node.conf(json!({"mtu": 1400})), "net1");
        assert_eq!(pod.link("net1").mtu, 1400);
        assert_eq!(result["interfaces"][0]["mtu"], 1400);
        assert_eq!(node.link("eth0").mtu, 1500, "the parent keeps its own");
    });
}

#[test]
fn the_mtu_of_the_parent_is_the_default() {
    Node::run(|node| {
        node.ip("link set eth0 mtu 9000");
        for keys in [json!({}), json!({"mtu": 0})] {
            let pod = node.pod();
            let result = pod.attach(&node.conf(keys), "net1");
            assert_eq!(pod.link("net1").mtu, 9000);
            assert_eq!(result["interfaces"][0]["mtu"], 9000);
        }
    });
}

#[test]
fn an_mtu_above_that_of_the_parent_is_refused_without_a_trace() {
    Node::run(|node| {
        let pod = node.pod();
        let before = node.traces(&[&pod]);
        let conf = node.conf(json!({"mtu": 1501, "ipam": node.rdma_ipam("10.7.0.0/24")}));
        pod.add(&conf, "net1")
            .refused(7, &["mtu 1501", "eth0", "1500", "lower it"]);
        for mtu in [-1, 67] {
            let conf = node.conf(json!({"mtu": mtu}));
            pod.add(&conf, "net1")
                .refused(7, &["mtu", &mtu.to_string(), "68"]);
        }
        tests::traces::assert_same(&before, &node.traces(&[&pod]), "after refused ADDs");
    });
}

#[test]
fn a_pod_can_choose_a_mac_only_if_the_network_has_the_capability() {
    Node::run(|node| {
        let pod = node.pod();
        let before = node.traces(&[&pod]);
        let asked = node.conf(json!({"args": {"cni": {"mac": "02:00:00:00:00:98"}}}));
        pod.add(&asked, "net1")
            .refused(7, &["args.cni.mac", "02:00:00:00:00:98", "capabilities"]);
        let call = pod.call("ADD", &node.conf(json!({})), "net1");
        call.env("CNI_ARGS", "MAC=02:00:00:00:00:98")
            .run()
            .refused(7, &["CNI_ARGS MAC", "capabilities"]);
        tests::traces::assert_same(&before, &node.traces(&[&pod]), "after refused ADDs");
        pod.attach(&asked.with("capabilities", json!({"mac": true})), "net1");
        assert_eq!(pod.link("net1").address.to_string(), "02:00:00:00:00:98");
    });
}

#[test]
fn the_hardware_address_has_four_sources_in_a_fixed_order() {
    Node::run(|node| {
        let all = json!({
            "capabilities": {"mac": true},
            "mac": "02:00:00:00:00:04",
            "args": {"cni": {"mac": "02:00:00:00:00:02"}},
            "runtimeConfig": {"mac": "02:00:00:00:00:01"},
        });
        let args = "MAC=02:00:00:00:00:03";
        let without = |keys: &[&str]| {
            let conf = node.conf(all.clone());
            keys.iter().fold(conf, |conf, key| conf.without(key))
        };
        for (conf, args, expected) in [
            (without(&[]), args, "02:00:00:00:00:01"),
            (without(&["runtimeConfig"]), args, "02:00:00:00:00:02"),
            (without(&["runtimeConfig", "args"]), args, "02:00:00:00:00:03"),
            (without(&["runtimeConfig", "args"]), "", "02:00:00:00:00:04"),
        ] {
            let pod = node.pod();
            let call = pod.call("ADD", &conf, "net1").env("CNI_ARGS", args);
            let result = call.run().result();
            assert_eq!(pod.link("net1").address.to_string(), expected);
            assert_eq!(result["interfaces"][0]["mac"], expected);
        }
    });
}

#[test]
fn an_invalid_hardware_address_is_refused() {
    Node::run(|node| {
        let pod = node.pod();
        let group = "01:00:5e:00:00:01";
        let infiniband = "00:00:00:00:fe:80:00:00:00:00:00:00:52:54:00:ff:fe:00:00:01";
        for mac in [
            group,
            infiniband,
            "00:00:00:00:00:00",
            "02:00:00:00:00",
            "nonsense",
        ] {
            pod.add(&node.conf(json!({"mac": mac})), "net1")
                .refused(7, &["mac", mac]);
        }
        assert!(pod.links().is_empty());
    });
}

#[test]
fn two_children_with_one_hardware_address_are_refused_by_the_kernel() {
    Node::run(|node| {
        let (first, second) = (node.pod(), node.pod());
        let conf = node.conf(json!({"mac": "02:00:00:00:00:01", "ipam": node.rdma_ipam("10.7.0.0/24")}));
        first.attach(&conf, "net1");
        let before = node.traces(&[&first, &second]);
        second
            .add(&conf, "net1")
            .refused(100, &["bring net1 up", "EADDRINUSE"]);
        let after = node.traces(&[&first, &second]);
        tests::traces::assert_same(&before, &after, "after the kernel's refusal");
    });
}

#[test]
fn bcqueuelen_sets_the_length_of_the_broadcast_queue() {
    Node::run(|node| {
        let pod = node.pod();
        pod.attach(&node.conf(json!({"bcqueuelen": 4321})), "net1");
        let shown = pod.ip("-d link show net1");
        // Linux has the attribute since 5.11. An older kernel ignores it.
        let kernel = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap();
        let is_known = !kernel.starts_with("5.10.");
        let is_set = shown.contains("bcqueuelen 4321") && shown.contains("usedbcqueuelen 4321");
        assert_eq!(is_set, is_known, "{kernel}: {shown}");
    });
}

#[test]
fn keys_of_another_mode_are_refused_by_name() {
    Node::run(|node| {
        let pod = node.pod();
        for (keys, key) in [
            (json!({"pkey": "0x8001"}), "pkey"),
            (json!({"ipoibMode": "connected"}), "ipoibMode"),
            (json!({"umcast": true}), "umcast"),
            (json!({"ipvlanMode": "l2"}), "ipvlanMode"),
            (
                json!({"runtimeConfig": {"infinibandGUID": "00:02:c9:03:00:00:00:01"}}),
                "infinibandGUID",
            ),
        ] {
            pod.add(&node.conf(keys), "net1")
                .refused(7, &[key, "the mode is macvlan"]);
        }
    });
}

#[test]
fn children_of_one_parent_reach_each_other() {
    Node::run(|node| {
        let conf = node.conf(json!({"ipam": node.rdma_ipam("10.7.0.0/24")}));
        let (first, second) = (node.pod(), node.pod());
        first.attach(&conf, "net1");
        second.attach(&conf, "net1");
        let there = second.global("net1")[0].clone();
        let there = there.split('/').next().unwrap();
        let reached = first.open().run(|| udp_reaches(&second, there)).unwrap();
        assert!(reached, "no packet from one pod to the other");
    });
}

/// Whether a datagram from the calling thread's namespace reaches `address` in `pod`. It needs no ping(8).
fn udp_reaches(pod: &tests::Pod<'_>, address: &str) -> bool {
    let receiver = pod.open().run(|| receiver(address)).unwrap();
    send(address);
    receives(&receiver)
}

/// A socket of the calling thread's namespace that receives datagrams to `address`.
fn receiver(address: &str) -> UdpSocket {
    let receiver = UdpSocket::bind((address, 7)).unwrap();
    receiver
        .set_read_timeout(Some(std::time::Duration::from_secs(60)))
        .unwrap();
    receiver
}

/// Sends a datagram from the calling thread's namespace to `address`.
fn send(address: &str) {
    let sender = UdpSocket::bind("0.0.0.0:0").unwrap();
    sender.send_to(b"here", (address, 7)).unwrap();
}

fn receives(receiver: &UdpSocket) -> bool {
    let mut buffer = [0; 8];
    receiver
        .recv(&mut buffer)
        .is_ok_and(|size| &buffer[..size] == b"here")
}

#[test]
fn check_accepts_the_macvlan_child_of_a_macvlan_link_of_the_node() {
    Node::run(|node| {
        node.ip("link add link eth0 name own0 type macvlan mode bridge");
        node.ip("link set own0 up");
        let pod = node.pod();
        let conf = node.conf(json!({"mode": "macvlan", "master": "own0"}));
        pod.attach(&conf, "net1");
        assert_eq!(pod.link("net1").parent, Some(node.link("eth0").index));
        pod.check(&conf, "net1").done();
        pod.detach(&conf, "net1");
    });
}
