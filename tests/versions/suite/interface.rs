// SPDX-License-Identifier: Apache-2.0
//! `cni-ipoib`: two versions of both plugins on the journal, the leases and the links of one node.

use nix::sys::signal::Signal;
use std::os::unix::fs::symlink;
use tests::collector::{Collector, POD_ARGS};
use tests::faults::{Faults, Verb};
use tests::{Conf, Node, Version, json, traces};

const BOTH: [Version; 2] = [Version::Earlier, Version::Today];

fn network(node: &Node) -> Conf {
    node.conf(json!({ "ipam": node.rdma_ipam("10.7.0.0/24") }))
}

/// Whether the version takes a complete ADD of today for an interrupted one. Versions without a controller do: they stop to read the
/// journal at the note of the IPAM plugin's process.
fn forgets_that_add_is_complete(version: Version) -> bool {
    !version.has_controller()
}

#[test]
fn each_version_checks_and_removes_interfaces_of_the_other() {
    for first in BOTH {
        Node::run(|node| {
            let conf = network(node);
            let pod = node.pod();
            node.use_plugins(first);
            pod.attach(&conf, "net1");
            let attached = node.traces(&[&pod]);
            node.use_plugins(first.other());
            pod.check(&conf, "net1").done();
            let again = pod.add(&conf, "net1");
            if forgets_that_add_is_complete(first.other()) {
                // It replaces the interface and its lease by new ones.
                again.result();
                pod.check(&conf, "net1").done();
                assert_eq!(node.leases().len(), 2, "one lease and one address");
            } else {
                again.refused(101, &["net1"]);
                traces::assert_same(&attached, &node.traces(&[&pod]), "after a refused ADD");
            }
            pod.detach(&conf, "net1");
            assert!(
                pod.links().is_empty() && node.leases().is_empty(),
                "{first:?} first"
            );
            assert_eq!(node.traces(&[&pod]).attachments, [""; 0], "{first:?} first");
        });
    }
}

#[test]
fn gc_of_each_version_removes_interfaces_of_the_other_and_keeps_valid_ones() {
    for first in BOTH {
        Node::run(|node| {
            let conf = network(node);
            let pods = [node.pod(), node.pod(), node.pod()];
            node.use_plugins(first);
            for pod in &pods {
                pod.attach(&conf, "net1");
            }
            pods[2].die();
            node.use_plugins(first.other());
            node.gc(&conf, &[(&pods[0].id, "net1")]).done();
            assert_eq!(pods[0].link_names(), ["net1"]);
            assert!(pods[1].links().is_empty(), "{first:?} first");
            assert_eq!(node.leases().len(), 2, "{:?}", node.leases());
            pods[0].check(&conf, "net1").done();
            node.use_plugins(first);
            node.gc(&conf, &[]).done();
            assert!(pods[0].links().is_empty() && node.leases().is_empty());
            let left = node.traces(&[]);
            assert_eq!(left.attachments, [""; 0], "{first:?} first");
            // An earlier version leaves the files of today that count the attachments it removes.
            assert_eq!(left.beside, [""; 0], "{first:?} first");
        });
    }
}

#[test]
fn pods_of_two_versions_share_a_network_without_a_common_address() {
    Node::run(|node| {
        let conf = network(node);
        let pods: Vec<_> = (0..6).map(|_| node.pod()).collect();
        for (i, pod) in pods.iter().enumerate() {
            node.use_plugins(BOTH[i % 2]);
            pod.attach(&conf, "net1");
        }
        let mut given: Vec<String> = pods.iter().flat_map(|pod| pod.global("net1")).collect();
        given.sort();
        given.dedup();
        assert_eq!(given.len(), 6, "{given:?}");
        for (i, pod) in pods.iter().enumerate() {
            node.use_plugins(BOTH[i / 2 % 2]);
            pod.check(&conf, "net1").done();
            pod.detach(&conf, "net1");
        }
        assert!(node.leases().is_empty() && node.traces(&[]).attachments.is_empty());
    });
}

/// The installer replaces one plugin after the other, so for a moment a node has `cni-ipoib` of one version and `rdma-ipam` of
/// the other.
#[test]
fn each_plugin_works_with_the_other_plugin_of_another_version() {
    for interface in BOTH {
        Node::run(|node| {
            let conf = network(node);
            let pod = node.pod();
            let addresses = interface.other().plugins().join("rdma-ipam");
            symlink(addresses, node.path("bin").join("rdma-ipam")).unwrap();
            node.use_plugins(interface);
            pod.attach(&conf, "net1");
            pod.check(&conf, "net1").done();
            pod.detach(&conf, "net1");
            node.gc(&conf, &[]).done();
            assert!(
                pod.links().is_empty() && node.leases().is_empty(),
                "{interface:?}"
            );
        });
    }
}

/// The file of the journal about the pod `id`.
fn journal(node: &Node, id: &str) -> String {
    let files = node.traces(&[]).attachments;
    let entry = files
        .iter()
        .find(|file| file.starts_with(&format!("attachments/net-a/{id}@")))
        .unwrap();
    std::fs::read_to_string(node.path("state").join(entry)).unwrap()
}

/// Where the journal of an earlier version names no pod, the collector does not know whether the pod is gone. GC removes that
/// attachment.
#[test]
fn todays_collector_lists_attachments_that_name_their_pod_and_leaves_others_to_gc() {
    Node::run(|node| {
        let conf = network(node);
        let (mut names_pod, mut listed) = (Vec::new(), Vec::new());
        for version in BOTH {
            node.use_plugins(version);
            let pod = node.pod();
            let call = pod.call("ADD", &conf, "net1").env("CNI_ARGS", POD_ARGS);
            call.run().result();
            names_pod.push(usize::from(journal(node, &pod.id).contains("train-0")));
            pod.die();
            node.use_plugins(Version::Today);
            let collector = Collector::start(node);
            listed.push(collector.dead().len());
            for dead in collector.dead() {
                collector.collect(&dead);
            }
        }
        assert_eq!(listed, names_pod);
        assert_eq!(listed[1], 1);
        node.gc(&conf, &[]).done();
        assert!(node.leases().is_empty() && node.traces(&[]).attachments.is_empty());
    });
}

/// Kills calls of one version at each request that changes something. The other version cleans up, and nothing remains.
fn killed_everywhere(killed: Version, verb: Verb) {
    Node::run(|node| {
        let mut ipam = node.rdma_ipam("10.7.0.0/24");
        ipam["ranges"] = json!([[{ "subnet": "10.7.0.0/24" }], [{ "subnet": "fd00:7::/64" }]]);
        let conf = node.conf(json!({ "name": "macvlan", "ipam": ipam }));
        Faults::between(node, &conf, [killed, killed.other()]).kill_everywhere(verb, Signal::SIGKILL, None);
    });
}

#[test]
fn today_cleans_up_after_a_killed_add_of_the_earlier_version() {
    killed_everywhere(Version::Earlier, Verb::Add);
}

#[test]
fn today_cleans_up_after_a_killed_del_of_the_earlier_version() {
    killed_everywhere(Version::Earlier, Verb::Del);
}

#[test]
fn the_earlier_version_cleans_up_after_a_killed_add_of_today() {
    killed_everywhere(Version::Today, Verb::Add);
}

#[test]
fn the_earlier_version_cleans_up_after_a_killed_del_of_today() {
    killed_everywhere(Version::Today, Verb::Del);
}
