// SPDX-License-Identifier: Apache-2.0
//! The results of IPAM plugins, and the addresses and routes that the pod gets from them. The results come from the
//! reference `static` plugin or, if that cannot return a case, from a script.

use common::netlink::TABLE_MAIN;
use std::net::UdpSocket;
use std::time::Duration;
use tests::{Conf, Node, Pod, Value, json};

/// A network whose IPAM plugin returns `result`.
fn scripted(node: &Node, result: &Value) -> Conf {
    node.conf(json!({"ipam": node.scripted_ipam(result)}))
}

fn attached<'n>(node: &'n Node, result: &Value) -> (Pod<'n>, Value) {
    let pod = node.pod();
    let answer = pod.attach(&scripted(node, result), "net1");
    (pod, answer)
}

#[test]
fn addresses_of_both_families_are_usable_right_after_add() {
    Node::run(|node| {
        let ipam = node.dual_stack_ipam();
        let pod = node.pod();
        let result = pod.attach(&node.conf(json!({"ipam": ipam})), "net1");
        let mut expected = result["ips"]
            .as_array()
            .unwrap()
            .iter()
            .map(|ip| ip["address"].as_str().unwrap().to_owned())
            .collect::<Vec<_>>();
        let mut actual = pod.global("net1");
        expected.sort();
        actual.sort();
        assert_eq!(actual, expected);
        let v6 = pod
            .addresses("net1")
            .into_iter()
            .find(|a| a.address.is_ipv6() && a.scope == 0)
            .unwrap();
        assert!(!v6.tentative && !v6.dad_failed, "{v6:?}");
    });
}

#[test]
fn the_kernel_announces_the_addresses_and_answers_only_for_those_of_the_link() {
    Node::run(|node| {
        let ipam = node.dual_stack_ipam();
        let pod = node.pod();
        pod.attach(&node.conf(json!({"ipam": ipam})), "net1");
        pod.attach(&node.conf(json!({"ipam": ipam, "policyRouting": "off"})), "net2");
        let settings = |of: &str| {
            ["arp_notify", "arp_announce", "arp_ignore", "rp_filter"]
                .map(|key| pod.sysctl(&format!("ipv4/conf/{of}/{key}")))
        };
        assert_eq!(settings("net1"), ["1", "2", "1", "2"]);
        let [_, announce, ignore, filter] = settings("default");
        assert_eq!(settings("net2"), ["1".to_owned(), announce, ignore, filter]);
        for link in ["net1", "net2"] {
            assert_eq!(
                pod.sysctl(&format!("ipv6/conf/{link}/ndisc_notify")),
                "1",
                "{link}"
            );
        }
    });
}

/// Whether a datagram to an address of the pod reaches a socket of the pod. The kernel of a busy machine may lose some.
fn reaches_itself(pod: &Pod<'_>, address: &str) -> bool {
    let sent_and_received = || {
        let socket = UdpSocket::bind((address, 0)).unwrap();
        socket.set_read_timeout(Some(Duration::from_secs(1))).unwrap();
        (0..60).any(|_| {
            socket.send_to(b"here", socket.local_addr().unwrap()).unwrap();
            socket.recv(&mut [0; 8]).is_ok()
        })
    };
    pod.open().run(sent_and_received).unwrap()
}

#[test]
fn ipv6_is_enabled_on_the_interface_although_the_pod_disables_it() {
    Node::run(|node| {
        let pod = node.pod();
        // A node that was started with ipv6.disable_ipv6=1 has both settings in each new namespace.
        for links in ["default", "all"] {
            let file = format!("/proc/sys/net/ipv6/conf/{links}/disable_ipv6");
            let off = || std::fs::write(&file, "1");
            pod.open().run(off).unwrap().unwrap();
        }
        let conf = node.conf(json!({"ipam": node.rdma_ipam("fd00:7::/64")}));
        let result = pod.attach(&conf, "net1");
        assert_eq!(pod.sysctl("ipv6/conf/net1/disable_ipv6"), "0");
        assert_eq!(pod.global("net1").len(), 1);
        pod.check(&conf, "net1").done();
        let address = result["ips"][0]["address"].as_str().unwrap();
        assert!(
            reaches_itself(&pod, address.split('/').next().unwrap()),
            "IPv6 is disabled on lo, which has {}",
            pod.sysctl("ipv6/conf/lo/disable_ipv6")
        );
    });
}

#[test]
fn an_interface_that_was_down_still_has_its_ipv6_address() {
    Node::run(|node| {
        let pod = node.pod();
        let conf = node.conf(json!({"ipam": node.rdma_ipam("fd00:7::/64")}));
        pod.attach(&conf, "net1");
        let before = pod.global("net1");
        pod.ip("link set net1 down");
        pod.ip("link set net1 up");
        assert_eq!(pod.global("net1"), before);
        pod.detach(&conf, "net1");
    });
}

#[test]
fn a_default_route_of_the_network_takes_no_traffic_from_the_pods_own() {
    Node::run(|node| {
        let result = json!({
            "cniVersion": "1.1.0",
            "ips": [
                {"address": "10.7.0.5/24", "gateway": "10.7.0.1"},
                {"address": "fd00:7::5/64", "gateway": "fd00:7::1"},
            ],
            "routes": [{"dst": "0.0.0.0/0"}, {"dst": "::/0"}],
        });
        let conf = scripted(node, &result);
        let pod = node.pod();
        let eth0 = node.conf(json!({"name": "cluster"})).without("ipam");
        pod.attach(&eth0, "eth0");
        for words in [
            "addr add 10.244.0.9/24 dev eth0",
            "route add default via 10.244.0.1",
            "addr add fd44::9/64 dev eth0 nodad",
            "-6 route add default via fd44::1",
        ] {
            pod.ip(words);
        }
        pod.attach(&conf, "net1");
        for dst in [
            "8.8.8.8",
            "2001:db8::1",
            "2001:db8::2",
            "2001:db8::3",
            "2001:db8::4",
            "2001:db8::5",
        ] {
            let route = pod.ip(&format!("route get {dst}"));
            assert!(route.contains("dev eth0"), "{dst}: {route}");
        }
        let shared = pod.ip("-6 route show default");
        assert!(!shared.contains("nexthop"), "{shared}");
        assert!(
            shared.contains("via fd00:7::1 dev net1") && shared.contains("metric 2048"),
            "{shared}"
        );
        pod.check(&conf, "net1").done();
        pod.ip("-6 route del default via fd44::1 dev eth0");
        let alone = pod.ip("route get 2001:db8::1");
        assert!(alone.contains("dev net1"), "without another it serves: {alone}");
    });
}

#[test]
fn every_field_of_a_route_reaches_the_kernel() {
    Node::run(|node| {
        let (pod, result) = attached(
            node,
            &json!({
                "cniVersion": "1.1.0",
                "ips": [{"address": "10.7.0.5/24", "gateway": "10.7.0.1"}],
                "routes": [
                    {"dst": "10.8.0.0/16", "mtu": 1300, "advmss": 1200, "priority": 77},
                    {"dst": "10.9.0.0/16", "gw": "10.7.0.9", "table": 1000},
                    {"dst": "10.10.0.0/16", "gw": "10.7.0.10", "scope": 0},
                ],
            }),
        );
        assert_eq!(result["routes"].as_array().unwrap().len(), 3);
        let first = pod.route("net1", "10.8.0.0/16");
        assert_eq!(
            first.gateway,
            Some("10.7.0.1".parse().unwrap()),
            "the address' gateway"
        );
        assert_eq!(
            (first.mtu, first.advmss, first.priority, first.table),
            (Some(1300), Some(1200), Some(77), Some(TABLE_MAIN))
        );
        let second = pod.route("net1", "10.9.0.0/16");
        assert_eq!(
            (second.gateway, second.table),
            (Some("10.7.0.9".parse().unwrap()), Some(1000))
        );
        assert_eq!(pod.route("net1", "10.10.0.0/16").scope, Some(0));
    });
}

#[test]
fn a_link_scoped_route_without_gateway_leads_to_the_link() {
    Node::run(|node| {
        let (pod, _) = attached(
            node,
            &json!({
                "cniVersion": "1.1.0",
                "ips": [{"address": "10.7.0.5/24"}],
                "routes": [{"dst": "10.8.0.0/16", "scope": 253}, {"dst": "10.9.0.0/16"}],
            }),
        );
        for dst in ["10.8.0.0/16", "10.9.0.0/16"] {
            let route = pod.route("net1", dst);
            assert_eq!((route.gateway, route.scope), (None, Some(253)), "{dst}");
        }
    });
}

#[test]
fn a_host_prefix_address_gets_an_on_link_route_to_its_gateway() {
    Node::run(|node| {
        let (pod, _) = attached(
            node,
            &json!({
                "cniVersion": "1.1.0",
                "ips": [
                    {"address": "10.7.0.5/32", "gateway": "10.99.0.1"},
                    {"address": "fd00:7::5/128", "gateway": "fd00:99::1"},
                ],
                "routes": [{"dst": "0.0.0.0/0"}, {"dst": "::/0"}, {"dst": "fd00:8::/32", "gw": "fe80::1"}],
            }),
        );
        let v4 = pod.route("net1", "0.0.0.0/0");
        assert_eq!(
            (v4.gateway, v4.onlink),
            (Some("10.99.0.1".parse().unwrap()), true)
        );
        let v6 = pod.route("net1", "::/0");
        assert_eq!(
            (v6.gateway, v6.onlink),
            (Some("fd00:99::1".parse().unwrap()), true)
        );
        let link_local = pod.route("net1", "fd00:8::/32");
        assert!(!link_local.onlink, "a link-local gateway is on every link");
    });
}

#[test]
fn two_routes_to_one_destination_are_both_installed() {
    Node::run(|node| {
        let (pod, _) = attached(
            node,
            &json!({
                "cniVersion": "1.1.0",
                "ips": [{"address": "10.7.0.5/24"}],
                "routes": [{"dst": "10.8.0.0/16", "gw": "10.7.0.1"}, {"dst": "10.8.0.0/16", "gw": "10.7.0.2"}],
            }),
        );
        let gateways = pod
            .routes("net1")
            .iter()
            .filter(|r| r.dst.to_string() == "10.8.0.0/16")
            .count();
        assert_eq!(gateways, 2);
    });
}

#[test]
fn a_route_that_the_kernel_refuses_is_named_and_add_is_undone() {
    Node::run(|node| {
        let pod = node.pod();
        let before = node.traces(&[&pod]);
        let conf = scripted(
            node,
            &json!({
                "cniVersion": "1.1.0",
                "ips": [{"address": "10.7.0.5/24"}],
                "routes": [{"dst": "10.8.0.0/16", "gw": "10.7.0.1", "scope": 253}],
            }),
        );
        pod.add(&conf, "net1").refused(
            100,
            &[
                "route to 10.8.0.0/16 via 10.7.0.1 on net1",
                "Nexthop has invalid gateway",
            ],
        );
        tests::traces::assert_same(&before, &node.traces(&[&pod]), "after a refused route");
    });
}

#[test]
fn without_ipam_the_link_is_up_and_has_no_address() {
    Node::run(|node| {
        for keys in [json!({}), json!({"ipam": {}})] {
            let pod = node.pod();
            let conf = node.conf(keys);
            let result = pod.attach(&conf, "net1");
            assert!(
                result.get("ips").is_none() && result.get("routes").is_none(),
                "{result}"
            );
            assert!(pod.link("net1").up);
            assert!(pod.global("net1").is_empty());
            pod.check(&conf, "net1").done();
            pod.detach(&conf, "net1");
            assert!(pod.links().is_empty());
        }
    });
}

#[test]
fn dns_of_the_configuration_takes_precedence_over_the_ipam_plugin() {
    Node::run(|node| {
        let result = json!({
            "cniVersion": "1.1.0",
            "ips": [{"address": "10.7.0.5/24"}],
            "dns": {"nameservers": ["192.0.2.1"], "search": ["ipam.example"]},
        });
        let conf = scripted(node, &result);
        let answer = node.pod().attach(&conf, "net1");
        assert_eq!(answer["dns"], result["dns"]);
        let own = json!({"nameservers": ["192.0.2.9"], "domain": "own.example", "options": ["ndots:2"]});
        let answer = node.pod().attach(&conf.with("dns", own.clone()), "net1");
        assert_eq!(answer["dns"], own);
    });
}

/// A pod whose IPAM plugin requests a probe of its address, and a pod that has the address `holder`.
fn probed<'n>(node: &'n Node, holder: &str, address: &str) -> (Pod<'n>, Pod<'n>, Conf) {
    let (first, _) = attached(node, &json!({"ips": [{"address": holder}]}));
    let conf = scripted(
        node,
        &json!({"ips": [{"address": address, "rdmanet.io/probe": true}]}),
    );
    (first, node.pod(), conf)
}

#[test]
fn a_probe_refuses_an_address_of_another_pod_and_names_its_mac() {
    Node::run(|node| {
        for address in ["10.7.0.2/24", "fd00:7::2/64"] {
            let (holder, pod, conf) = probed(node, address, address);
            let mac = holder.link("net1").address.to_string();
            let ip = address.split('/').next().unwrap();
            pod.add(&conf, "net1")
                .refused(105, &[ip, &mac, "another host has the address"]);
            assert!(pod.link_names().is_empty(), "nothing is left of the refused ADD");
        }
    });
}

#[test]
fn a_probed_address_without_an_answer_is_assigned() {
    Node::run(|node| {
        for (holder, address) in [("10.7.0.2/24", "10.7.0.3/24"), ("fd00:7::2/64", "fd00:7::3/64")] {
            let (_holder, pod, conf) = probed(node, holder, address);
            let answer = pod.attach(&conf, "net1");
            assert_eq!(pod.global("net1"), [address]);
            let note = &answer["ips"][0]["rdmanet.io/probe"];
            assert!(
                note.is_null(),
                "only the main plugin receives the probe mark: {note}"
            );
            pod.check(&conf, "net1").done();
        }
    });
}

#[test]
fn an_address_in_cooldown_is_allocated_when_no_other_is_free() {
    Node::run(|node| {
        // The subnet has one address besides the gateway's.
        let mut ipam = node.rdma_ipam("10.7.0.0/30");
        ipam["cooldown"] = json!(3600);
        let conf = node.conf(json!({"ipam": ipam}));
        let (first, second) = (node.pod(), node.pod());
        let address = first.attach(&conf, "net1")["ips"][0]["address"].clone();
        first.detach(&conf, "net1");
        assert_eq!(second.attach(&conf, "net1")["ips"][0]["address"], address);
    });
}
