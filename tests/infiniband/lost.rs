// SPDX-License-Identifier: Apache-2.0
//! Namespaces that die without DEL: the kernel throws the child back into the host under the pod's interface name. DEL
//! and GC find it, and take no other link.

use crate::fabric::{network, on_fabric, soon};
use tests::{Conf, Node, Pod, json, traces::assert_same};

/// Attaches a pod and lets its namespace die; returns when its child lies on the node.
fn lost<'n>(node: &'n Node, conf: &Conf) -> Pod<'n> {
    let pod = node.pod();
    pod.attach(conf, "net1");
    let count = thrown_back(node);
    pod.die();
    assert!(
        soon(|| thrown_back(node) > count),
        "the kernel threw no child back: {:?}",
        node.link_names()
    );
    pod
}

/// How many IPoIB children lie on the node.
fn thrown_back(node: &Node) -> usize {
    let is_child =
        |link: &common::netlink::Link| link.kind.as_deref() == Some("ipoib") && link.parent.is_some();
    node.links().iter().filter(|link| is_child(link)).count()
}

#[test]
fn del_finds_the_child_on_the_node_by_its_mark() {
    on_fabric(|node| {
        let before = node.traces(&[]);
        let conf = network(node, "ib0", &json!({}));
        let pod = lost(node, &conf);
        pod.detach(&conf, "net1");
        assert_same(&before, &node.traces(&[]), "after DEL of a pod that died");
    });
}

#[test]
fn del_finds_it_without_netns_result_and_state() {
    on_fabric(|node| {
        let before = node.traces(&[]);
        let conf = network(node, "ib0", &json!({}));
        let pod = lost(node, &conf);
        pod.forget();
        std::fs::remove_dir_all(node.path("state")).unwrap();
        pod.call("DEL", &conf, "net1")
            .env_remove("CNI_NETNS")
            .run()
            .done();
        assert_same(
            &before,
            &node.traces(&[]),
            "after DEL that had only the link's mark",
        );
    });
}

#[test]
fn gc_finds_them_with_and_without_the_state() {
    on_fabric(|node| {
        let before = node.traces(&[]);
        let conf = network(node, "ib0", &json!({}));
        for keep_state in [true, false] {
            let _first = lost(node, &conf);
            let _second = lost(node, &conf);
            if !keep_state {
                std::fs::remove_dir_all(node.path("state")).unwrap();
            }
            node.gc(&conf, &[]).done();
            assert_same(
                &before,
                &node.traces(&[]),
                &format!("after GC, state kept: {keep_state}"),
            );
        }
    });
}

#[test]
fn neither_takes_a_foreign_child_nor_one_of_another_pod_or_network() {
    on_fabric(|node| {
        node.ip("link add link ib0 name foreign type ipoib");
        node.ip("link add link ib1 name net7 type ipoib");
        let conf = network(node, "ib0", &json!({}));
        let other = network(node, "ib0", &json!({})).named("net-b");
        let of_other = lost(node, &other);
        let valid = lost(node, &conf);
        let kept = node.link_names();
        let stale = lost(node, &conf);
        node.gc(&conf, &[(&valid.id, "net1")]).done();
        assert_eq!(node.link_names(), kept);
        stale.detach(&conf, "net1");
        assert_eq!(node.link_names(), kept);
        valid.detach(&conf, "net1");
        of_other.detach(&other, "net1");
        assert_eq!(thrown_back(node), 2, "the foreign children stay: {kept:?}");
        node.ip("link del foreign");
        node.ip("link del net7");
    });
}

#[test]
fn a_new_pod_gets_its_interface_while_a_lost_child_bears_the_same_name_on_the_node() {
    on_fabric(|node| {
        let before = node.traces(&[]);
        let conf = network(node, "ib0", &json!({}));
        let dead = lost(node, &conf);
        let pod = node.pod();
        pod.attach(&conf, "net1");
        assert_eq!(pod.link_names(), ["net1"]);
        dead.detach(&conf, "net1");
        pod.check(&conf, "net1").done();
        pod.detach(&conf, "net1");
        assert_same(&before, &node.traces(&[]), "after both DELs");
    });
}
