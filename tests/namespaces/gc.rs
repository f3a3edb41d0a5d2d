// SPDX-License-Identifier: Apache-2.0
//! GC: what the runtime does not list goes away, and nothing else.

use tests::{Conf, Node, json};

fn networks(node: &Node) -> [Conf; 2] {
    [node.rdma_ipam("10.7.0.0/24"), node.host_local("10.8.0.0/24")]
        .map(|ipam| node.conf(json!({"ipam": ipam})))
}

#[test]
fn what_is_not_valid_is_removed_with_its_lease_and_what_is_valid_stays() {
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
fn one_of_two_interfaces_of_a_pod_can_be_stale() {
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
fn an_empty_list_removes_all_and_a_missing_one_nothing() {
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

/// libcni marshals the empty list of a network without pods as null.
#[test]
fn a_null_list_removes_all_as_an_empty_one_does() {
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
fn attachments_of_other_networks_are_not_touched() {
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
fn the_lease_of_a_pod_that_died_is_released() {
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

#[test]
fn a_lease_without_an_attachment_is_released_by_the_ipam_plugins_own_gc() {
    Node::run(|node| {
        let [conf, _] = networks(node);
        let pod = node.pod();
        pod.attach(&conf, "net1");
        // As when the state directory was lost, but the leases were not.
        std::fs::remove_dir_all(node.path("state")).unwrap();
        pod.ip("link del net1");
        node.gc(&conf, &[]).done();
        assert!(node.leases().is_empty(), "{:?}", node.leases());
    });
}

#[test]
fn every_failure_is_reported_and_none_stops_the_rest() {
    Node::run(|node| {
        // Releases nothing for pod-1 and pod-2, so that two attachments fail and the third is still removed.
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
        node.gc(&conf, &[])
            .refused(150, &["no release of pod-1", "no release of pod-2"]);
        let left = node.traces(&[]).attachments;
        assert_eq!(
            left.len(),
            2,
            "what was not released stays written down: {left:?}"
        );
        assert!(
            pods.iter().all(|pod| pod.links().is_empty()),
            "every link is gone all the same"
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
fn another_container_at_the_path_of_a_dead_one_is_not_touched() {
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
fn a_link_whose_group_and_alias_the_pod_changed_is_removed_with_its_lease() {
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
