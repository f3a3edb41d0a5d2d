// SPDX-License-Identifier: Apache-2.0
//! Eight rails in one pod: every pair of rails of two pods communicates, on the intended interfaces.
//!
//! The test counts the bytes that each interface sent. Every pair exchanges a different number of echo requests. Each
//! request is larger than all traffic of ARP, neighbour discovery and multicast in that time. A busy machine may lose
//! one of the requests.

use crate::fabric::{address, network, reaches, run_on};
use std::collections::BTreeMap;
use std::fs;
use std::thread;
use std::time::{Duration, Instant};
use tests::{Conf, Node, Pod, Value, json, traces::assert_same};

const RAILS: usize = 8;
/// Payload of an echo request, in bytes.
const PAYLOAD: u64 = 1400;

/// The number of echo requests to a rail: at least three, and different for each rail.
const fn requests_to(rail: usize) -> usize {
    rail + 3
}

fn ifname(rail: usize) -> String {
    format!("net{}", rail + 1)
}

/// The router's address in the subnet of a rail.
fn router(rail: usize, ipv6: bool) -> String {
    let subnet = rail + 1;
    if ipv6 {
        format!("fd00:8:{subnet}::1")
    } else {
        format!("10.8.{subnet}.1")
    }
}

/// The networks of the rails: all in one subnet, or each in its own with a route to the others through a router.
fn rails(node: &Node, one_subnet: bool, keys: &Value) -> Vec<Conf> {
    let rail = |rail: usize| {
        let mut ipam = node.rdma_ipam("");
        let subnet = if one_subnet { 0 } else { rail + 1 };
        ipam["ranges"] = json!([
            [{"subnet": format!("10.8.{subnet}.0/24")}], [{"subnet": format!("fd00:8:{subnet}::/64")}]
        ]);
        if one_subnet {
            ipam["network_name"] = json!("rails");
        } else {
            ipam["routes"] = json!([
                {"dst": "10.8.0.0/16", "gw": router(rail, false)}, {"dst": "fd00:8::/32", "gw": router(rail, true)}
            ]);
        }
        let mut all = keys.clone();
        all["master"] = json!(format!("ib{rail}"));
        all["ipam"] = ipam;
        network(node, &all).named(&format!("rail{rail}"))
    };
    (0..RAILS).map(rail).collect()
}

/// A pod on every rail, with strict reverse path filtering on all interfaces, as images of distributions set it.
struct RailPod<'n> {
    pod: Pod<'n>,
    results: Vec<Value>,
}

impl<'n> RailPod<'n> {
    fn new(node: &'n Node, confs: &[Conf]) -> Self {
        let pod = node.pod();
        let strict =
            || ["all", "default"].map(|of| fs::write(format!("/proc/sys/net/ipv4/conf/{of}/rp_filter"), "1"));
        for written in pod.open().run(strict).unwrap() {
            written.unwrap();
        }
        let attach = |rail: usize| pod.attach(&confs[rail], &ifname(rail));
        let results = (0..RAILS).map(attach).collect();
        Self { pod, results }
    }

    fn address(&self, rail: usize, ipv6: bool) -> String {
        address(&self.results[rail], ipv6)
    }

    /// The bytes that each rail has sent since its creation.
    fn sent(&self) -> Vec<u64> {
        let links: Vec<Value> = serde_json::from_str(&self.pod.ip("-s -j link show")).unwrap();
        let bytes: BTreeMap<&str, u64> = links
            .iter()
            .map(|link| {
                (
                    link["ifname"].as_str().unwrap(),
                    link["stats64"]["tx"]["bytes"].as_u64().unwrap(),
                )
            })
            .collect();
        (0..RAILS).map(|rail| bytes[ifname(rail).as_str()]).collect()
    }

    fn detach(&self, confs: &[Conf]) {
        for (rail, conf) in confs.iter().enumerate() {
            self.pod.check(conf, &ifname(rail)).done();
            self.pod.detach(conf, &ifname(rail));
        }
    }
}

/// Sends an echo request from every rail of `a` to every rail of `b`, so that both pods know all neighbours.
fn resolve_neighbours(a: &RailPod<'_>, b: &RailPod<'_>, ipv6: bool) {
    thread::scope(|scope| {
        for from in 0..RAILS {
            scope.spawn(move || {
                let source = a.address(from, ipv6);
                for to in 0..RAILS {
                    reaches(&a.pod, &format!("-I {source} {}", b.address(to, ipv6)));
                }
            });
        }
    });
}

/// Sends echo requests from rail `from` of `a` to each rail of `b`. Returns the bytes that every rail of both pods sent
/// meanwhile.
fn ping_all(a: &RailPod<'_>, from: usize, b: &RailPod<'_>, ipv6: bool) -> [Vec<u64>; 2] {
    let before = [a.sent(), b.sent()];
    let source = a.address(from, ipv6);
    thread::scope(|scope| {
        for to in 0..RAILS {
            let target = b.address(to, ipv6);
            let words = format!(
                "-q -c {} -i 0.05 -W 3 -s {PAYLOAD} -I {source} {target}",
                requests_to(to)
            );
            scope.spawn(move || {
                let output = a.pod.exec("ping", &words);
                assert!(output.status.success(), "no reply: ping {words}");
            });
        }
    });
    let since = |after: Vec<u64>, before: &[u64]| after.iter().zip(before).map(|(a, b)| a - b).collect();
    [since(a.sent(), &before[0]), since(b.sent(), &before[1])]
}

/// Converts bytes to a number of echo requests or replies. The other traffic is smaller than one request.
fn requests(bytes: u64, ipv6: bool) -> u64 {
    // The headers of IPoIB, ICMP and IP.
    bytes / (PAYLOAD + 4 + 8 + if ipv6 { 40 } else { 20 })
}

/// Tests every pair of rails, with both address families.
fn all_pairs(a: &RailPod<'_>, b: &RailPod<'_>) {
    for ipv6 in [false, true] {
        resolve_neighbours(a, b, ipv6);
        for from in 0..RAILS {
            let [by_a, by_b] = ping_all(a, from, b, ipv6);
            let case = format!(
                "from {} (IPv6: {ipv6}): {by_a:?}, answered by {by_b:?}",
                ifname(from)
            );
            for rail in 0..RAILS {
                // A busy machine may lose datagrams, but no rail may send those of another. The number of requests
                // differs for each rail, so a rail that sends replies of another exceeds its number.
                let sent = requests(by_a[rail], ipv6);
                assert!(if rail == from { sent > 45 } else { sent == 0 }, "{case}");
                let answered = requests(by_b[rail], ipv6);
                assert!(answered >= 1 && answered <= requests_to(rail) as u64, "{case}");
            }
        }
    }
}

/// A pod that forwards between the subnets of all rails.
fn routing<'n>(node: &'n Node, confs: &[Conf]) -> RailPod<'n> {
    let pod = node.pod();
    let attach = |(rail, conf): (usize, &Conf)| {
        let result = pod.attach(&conf.clone().without("ipam"), &ifname(rail));
        pod.ip(&format!(
            "addr add {}/24 dev {}",
            router(rail, false),
            ifname(rail)
        ));
        pod.ip(&format!(
            "addr add {}/64 dev {} nodad",
            router(rail, true),
            ifname(rail)
        ));
        result
    };
    let results = confs.iter().enumerate().map(attach).collect();
    let forward = || {
        ["ipv4/ip_forward", "ipv6/conf/all/forwarding"]
            .map(|key| fs::write(format!("/proc/sys/net/{key}"), "1"))
    };
    for written in pod.open().run(forward).unwrap() {
        written.unwrap();
    }
    RailPod { pod, results }
}

fn two_pods_on_eight_rails(one_subnet: bool) {
    run_on(RAILS, |node| {
        let confs = rails(node, one_subnet, &json!({}));
        let before = node.traces(&[]);
        let router = (!one_subnet).then(|| routing(node, &confs));
        let [a, b] = [(); 2].map(|()| RailPod::new(node, &confs));
        all_pairs(&a, &b);
        for (rail, conf) in confs.iter().enumerate() {
            let default = a
                .pod
                .all_routes(&ifname(rail))
                .into_iter()
                .filter(|route| route.dst.prefix() == 0);
            assert_eq!(
                default.count(),
                0,
                "no configuration requests a default route: {conf:?}"
            );
        }
        for railed in [&a, &b] {
            railed.detach(&confs);
            let left = railed.pod.socket().rules().unwrap();
            assert!(left.iter().all(|rule| rule.from.prefix() == 0), "{left:?}");
        }
        if let Some(router) = router {
            let confs: Vec<Conf> = confs.iter().map(|conf| conf.clone().without("ipam")).collect();
            router.detach(&confs);
        }
        assert_same(&before, &node.traces(&[]), "after DEL");
    });
}

#[test]
fn eight_rails_of_one_subnet_exchange_traffic_without_crossing() {
    two_pods_on_eight_rails(true);
}

#[test]
fn eight_routed_rails_of_different_subnets_exchange_traffic_without_crossing() {
    two_pods_on_eight_rails(false);
}

/// The reverse of the two tests above: without policy routing, traffic uses the wrong rail.
#[test]
fn without_policy_routing_rails_of_one_subnet_cross() {
    run_on(RAILS, |node| {
        let confs = rails(node, true, &json!({"policyRouting": "off"}));
        let [a, b] = [(); 2].map(|()| node.pod());
        let results: Vec<Value> = (0..RAILS)
            .map(|rail| {
                a.attach(&confs[rail], &ifname(rail));
                b.attach(&confs[rail], &ifname(rail))
            })
            .collect();
        let [a, b] = [a, b].map(|pod| RailPod {
            pod,
            results: results.clone(),
        });
        let before = b.sent();
        let start = Instant::now();
        while requests(b.sent()[0] - before[0], false) < 5 && start.elapsed() < Duration::from_secs(60) {
            let words = format!(
                "-q -c 5 -i 0.05 -W 1 -s {PAYLOAD} {}",
                address(&results[5], false)
            );
            a.pod.exec("ping", &words);
        }
        let sent: Vec<u64> = b
            .sent()
            .iter()
            .zip(&before)
            .map(|(now, then)| now - then)
            .collect();
        assert!(
            requests(sent[0], false) >= 5,
            "requests to net6, replies from net1: {sent:?}"
        );
        assert_eq!(requests(sent[5], false), 0, "{sent:?}");
        a.detach(&confs);
        b.detach(&confs);
    });
}
