// SPDX-License-Identifier: Apache-2.0
//! GC deletes attachments that the runtime does not list, and nothing else.

use std::os::unix::process::ExitStatusExt;
use tests::{Conf, Node, Pod, json, programs, traces::assert_same};

fn networks(node: &Node) -> [Conf; 2] {
    [node.rdma_ipam("10.7.0.0/24"), node.host_local("10.8.0.0/24")]
        .map(|ipam| node.conf(json!({"ipam": ipam})))
}

#[test]
fn gc_removes_stale_attachments_with_their_leases_and_keeps_valid_ones() {
    Node::run(|node| {
        for conf in networks(node) {
            let (kept, stale) = (node.pod(), node.pod());
            let before = node.traces(&[&kept, &stale]);
            kept.attach(&conf, "net1");
            let only_kept = node.traces(&[&kept, &stale]);
            assert_ne!(only_kept, before);
            stale.attach(&conf, "net1");
            node.gc(&conf, &[(&kept.id, "net1")]).done();
            tests::traces::assert_same(&only_kept, &node.traces(&[&kept, &stale]), "after GC");
            kept.check(&conf, "net1").done();
            kept.detach(&conf, "net1");
        }
    });
}

#[test]
fn gc_removes_only_the_stale_one_of_two_interfaces_of_a_pod() {
    Node::run(|node| {
        let [conf, _] = networks(node);
        let pod = node.pod();
        pod.attach(&conf, "net1");
        pod.attach(&conf, "net2");
        node.gc(&conf, &[(&pod.id, "net2")]).done();
        assert_eq!(pod.link_names(), ["net2"]);
        pod.check(&conf, "net2").done();
    });
}

#[test]
fn gc_with_an_empty_list_removes_all_and_without_a_list_nothing() {
    Node::run(|node| {
        let [conf, _] = networks(node);
        let pod = node.pod();
        pod.attach(&conf, "net1");
        node.call("GC", &conf)
            .run()
            .refused(6, &["cni.dev/valid-attachments"]);
        pod.check(&conf, "net1").done();
        node.gc(&conf, &[]).done();
        assert!(pod.links().is_empty() && node.leases().is_empty());
    });
}

/// libcni encodes the empty list of a network without pods as null.
#[test]
fn gc_treats_a_null_list_as_an_empty_list() {
    Node::run(|node| {
        let [conf, _] = networks(node);
        let pod = node.pod();
        pod.attach(&conf, "net1");
        let null = conf.with("cni.dev/valid-attachments", json!(null));
        node.call("GC", &null).run().done();
        assert!(pod.links().is_empty() && node.leases().is_empty());
    });
}

#[test]
fn gc_keeps_attachments_of_other_networks() {
    Node::run(|node| {
        let [conf, _] = networks(node);
        let other = conf.clone().named("net-b");
        let pod = node.pod();
        pod.attach(&conf, "net1");
        pod.attach(&other, "net2");
        node.gc(&conf, &[]).done();
        assert_eq!(pod.link_names(), ["net2"]);
        pod.check(&other, "net2").done();
    });
}

#[test]
fn gc_releases_the_lease_of_a_dead_pod() {
    Node::run(|node| {
        for conf in networks(node) {
            let pod = node.pod();
            pod.attach(&conf, "net1");
            pod.die();
            node.gc(&conf, &[]).done();
            assert!(node.leases().is_empty(), "{:?}", node.leases());
        }
    });
}

/// A name of host-local that kills `cni-ipoib` in each ADD once host-local has allocated an address.
fn install_lethal_host_local(node: &Node) {
    let host_local = programs::peers().join("host-local");
    let script = format!(
        "answer=$({}); code=$?; [ $CNI_COMMAND != ADD ] || kill -9 $PPID; echo \"$answer\"; exit $code",
        host_local.display()
    );
    node.install_script("lethal", &script);
}

#[test]
fn an_address_of_host_local_is_released_after_a_killed_add() {
    Node::run(|node| {
        install_lethal_host_local(node);
        let mut ipam = node.host_local("10.8.0.0/24");
        ipam["type"] = json!("lethal");
        let conf = node.conf(json!({"ipam": ipam}));
        let cleanups: [fn(&Node, &Pod<'_>, &Conf); 4] = [
            |_, pod, conf| pod.detach(conf, "net1"),
            |node, _, conf| node.gc(conf, &[]).done(),
            |_, pod, conf| {
                pod.die();
                pod.detach(conf, "net1");
            },
            |node, pod, conf| {
                pod.die();
                node.gc(conf, &[]).done();
            },
        ];
        for cleanup in cleanups {
            let before = node.traces(&[]);
            let pod = node.pod();
            let answer = pod.add(&conf, "net1");
            assert_eq!(answer.status.signal(), Some(9), "{answer:?}");
            assert_eq!(node.leases().len(), 1, "{:?}", node.leases());
            cleanup(node, &pod, &conf);
            assert!(node.leases().is_empty(), "{:?}", node.leases());
            assert_same(&before, &node.traces(&[]), "after the cleanup");
        }
    });
}

#[test]
fn gc_of_the_ipam_plugin_releases_a_lease_without_an_attachment() {
    Node::run(|node| {
        let [conf, _] = networks(node);
        let pod = node.pod();
        pod.attach(&conf, "net1");
        // The state directory is lost, and the leases are not.
        std::fs::remove_dir_all(node.path("state")).unwrap();
        pod.ip("link del net1");
        node.gc(&conf, &[]).done();
        assert!(node.leases().is_empty(), "{:?}", node.leases());
    });
}

#[test]
fn gc_reports_every_failure_and_still_removes_the_other_attachments() {
    Node::run(|node| {
        // This plugin releases nothing for pod-1 and pod-2, so two attachments fail. GC must still delete the third.
        node.install_script(
            "stubborn",
            r#"case "$CNI_COMMAND $CNI_CONTAINERID" in
            "ADD "*) echo '{"cniVersion":"1.1.0","ips":[{"address":"10.7.0.5/24"}]}' ;;
            "DEL pod-1" | "DEL pod-2") echo '{"code":150,"msg":"no release of '$CNI_CONTAINERID'"}'; exit 1 ;;
            esac"#,
        );
        let conf = node.conf(json!({"ipam": {"type": "stubborn"}}));
        let pods = [node.pod(), node.pod(), node.pod()];
        for pod in &pods {
            pod.attach(&conf, "net1");
        }
        node.gc(&conf, &[]).refused(
            103,
            &[
                "no release of pod-1 (code 150 of stubborn)",
                "no release of pod-2",
            ],
        );
        let left = node.traces(&[]).attachments;
        assert_eq!(left.len(), 2, "what was not released stays recorded: {left:?}");
        assert!(
            pods.iter().all(|pod| pod.links().is_empty()),
            "every link is deleted nevertheless"
        );
    });
}

#[test]
fn gc_with_nothing_to_do_succeeds() {
    Node::run(|node| {
        for conf in networks(node) {
            node.gc(&conf, &[]).done();
            node.gc(&conf, &[("pod-9", "net1")]).done();
        }
    });
}

#[test]
fn gc_keeps_a_container_that_reuses_the_netns_path_of_a_dead_pod() {
    Node::run(|node| {
        let [conf, _] = networks(node);
        let (dead, living) = (node.pod(), node.pod());
        dead.attach(&conf, "net1");
        living.attach(&conf, "net1");
        dead.die();
        std::fs::hard_link(&living.netns, &dead.netns).unwrap_or_else(|_| {
            std::os::unix::fs::symlink(&living.netns, &dead.netns).unwrap();
        });
        node.gc(&conf, &[(&living.id, "net1")]).done();
        living.check(&conf, "net1").done();
    });
}

#[test]
fn gc_removes_a_link_after_the_pod_changed_its_group_and_alias() {
    Node::run(|node| {
        let [conf, _] = networks(node);
        let pod = node.pod();
        let before = node.traces(&[&pod]);
        pod.attach(&conf, "net1");
        pod.ip("link set net1 group 7");
        pod.ip("link set net1 alias x");
        node.gc(&conf, &[]).done();
        tests::traces::assert_same(&before, &node.traces(&[&pod]), "after GC");
    });
}
