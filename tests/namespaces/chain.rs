// SPDX-License-Identifier: Apache-2.0
//! Lists of plugins: ADD passes the result of earlier plugins on, and changes by later plugins do no harm.

use tests::{Conf, Node, Value, json};

/// The result of the first plugin of a list, such as the cluster's pod network.
fn before() -> Value {
    json!({
        "cniVersion": "1.1.0",
        "interfaces": [{"name": "veth1"}, {"name": "eth0", "mac": "02:00:00:00:00:09", "sandbox": "/run/netns/x"}],
        "ips": [{"address": "10.244.0.9/24", "gateway": "10.244.0.1", "interface": 1}],
        "routes": [{"dst": "0.0.0.0/0", "gw": "10.244.0.1"}],
        "dns": {"nameservers": ["10.96.0.10"]},
    })
}

fn chained(node: &Node) -> Conf {
    node.conf(json!({"ipam": node.rdma_ipam("10.7.0.0/24"), "prevResult": before()}))
}

#[test]
fn prev_result_is_passed_on_with_our_result_appended() {
    Node::run(|node| {
        let pod = node.pod();
        let result = pod.attach(&chained(node), "net1");
        let interfaces = result["interfaces"].as_array().unwrap();
        assert_eq!(interfaces[..2], before()["interfaces"].as_array().unwrap()[..]);
        assert_eq!(interfaces[2]["name"], "net1");
        let ips = result["ips"].as_array().unwrap();
        assert_eq!(ips[0], before()["ips"][0]);
        assert_eq!(
            ips[1]["interface"], 2,
            "the address refers to the plugin's interface"
        );
        assert_eq!(result["routes"][0], before()["routes"][0]);
        assert_eq!(result["dns"], before()["dns"]);
    });
}

#[test]
fn check_compares_only_our_part_of_a_chained_result() {
    Node::run(|node| {
        let pod = node.pod();
        let conf = chained(node);
        pod.attach(&conf, "net1");
        pod.check(&conf, "net1").done();
        pod.detach(&conf, "net1");
        assert!(pod.links().is_empty());
    });
}

#[test]
fn check_passes_after_a_chained_plugin_tuned_the_pod() {
    Node::run(|node| {
        let pod = node.pod();
        let conf = node.conf(json!({"ipam": node.rdma_ipam("10.7.0.0/24")}));
        let result = pod.attach(&conf, "net1");
        let tuning = Conf::new(json!({
            "cniVersion": "1.1.0", "name": "net-a", "type": "tuning",
            "sysctl": {"net.ipv4.conf.net1.arp_notify": "1"}, "dataDir": node.path("tuning"), "prevResult": result,
        }));
        let passed = pod.call("ADD", &tuning, "net1").run().result();
        assert_eq!(
            passed["interfaces"], result["interfaces"],
            "tuning passed the result on unchanged"
        );
        pod.keep(&conf, "net1", &passed);
        assert_eq!(pod.sysctl("ipv4/conf/net1/arp_notify"), "1");
        pod.ip("route add 10.55.0.0/16 dev net1");
        pod.check(&conf, "net1").done();
    });
}

#[test]
fn an_invalid_prev_result_is_refused_with_its_path() {
    Node::run(|node| {
        let pod = node.pod();
        for (prev, piece) in [
            (json!([]), "prevResult"),
            (json!({"ips": [{"address": "nonsense"}]}), "ips[0].address"),
            (
                json!({"interfaces": [{"name": "eth0"}], "ips": [{"address": "10.1.1.1/24", "interface": 4}]}),
                "interface 4",
            ),
        ] {
            let conf = node.conf(json!({})).with("prevResult", prev);
            pod.add(&conf, "net1").refused(6, &["prevResult", piece]);
        }
        assert!(pod.links().is_empty());
    });
}

#[test]
fn two_networks_and_two_interfaces_of_one_pod_do_not_disturb_each_other() {
    Node::run(|node| {
        let pod = node.pod();
        let a = node.conf(json!({"ipam": node.rdma_ipam("10.7.0.0/24")}));
        let b = node
            .conf(json!({"ipam": node.rdma_ipam("10.8.0.0/24")}))
            .named("net-b");
        pod.attach(&a, "net1");
        pod.attach(&a, "net2");
        pod.attach(&b, "net3");
        pod.detach(&a, "net1");
        assert_eq!(pod.link_names(), ["net2", "net3"]);
        pod.check(&a, "net2").done();
        pod.check(&b, "net3").done();
        pod.detach(&b, "net3");
        pod.detach(&a, "net2");
        assert!(node.leases().is_empty());
    });
}
