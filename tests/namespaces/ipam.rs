// SPDX-License-Identifier: Apache-2.0
//! Every IPAM plugin with `cni-ipoib`, and `rdma-ipam` with the reference plugins.

use tests::{Conf, Node, Pod, json, traces::assert_same};

/// Calls ADD, CHECK and DEL with `conf`; afterwards nothing remains. Returns the pod's address.
fn life(node: &Node, conf: &Conf) -> String {
    let pod = node.pod();
    let before = node.traces(&[&pod]);
    let result = pod.attach(conf, "net1");
    let address = result["ips"][0]["address"].as_str().unwrap().to_owned();
    assert_eq!(pod.global("net1"), std::slice::from_ref(&address));
    pod.check(conf, "net1").done();
    pod.detach(conf, "net1");
    assert_same(&before, &node.traces(&[&pod]), "after DEL");
    address
}

#[test]
fn cni_ipoib_works_with_rdma_ipam() {
    Node::run(|node| {
        assert_eq!(
            life(node, &node.conf(json!({"ipam": node.rdma_ipam("10.7.0.0/24")}))),
            "10.7.0.2/24"
        );
    });
}

#[test]
fn cni_ipoib_works_with_host_local() {
    Node::run(|node| {
        assert_eq!(
            life(node, &node.conf(json!({"ipam": node.host_local("10.8.0.0/24")}))),
            "10.8.0.2/24"
        );
    });
}

#[test]
fn cni_ipoib_works_with_static() {
    Node::run(|node| {
        let ipam = json!({
            "type": "static",
            "addresses": [{"address": "10.9.0.7/24", "gateway": "10.9.0.1"}],
            "routes": [{"dst": "0.0.0.0/0"}],
            "dns": {"nameservers": ["10.9.0.53"]},
        });
        let conf = node.conf(json!({"ipam": ipam}));
        assert_eq!(life(node, &conf), "10.9.0.7/24");
        let pod = node.pod();
        let result = pod.attach(&conf, "net1");
        assert_eq!(result["dns"]["nameservers"][0], "10.9.0.53");
        assert_eq!(
            pod.route("net1", "0.0.0.0/0").gateway,
            Some("10.9.0.1".parse().unwrap())
        );
    });
}

/// Calls ADD, CHECK and DEL of the reference plugin `plugin` with `rdma-ipam`.
pub(crate) fn reference(plugin: &str, keys: &tests::Value) {
    Node::run(|node| {
        let mut conf = node
            .conf(json!({"type": plugin, "ipam": node.rdma_ipam("10.7.0.0/24")}))
            .without("master");
        for (key, value) in keys.as_object().unwrap() {
            conf = conf.with(key, value.clone());
        }
        let pod = node.pod();
        let result = pod.attach(&conf, "net1");
        assert_eq!(result["ips"][0]["address"], "10.7.0.2/24", "{result}");
        assert!(!node.leases().is_empty());
        pod.check(&conf, "net1").done();
        pod.detach(&conf, "net1");
        assert!(pod.links().is_empty());
        assert_eq!(node.leases(), [""; 0]);
    });
}

#[test]
fn the_reference_macvlan_works_with_rdma_ipam() {
    reference("macvlan", &json!({"master": "eth0"}));
}

#[test]
fn the_reference_bridge_works_with_rdma_ipam() {
    reference("bridge", &json!({"bridge": "cni0", "isGateway": true}));
}

#[test]
fn the_reference_ptp_works_with_rdma_ipam() {
    reference("ptp", &json!({}));
}

/// Calls ADD with these additional keys and `CNI_ARGS`.
fn add_with<'n>(node: &'n Node, keys: &tests::Value, args: &str) -> (Pod<'n>, tests::Answer) {
    let mut conf = node.conf(json!({"ipam": node.rdma_ipam("10.7.0.0/24")}));
    for (key, value) in keys.as_object().unwrap() {
        conf = conf.with(key, value.clone());
    }
    let pod = node.pod();
    let answer = pod.call("ADD", &conf, "net1").env("CNI_ARGS", args).run();
    (pod, answer)
}

#[test]
fn a_pod_can_request_an_address_in_any_of_three_places() {
    Node::run(|node| {
        for (keys, args, expected) in [
            (
                json!({"runtimeConfig": {"ips": ["10.7.0.50"]}}),
                "IP=10.7.0.52",
                "10.7.0.50/24",
            ),
            (
                json!({"args": {"cni": {"ips": ["10.7.0.51/24"]}}}),
                "IP=10.7.0.52",
                "10.7.0.51/24",
            ),
            (json!({}), "IP=10.7.0.52", "10.7.0.52/24"),
        ] {
            let (pod, answer) = add_with(node, &keys, args);
            answer.result();
            assert_eq!(pod.global("net1"), [expected]);
        }
    });
}

#[test]
fn a_requested_address_of_another_pod_is_refused_with_its_owner() {
    Node::run(|node| {
        let keys = json!({"runtimeConfig": {"ips": ["10.7.0.50"]}});
        let (owner, answer) = add_with(node, &keys, "");
        answer.result();
        let (pod, answer) = add_with(node, &keys, "");
        answer.refused(111, &["10.7.0.50", &owner.id]);
        assert!(pod.links().is_empty());
    });
}

#[test]
fn a_requested_address_must_be_in_range_not_excluded_and_named_once() {
    Node::run(|node| {
        for (address, code) in [
            ("10.99.0.1", 112),
            ("10.7.0.0", 113),
            ("10.7.0.1", 113),
            ("10.7.0.255", 113),
        ] {
            let (pod, answer) = add_with(node, &json!({"runtimeConfig": {"ips": [address]}}), "");
            answer.refused(code, &[address]);
            assert!(pod.links().is_empty());
        }
        let twice = json!({"runtimeConfig": {"ips": ["10.7.0.9", "10.7.0.9"]}});
        add_with(node, &twice, "").1.refused(7, &["10.7.0.9"]);
        assert_eq!(node.leases(), [""; 0]);
    });
}

#[test]
fn a_whereabouts_configuration_works_after_it_sets_per_node() {
    Node::run(|node| {
        let mut ipam = json!({
            "type": "rdma-ipam", "dataDir": node.path("rdma-ipam"),
            "datastore": "kubernetes",
            "kubernetes": {"kubeconfig": "/etc/cni/net.d/whereabouts.d/whereabouts.kubeconfig"},
            "range": "192.168.5.152/27", "exclude": ["192.168.5.151/32"],
            "log_file": "/var/log/whereabouts.log", "log_level": "info",
        });
        let refused = node.pod().add(&node.conf(json!({"ipam": ipam})), "net1");
        refused.refused(2, &["unique in the cluster", "ipam.pool", "perNode"]);
        ipam["perNode"] = json!(true);
        let conf = node.conf(json!({"ipam": ipam}));
        let pod = node.pod();
        let answer = pod.add(&conf, "net1");
        answer.result();
        assert_eq!(
            pod.global("net1"),
            ["192.168.5.129/27"],
            "without range_start it begins at the subnet's start"
        );
        assert!(
            answer.stderr.contains("192.168.5.129"),
            "the warning names the address: {answer}"
        );
    });
}
