// SPDX-License-Identifier: Apache-2.0
//! A pod whose DEL was lost: the collector removes what is left, with `NET_ADMIN` alone. The lease of `ranges` is the
//! agent's; DEL stands for the agent here.

use crate::fabric::{network, run, soon};
use common::collector::Reply;
use tests::collector::{Collector, POD_ARGS};
use tests::{Conf, Node, Pod, json, traces::assert_same};

/// Attaches a pod as kubelet's runtime does.
fn attached<'n>(node: &'n Node, conf: &Conf) -> Pod<'n> {
    let pod = node.pod();
    let add = pod.call("ADD", conf, "net1").env("CNI_ARGS", POD_ARGS).run();
    pod.keep(conf, "net1", &add.result());
    pod
}

/// The namespace of the pod dies; the kernel returns its child to the node.
fn die(node: &Node, pod: &Pod<'_>) {
    let ours = node.links().len();
    pod.die();
    soon("the kernel puts the child back", || {
        node.links().len() == ours + 1
    });
}

#[test]
fn the_collector_removes_the_returned_child_and_nothing_of_a_living_pod() {
    run(|node| {
        let conf = network(node, &json!({}));
        let collector = Collector::start(node);
        let living = attached(node, &conf);
        let links = node.link_names();
        let lost = attached(node, &conf);
        // The request names the living pod too, as that of a stolen agent might.
        assert_eq!(collector.dead(), []);
        die(node, &lost);
        let dead = collector.dead();
        assert_eq!(dead.len(), 1, "{dead:?}");
        assert_eq!(dead[0].attachment.container_id.as_str(), lost.id);
        let mut forged = dead[0].clone();
        forged.attachment.container_id = living.id.parse().unwrap();
        forged.netns_id = living.open().id();
        assert!(matches!(collector.collect(&forged), Reply::Kept(_)));
        assert_eq!(collector.collect(&dead[0]), Reply::Collected);
        assert_eq!((node.link_names(), collector.dead()), (links, vec![]));
        living.check(&conf, "net1").done();
        for pod in [&lost, &living] {
            pod.detach(&conf, "net1");
        }
    });
}

/// CRI-O holds the namespace of a pod open after it has removed its path.
#[test]
fn the_collector_awaits_the_child_of_a_namespace_that_a_process_holds_open() {
    run(|node| {
        let conf = network(node, &json!({}));
        let before = node.link_names();
        let collector = Collector::start(node);
        let lost = attached(node, &conf);
        let held = lost.open();
        lost.die();
        let dead = collector.dead();
        let reply = collector.collect(&dead[0]);
        assert!(
            matches!(&reply, Reply::Kept(why) if why.contains("has not returned its link")),
            "{reply:?}"
        );
        assert_eq!(collector.dead(), dead);
        drop(held);
        soon("the kernel puts the child back", || node.link_names() != before);
        assert_eq!(collector.collect(&dead[0]), Reply::Collected);
        assert_eq!((node.link_names(), collector.dead()), (before, vec![]));
        lost.detach(&conf, "net1");
    });
}

#[test]
fn a_child_that_cnitool_attached_waits_for_del() {
    run(|node| {
        let conf = network(node, &json!({}));
        let before = node.traces(&[]);
        let collector = Collector::start(node);
        let pod = node.pod();
        pod.attach(&conf, "net1");
        die(node, &pod);
        assert_eq!(collector.dead(), []);
        assert_eq!(node.link("net1").kind.as_deref(), Some("ipoib"));
        pod.detach(&conf, "net1");
        assert_same(&before, &node.traces(&[]), "after DEL");
    });
}
