// SPDX-License-Identifier: Apache-2.0
//! DEL succeeds whatever remains of the container, always releases the address, and deletes only its own objects.

use tests::{Conf, Node, json, traces::assert_same};

fn networks(node: &Node) -> [Conf; 2] {
    [node.rdma_ipam("10.7.0.0/24"), node.host_local("10.8.0.0/24")]
        .map(|ipam| node.conf(json!({"ipam": ipam})))
}

#[test]
fn del_leaves_nothing() {
    Node::run(|node| {
        for conf in networks(node) {
            let pod = node.pod();
            let before = node.traces(&[&pod]);
            pod.attach(&conf, "net1");
            assert_ne!(node.traces(&[&pod]), before, "ADD leaves traces that can be seen");
            pod.detach(&conf, "net1");
            assert_same(&before, &node.traces(&[&pod]), "after DEL");
        }
    });
}

#[test]
fn del_twice_succeeds_and_so_does_del_without_add() {
    Node::run(|node| {
        for conf in networks(node) {
            let pod = node.pod();
            pod.detach(&conf, "net1");
            pod.attach(&conf, "net1");
            pod.detach(&conf, "net1");
            pod.detach(&conf, "net1");
            assert!(node.leases().is_empty());
        }
    });
}

#[test]
fn del_without_the_result_of_add_leaves_nothing() {
    Node::run(|node| {
        let pod = node.pod();
        let before = node.traces(&[&pod]);
        let [conf, _] = networks(node);
        pod.attach(&conf, "net1");
        pod.forget();
        pod.detach(&conf, "net1");
        assert_same(&before, &node.traces(&[&pod]), "after DEL without prevResult");
    });
}

#[test]
fn del_with_a_damaged_result_of_add_leaves_nothing() {
    Node::run(|node| {
        let pod = node.pod();
        let before = node.traces(&[&pod]);
        let [conf, _] = networks(node);
        pod.attach(&conf, "net1");
        pod.keep(&conf, "net1", &json!({"interfaces": "damaged"}));
        pod.detach(&conf, "net1");
        assert_same(
            &before,
            &node.traces(&[&pod]),
            "after DEL with a damaged prevResult",
        );
    });
}

#[test]
fn del_without_a_netns_finds_the_link_by_the_state_of_add() {
    Node::run(|node| {
        let pod = node.pod();
        let before = node.traces(&[&pod]);
        let [conf, _] = networks(node);
        pod.attach(&conf, "net1");
        pod.call("DEL", &conf, "net1")
            .env_remove("CNI_NETNS")
            .run()
            .done();
        assert_same(&before, &node.traces(&[&pod]), "after DEL without CNI_NETNS");
    });
}

#[test]
fn del_after_the_namespace_died_releases_the_address() {
    Node::run(|node| {
        for conf in networks(node) {
            let pod = node.pod();
            let before = node.traces(&[]);
            pod.attach(&conf, "net1");
            pod.die();
            pod.detach(&conf, "net1");
            assert_same(
                &before,
                &node.traces(&[]),
                "after DEL of a pod whose namespace died",
            );
        }
    });
}

#[test]
fn del_with_a_plain_file_or_the_nodes_own_namespace_releases_the_address() {
    Node::run(|node| {
        let file = node.path("plain");
        std::fs::write(&file, "").unwrap();
        for path in [file.as_path(), "/proc/self/ns/net".as_ref(), "/nowhere".as_ref()] {
            let pod = node.pod();
            let [conf, _] = networks(node);
            pod.attach(&conf, "net1");
            pod.call("DEL", &conf, "net1").env("CNI_NETNS", path).run().done();
            assert!(node.leases().is_empty(), "with CNI_NETNS {}", path.display());
        }
    });
}

#[test]
fn del_succeeds_when_the_parent_is_gone() {
    Node::run(|node| {
        let pod = node.pod();
        let [conf, _] = networks(node);
        pod.attach(&conf, "net1");
        node.ip("link del eth0");
        pod.detach(&conf, "net1");
        assert!(pod.links().is_empty() && node.leases().is_empty());
    });
}

#[test]
fn del_succeeds_with_a_configuration_that_add_would_refuse() {
    Node::run(|node| {
        let pod = node.pod();
        let before = node.traces(&[&pod]);
        let [conf, _] = networks(node);
        pod.attach(&conf, "net1");
        let spoilt = conf.with("mtu", "large").with("mastr", "eth0");
        pod.detach(&spoilt, "net1");
        assert_same(&before, &node.traces(&[&pod]), "after DEL");
    });
}

#[test]
fn after_a_refused_add_the_foreign_link_of_that_name_survives_del() {
    Node::run(|node| {
        let pod = node.pod();
        pod.ip("link add net1 type veth peer name net1-far");
        let foreign = pod.link("net1");
        let [conf, _] = networks(node);
        pod.add(&conf, "net1")
            .refused(101, &["already has an interface net1"]);
        assert!(node.leases().is_empty());
        pod.detach(&conf, "net1");
        assert_eq!(pod.link("net1"), foreign);
    });
}

#[test]
fn a_foreign_macvlan_with_the_interface_name_survives_del() {
    Node::run(|node| {
        let pod = node.pod();
        pod.ip("link add base type veth peer name base-far");
        pod.ip("link add net1 link base type macvlan mode bridge");
        let [conf, _] = networks(node);
        pod.add(&conf, "net1").refused(101, &["net1"]);
        pod.detach(&conf, "net1");
        assert!(
            pod.link_names().contains(&"net1".to_owned()),
            "a foreign macvlan was deleted"
        );
    });
}

#[test]
fn a_second_add_of_an_attachment_is_refused_and_changes_nothing() {
    Node::run(|node| {
        let pod = node.pod();
        let [conf, _] = networks(node);
        pod.attach(&conf, "net1");
        let before = node.traces(&[&pod]);
        let again = pod.call("ADD", &conf, "net1").run();
        again.refused(101, &["already has an interface net1"]);
        assert_same(&before, &node.traces(&[&pod]), "after the second ADD");
        pod.check(&conf, "net1").done();
        pod.detach(&conf, "net1");
    });
}

#[test]
fn the_released_address_is_free_for_the_next_pod() {
    Node::run(|node| {
        let conf = node.conf(json!({"ipam": node.rdma_ipam("10.7.0.0/30")}));
        for _ in 0..3 {
            let pod = node.pod();
            pod.attach(&conf, "net1");
            pod.detach(&conf, "net1");
        }
    });
}

#[test]
fn del_deletes_an_interface_that_the_pod_renamed() {
    Node::run(|node| {
        for forgotten in [false, true] {
            let pod = node.pod();
            let before = node.traces(&[&pod]);
            let [conf, _] = networks(node);
            pod.attach(&conf, "net1");
            pod.ip("link set net1 down");
            pod.ip("link set net1 name fast0");
            if forgotten {
                pod.forget();
            }
            pod.detach(&conf, "net1");
            assert_same(&before, &node.traces(&[&pod]), "after DEL of a renamed interface");
        }
    });
}

#[test]
fn del_deletes_an_interface_after_the_pod_changed_addresses_and_mtu() {
    Node::run(|node| {
        let pod = node.pod();
        let before = node.traces(&[&pod]);
        let [conf, _] = networks(node);
        pod.attach(&conf, "net1");
        pod.ip("link set net1 address 02:00:00:00:00:99 mtu 1300");
        pod.ip("addr flush dev net1");
        pod.detach(&conf, "net1");
        assert_same(&before, &node.traces(&[&pod]), "after DEL of a changed interface");
    });
}

#[test]
fn a_late_del_takes_nothing_from_a_pod_that_reuses_the_netns_and_address() {
    Node::run(|node| {
        let mut ipam = node.rdma_ipam("10.7.0.0/24");
        ipam["ranges"] =
            json!([[{"subnet": "10.7.0.0/24", "rangeStart": "10.7.0.5", "rangeEnd": "10.7.0.5"}]]);
        let conf = node.conf(json!({"ipam": ipam}));
        let old = node.pod();
        let late = {
            old.attach(&conf, "net1");
            old.call("DEL", &conf, "net1")
        };
        old.detach(&conf, "net1");
        let new = node.pod();
        new.attach(&conf, "net1");
        let before = node.traces(&[&old, &new]);
        late.clone().env("CNI_NETNS", &new.netns).run().done();
        late.run().done();
        assert_same(&before, &node.traces(&[&old, &new]), "after DELs that came late");
        new.check(&conf, "net1").done();
        new.detach(&conf, "net1");
    });
}

/// Changes that a pod with `CAP_NET_ADMIN`, or a network manager in the pod, may make to its link.
const CHANGES: [&[&str]; 7] = [
    // Neither is UTF-8.
    &["link set net1 alias x\u{fffd}"],
    &[
        "link set net1 down",
        "link set net1 name fast\u{fffd}",
        "link property add dev fast\u{fffd} altname slow\u{fffd}",
        "link set fast\u{fffd} group 7",
    ],
    &["link set net1 alias x"],
    &["link set net1 group 7"],
    &["link set net1 alias x", "link set net1 group 7"],
    &[
        "link set net1 down",
        "link set net1 name fast0",
        "link set fast0 alias x",
        "link set fast0 group 7",
    ],
    &[
        "link set net1 address 02:00:00:00:00:99",
        "link set net1 alias x",
        "link set net1 group 0",
    ],
];

#[test]
fn an_address_is_released_only_after_the_link_is_gone_despite_pod_changes() {
    Node::run(|node| {
        let conf = node.conf(json!({"ipam": node.rdma_ipam("10.7.9.0/30")}));
        for changes in CHANGES {
            for forgotten in [false, true] {
                let (first, second) = (node.pod(), node.pod());
                let before = node.traces(&[&first, &second]);
                first.attach(&conf, "net1");
                for change in changes {
                    first.ip(change);
                }
                if forgotten {
                    first.forget();
                }
                first.detach(&conf, "net1");
                assert!(first.links().is_empty(), "{changes:?}: {:?}", first.links());
                // `ip` shows a link with any name.
                assert_eq!(first.ip("-o link show type macvlan"), "", "{changes:?}");
                second.attach(&conf, "net1");
                second.detach(&conf, "net1");
                assert_same(&before, &node.traces(&[&first, &second]), changes[0]);
            }
        }
    });
}

/// With so many, the link does not fit into the buffer that the kernel usually has for a list of links.
#[test]
fn an_interface_with_hundreds_of_altnames_is_deleted() {
    Node::run(|node| {
        let [conf, _] = networks(node);
        let pod = node.pod();
        pod.attach(&conf, "net1");
        // One request of ip holds seven such names. It drops the others, and succeeds.
        for batch in 0..43 {
            let names = (0..7).map(|number| format!(" altname {batch:0>60}x{number:0>60}"));
            let names: String = names.collect();
            pod.ip(&format!("link property add dev net1{names}"));
        }
        assert_eq!(pod.link("net1").altnames.len(), 301);
        pod.check(&conf, "net1").done();
        pod.detach(&conf, "net1");
        assert!(pod.links().is_empty(), "{:?}", pod.link_names());
        assert!(node.leases().is_empty());
    });
}

#[test]
fn a_macvlan_of_the_pod_with_our_name_and_index_survives_del() {
    Node::run(|node| {
        let pod = node.pod();
        let [conf, _] = networks(node);
        pod.attach(&conf, "net1");
        let index = pod.link("net1").index;
        pod.ip("link del net1");
        pod.ip("link add base type veth peer name base-far");
        pod.ip(&format!(
            "link add net1 index {index} link base type macvlan mode bridge"
        ));
        let own = pod.link("net1");
        pod.detach(&conf, "net1");
        assert_eq!(pod.link("net1"), own);
        assert!(node.leases().is_empty(), "no link has the address");
    });
}

#[test]
fn installed_as_macvlan_del_removes_a_reference_link_without_prev_result() {
    Node::run(|node| {
        let pod = node.pod();
        let conf = node.conf(json!({"ipam": node.rdma_ipam("10.7.0.0/24")}));
        node.ip("link add net1 link eth0 type macvlan mode bridge");
        node.ip(&format!("link set net1 netns {}", pod.netns.display()));
        pod.deletes_a_link_of("macvlan", &conf);
    });
}
