// SPDX-License-Identifier: Apache-2.0
//! The namespace of a pod dies without a DEL. The kernel moves the child back to the node under its name in the pod.
//! DEL and GC find the child there, and delete no other link.

use crate::bond::{bonded, on_bond};
use crate::fabric::{network, queue_pairs, run, soon};
use std::fs;
use std::time::Duration;
use tests::{Conf, Node, json};

/// Attaches a pod and ends its namespace. Returns when the child is on the node.
fn dead<'n>(node: &'n Node, conf: &Conf) -> tests::Pod<'n> {
    let pod = node.pod();
    pod.attach(conf, "net1");
    let ours = node.links().len();
    pod.die();
    soon("the kernel puts the child back", || {
        node.links().len() == ours + 1
    });
    pod
}

#[test]
fn del_removes_the_child_that_the_kernel_returned_to_the_node() {
    run(|node| {
        let conf = network(node, &json!({}));
        let before = node.traces(&[]);
        let pod = dead(node, &conf);
        assert_eq!(node.link("net1").kind.as_deref(), Some("ipoib"));
        pod.detach(&conf, "net1");
        tests::traces::assert_same(&before, &node.traces(&[]), "after DEL");
    });
}

#[test]
fn del_removes_a_returned_child_without_netns_result_or_state_files() {
    run(|node| {
        let conf = network(node, &json!({}));
        let before = node.traces(&[]);
        let pod = dead(node, &conf);
        pod.forget();
        fs::remove_dir_all(node.path("state")).unwrap();
        pod.call("DEL", &conf, "net1")
            .env_remove("CNI_NETNS")
            .run()
            .done();
        assert_eq!((node.link_names(), node.leases()), (before.node, before.leases));
    });
}

#[test]
fn gc_removes_the_child_of_a_dead_pod_and_keeps_valid_attachments() {
    run(|node| {
        let conf = network(node, &json!({}));
        let living = node.pod();
        living.attach(&conf, "net1");
        let before = node.traces(&[&living]);
        dead(node, &conf);
        node.gc(&conf, &[(&living.id, "net1")]).done();
        tests::traces::assert_same(&before, &node.traces(&[&living]), "after GC");
        living.check(&conf, "net1").done();
        living.detach(&conf, "net1");
    });
}

#[test]
fn gc_finds_the_child_of_a_dead_pod_by_alias_without_state_files() {
    run(|node| {
        let conf = network(node, &json!({}));
        let before = node.traces(&[]);
        dead(node, &conf);
        fs::remove_dir_all(node.path("state")).unwrap();
        node.gc(&conf, &[]).done();
        assert_eq!((node.link_names(), node.leases()), (before.node, before.leases));
    });
}

#[test]
fn a_foreign_link_of_the_same_name_survives_del_and_gc() {
    run(|node| {
        node.ip("link add link ib0 name net1 type ipoib pkey 0x8001");
        let foreign = node.link("net1");
        let conf = network(node, &json!({}));
        let before = node.traces(&[]);
        // The name is taken, so the kernel gives the returned child another name.
        let pod = dead(node, &conf);
        pod.detach(&conf, "net1");
        tests::traces::assert_same(&before, &node.traces(&[]), "after DEL");
        dead(node, &conf);
        node.gc(&conf, &[]).done();
        tests::traces::assert_same(&before, &node.traces(&[]), "after GC");
        assert_eq!(node.link("net1"), foreign);
        node.ip("link del net1");
    });
}

#[test]
fn del_keeps_children_of_other_pods_and_gc_those_of_other_networks() {
    run(|node| {
        let conf = network(node, &json!({}));
        let other = conf.clone().named("net-b");
        let first = dead(node, &conf);
        let second = dead(node, &conf);
        let third = dead(node, &other);
        let aliases = || {
            let mut all: Vec<_> = node.links().into_iter().filter_map(|link| link.alias).collect();
            all.sort();
            all
        };
        assert_eq!(aliases().len(), 3);
        first.detach(&conf, "net1");
        assert_eq!(
            aliases(),
            [
                format!("rdmanet:net-a/{}@net1", second.id),
                format!("rdmanet:net-b/{}@net1", third.id)
            ]
        );
        node.gc(&conf, &[]).done();
        assert_eq!(aliases(), [format!("rdmanet:net-b/{}@net1", third.id)]);
        third.detach(&other, "net1");
        assert!(aliases().is_empty());
    });
}

#[test]
fn a_new_pod_is_attached_while_the_child_of_a_dead_pod_remains() {
    run(|node| {
        let conf = network(node, &json!({}));
        let dead = dead(node, &conf);
        let pod = node.pod();
        pod.attach(&conf, "net1");
        pod.check(&conf, "net1").done();
        dead.detach(&conf, "net1");
        pod.check(&conf, "net1").done();
        pod.detach(&conf, "net1");
    });
}

#[test]
fn del_waits_until_the_kernel_returns_the_child_of_a_dead_pod() {
    run(|node| {
        let conf = network(node, &json!({}));
        let before = node.settled_snapshot(&[]);
        let queue_pairs_before = queue_pairs();
        for _ in 0..3 {
            let pod = node.pod();
            pod.attach(&conf, "net1");
            pod.die();
            let del = pod.call("DEL", &conf, "net1").run();
            del.done();
            // DEL waits for the child for one second. GC removes a child that returns later.
            if del.took >= Duration::from_secs(1) {
                soon("GC removes the child", || {
                    node.gc(&conf, &[]).done();
                    queue_pairs() <= queue_pairs_before
                });
            }
            node.assert_as_before(&before, &[], "after DEL that came at once");
        }
    });
}

/// Attaches a pod to the bond and ends its namespace. Returns when both children are on the node. The pod's bond is
/// gone then.
fn dead_on_bond<'n>(node: &'n Node, conf: &Conf) -> tests::Pod<'n> {
    let pod = node.pod();
    pod.attach(conf, "net1");
    let ours = node.links().len();
    pod.die();
    soon("the kernel puts both children back", || {
        node.links().len() == ours + 2
    });
    assert!(node.links().iter().all(|link| link.name != "net1"));
    pod
}

#[test]
fn del_removes_both_ports_of_a_dead_pods_bond() {
    run(|node| {
        bonded(node, || {
            let conf = on_bond(node, &json!({}));
            let before = node.traces(&[]);
            let pod = dead_on_bond(node, &conf);
            pod.detach(&conf, "net1");
            tests::traces::assert_same(&before, &node.traces(&[]), "after DEL");
        });
    });
}

#[test]
fn gc_removes_both_ports_of_a_dead_pods_bond_even_without_state_files() {
    run(|node| {
        bonded(node, || {
            let conf = on_bond(node, &json!({}));
            let before = node.traces(&[]);
            dead_on_bond(node, &conf);
            node.gc(&conf, &[]).done();
            tests::traces::assert_same(&before, &node.traces(&[]), "after GC");
            dead_on_bond(node, &conf);
            fs::remove_dir_all(node.path("state")).unwrap();
            node.gc(&conf, &[]).done();
            assert_eq!((node.link_names(), node.leases()), (before.node, before.leases));
        });
    });
}

#[test]
fn a_returned_port_does_not_disturb_bonds_of_the_node_or_of_other_pods() {
    run(|node| {
        bonded(node, || {
            let conf = on_bond(node, &json!({}));
            let living = node.pod();
            living.attach(&conf, "net1");
            let dead = dead_on_bond(node, &conf);
            living.check(&conf, "net1").done();
            assert!(node.link("bond0").carrier);
            dead.detach(&conf, "net1");
            living.check(&conf, "net1").done();
            living.detach(&conf, "net1");
        });
    });
}

/// The namespace of the pod exists until the runtime ends it. Those that the pod created end with its processes.
#[test]
fn del_and_gc_find_a_child_that_the_pod_moved_into_a_namespace_of_its_own() {
    run(|node| {
        let conf = network(node, &json!({}));
        let before = node.traces(&[]);
        for by_gc in [false, true] {
            let pod = node.pod();
            let inner = format!("inner-{}", pod.id);
            pod.attach(&conf, "net1");
            pod.ip("link set net1 group 7");
            node.ip(&format!("netns add {inner}"));
            pod.ip(&format!("link set net1 netns {inner}"));
            node.ip(&format!("-n {inner} link set net1 alias mine"));
            let ours = node.links().len();
            node.ip(&format!("netns del {inner}"));
            // DEL and GC wait for the child for one second, and succeed without it.
            soon("the kernel puts the child back", || {
                node.links().len() == ours + 1
            });
            if by_gc {
                node.gc(&conf, &[]).done();
            } else {
                pod.detach(&conf, "net1");
            }
            tests::traces::assert_same(&before, &node.traces(&[]), "after DEL or GC");
            pod.die();
        }
    });
}

/// The alias of another attachment and its hash, as `cni-ipoib/src/mark.rs` has them. iproute2 reads a group as a signed
/// number.
fn mark_of_another() -> (String, u32) {
    let hash = |alias: &str| {
        let step = |hash: u32, byte: u8| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193);
        alias.bytes().fold(0x811c_9dc5, step)
    };
    let aliases = (0..).map(|number| format!("rdmanet:fabric/another{number}@net1"));
    let mut marks = aliases.map(|alias| (hash(&alias), alias));
    let (group, alias) = marks.find(|(group, _)| *group < 1 << 31).unwrap();
    (alias, group)
}

/// The kernel gives the link a new index if another link has the old one.
#[test]
fn del_and_gc_find_a_child_that_returned_with_the_mark_of_another_attachment() {
    run(|node| {
        let conf = network(node, &json!({}));
        let before = node.traces(&[]);
        let (alias, group) = mark_of_another();
        for by_gc in [false, true] {
            let pod = node.pod();
            let inner = format!("inner-{}", pod.id);
            pod.attach(&conf, "net1");
            let index = pod.link("net1").index;
            node.ip(&format!("netns add {inner}"));
            pod.ip(&format!("link set net1 netns {inner}"));
            pod.ip(&format!("link add taken index {index} type veth peer name far"));
            node.ip(&format!("-n {inner} link set net1 netns {}", pod.netns.display()));
            node.ip(&format!("netns del {inner}"));
            assert_ne!(pod.link("net1").index, index);
            pod.ip(&format!("link set net1 alias {alias}"));
            pod.ip(&format!("link set net1 group {group}"));
            if by_gc {
                node.gc(&conf, &[]).done();
            } else {
                pod.detach(&conf, "net1");
            }
            assert_eq!(pod.ip("-o link show type ipoib"), "");
            pod.die();
            tests::traces::assert_same(&before, &node.traces(&[]), "after DEL or GC");
        }
    });
}

#[test]
fn del_and_gc_find_a_returned_child_with_a_changed_alias_and_group() {
    run(|node| {
        let conf = network(node, &json!({}));
        let before = node.traces(&[]);
        // Neither the alias nor one of the names is UTF-8. The other name has the form of the plugin's temporary names.
        let names = ["fast\u{fffd}", "rn0123456789ab"];
        for (by_gc, name) in names.into_iter().flat_map(|name| [(false, name), (true, name)]) {
            let pod = node.pod();
            pod.attach(&conf, "net1");
            pod.ip("link set net1 alias x\u{fffd}");
            pod.ip("link set net1 group 7");
            pod.ip("link set net1 down");
            pod.ip(&format!("link set net1 name {name}"));
            let ours = node.links().len();
            pod.die();
            soon("the kernel puts the child back", || {
                node.links().len() == ours + 1
            });
            if by_gc {
                node.gc(&conf, &[]).done();
            } else {
                pod.detach(&conf, "net1");
            }
            tests::traces::assert_same(&before, &node.traces(&[]), "after DEL or GC");
        }
    });
}
