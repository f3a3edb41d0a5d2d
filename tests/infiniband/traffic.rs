// SPDX-License-Identifier: Apache-2.0
//! Pods reach each other over InfiniBand, by IP and by RDMA.

use crate::fabric::{assert_reaches, link_local, network, on_fabric, pings, soon};
use std::process::Command;
use std::thread;
use tests::{Conf, Node, Pod, json, traces::assert_same};

/// Two pods on these networks reach each other by every address; afterwards nothing is left.
fn reach_each_other(node: &Node, first: &Conf, second: &Conf) {
    let (a, b) = (node.pod(), node.pod());
    let before = node.traces(&[&a, &b]);
    a.attach(first, "net1");
    b.attach(second, "net1");
    assert_reaches(&a, &b);
    assert_reaches(&b, &a);
    let (of_a, of_b) = (link_local(&a), link_local(&b));
    assert_ne!(of_a, of_b, "both pods have one link-local address");
    assert!(
        pings(&a, &format!("{of_b}%net1")),
        "no answer from the link-local address {of_b}"
    );
    a.check(first, "net1").done();
    a.detach(first, "net1");
    b.detach(second, "net1");
    assert_same(&before, &node.traces(&[&a, &b]), "after DEL");
}

#[test]
fn two_pods_on_one_hca_reach_each_other() {
    on_fabric(|node| {
        let conf = network(node, "ib0", &json!({}));
        reach_each_other(node, &conf, &conf);
    });
}

#[test]
fn two_pods_on_two_hcas_reach_each_other() {
    on_fabric(|node| {
        let conf = |master| network(node, master, &json!({}));
        reach_each_other(node, &conf("ib0"), &conf("ib1"));
    });
}

#[test]
fn the_result_has_the_twenty_byte_address_and_the_mtu_of_the_join() {
    on_fabric(|node| {
        let pod = node.pod();
        let conf = network(node, "ib0", &json!({}));
        let result = pod.attach(&conf, "net1");
        let link = pod.link("net1");
        assert_eq!(link.address.len(), 20);
        assert_eq!(result["interfaces"][0]["mac"], link.address.to_string());
        assert_eq!(result["interfaces"][0]["mtu"], 4092);
        assert_eq!(link.mtu, 4092);
        assert_eq!(
            link.address.port_guid(),
            node.link("ib0").address.port_guid(),
            "a child answers at its port's GUID"
        );
        pod.detach(&conf, "net1");
    });
}

#[test]
fn eight_pods_have_eight_link_local_addresses_and_no_duplicate() {
    on_fabric(|node| {
        let conf = network(node, "ib0", &json!({}));
        let pods: Vec<Pod<'_>> = (0..8).map(|_| node.pod()).collect();
        thread::scope(|scope| {
            for pod in &pods {
                scope.spawn(|| pod.attach(&conf, "net1"));
            }
        });
        let mut all: Vec<String> = pods.iter().map(link_local).collect();
        all.sort();
        all.dedup();
        assert_eq!(all.len(), 8, "{all:?}");
        for pod in &pods {
            pod.detach(&conf, "net1");
        }
    });
}

#[test]
fn excluded_addresses_are_skipped_on_every_hca() {
    on_fabric(|node| {
        let conf = |master: &str| {
            let mut ipam = node.rdma_ipam("10.7.0.0/29");
            ipam["network_name"] = json!("fabric");
            ipam["ranges"] = json!([[{
                "subnet": "10.7.0.0/29", "gateway": "none", "exclude": ["10.7.0.1", "10.7.0.3-10.7.0.4"],
            }]]);
            node.conf(json!({"master": master, "name": master, "ipam": ipam}))
        };
        let pods = [node.pod(), node.pod(), node.pod()];
        let mut given = Vec::new();
        for (pod, master) in pods.iter().zip(["ib0", "ib1", "ib0"]) {
            pod.attach(&conf(master), "net1");
            given.extend(pod.global("net1"));
        }
        assert_eq!(given, ["10.7.0.2/29", "10.7.0.5/29", "10.7.0.6/29"]);
        node.pod()
            .add(&conf("ib1"), "net1")
            .refused(110, &["3 of 3 in use"]);
        for (pod, master) in pods.iter().zip(["ib0", "ib1", "ib0"]) {
            pod.detach(&conf(master), "net1");
        }
    });
}

#[test]
fn rdma_writes_go_from_pod_to_pod() {
    on_fabric(|node| {
        let (client, server) = (node.pod(), node.pod());
        let (on_ib0, on_ib1) = (network(node, "ib0", &json!({})), network(node, "ib1", &json!({})));
        client.attach(&on_ib0, "net1");
        server.attach(&on_ib1, "net1");
        let address = server.global("net1")[0].split('/').next().unwrap().to_owned();
        let words = "-F -n 200 -s 4096";
        let listening = || {
            Command::new("ib_write_bw")
                .args(format!("-d softib1 {words}").split(' '))
                .output()
        };
        thread::scope(|scope| {
            let serving = scope.spawn(|| server.open().run(listening).unwrap().unwrap());
            let up = || !server.exec("ss", "-Hltn sport = :18515").stdout.is_empty();
            assert!(soon(up), "ib_write_bw does not listen");
            let output = client.exec("ib_write_bw", &format!("-d softib0 {words} {address}"));
            let text = String::from_utf8_lossy(&output.stdout).into_owned();
            assert!(output.status.success() && text.contains("BW average"), "{text}");
            assert!(serving.join().unwrap().status.success());
        });
        client.detach(&on_ib0, "net1");
        server.detach(&on_ib1, "net1");
    });
}
