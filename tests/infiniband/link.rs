// SPDX-License-Identifier: Apache-2.0
//! Creation of the child: its name, the settings of its kind, and its ownership mark.

use crate::fabric::{address, network, reaches, run, run_accelerated, soon};
use common::netlink::{IpoibMode, LinkInfo};
use tests::{Pod, json};

#[test]
fn a_node_link_may_have_the_interface_name_of_the_pod() {
    run(|node| {
        node.ip("link add net1 type dummy");
        let foreign = node.link("net1");
        let pods = [node.pod(), node.pod()];
        let confs = ["ib0", "ib1"].map(|master| network(node, &json!({"master": master})));
        pods[0].attach(&confs[0], "net1");
        let result = pods[1].attach(&confs[1], "net1");
        assert_eq!(pods[0].link_names(), ["net1"]);
        reaches(&pods[0], &address(&result, false));
        for (pod, conf) in pods.iter().zip(&confs) {
            pod.check(conf, "net1").done();
            pod.detach(conf, "net1");
            assert!(pod.links().is_empty());
        }
        assert_eq!(node.link("net1"), foreign);
        node.ip("link del net1");
    });
}

#[test]
fn umcast_and_the_transport_reach_the_kernel() {
    run_accelerated("", |node| {
        for (keys, want_mode, want_umcast) in [
            (json!({}), IpoibMode::Datagram, false),
            (
                json!({"umcast": true, "ipoibMode": "datagram"}),
                IpoibMode::Datagram,
                true,
            ),
            (
                json!({"umcast": false, "ipoibMode": "connected"}),
                IpoibMode::Connected,
                false,
            ),
        ] {
            let pod = node.pod();
            let conf = network(node, &keys);
            pod.attach(&conf, "net1");
            assert_eq!(mode_and_umcast(&pod), (want_mode, want_umcast), "{keys}");
            pod.check(&conf, "net1").done();
            pod.detach(&conf, "net1");
        }
    });
}

/// What the kernel has for the child of a pod.
fn mode_and_umcast(pod: &Pod<'_>) -> (IpoibMode, bool) {
    let LinkInfo::Ipoib { mode, umcast, .. } = pod.link("net1").info else {
        panic!("net1 is no IPoIB link");
    };
    (mode, umcast)
}

#[test]
fn a_child_has_the_umcast_of_its_parent_unless_the_network_sets_it() {
    for kind in ["", "all"] {
        run_accelerated(kind, |node| {
            for of_parent in [true, false] {
                let value = u8::from(of_parent).to_string();
                std::fs::write("/sys/class/net/ib0/umcast", value).unwrap();
                for (keys, expected) in [
                    (json!({}), of_parent),
                    (json!({"umcast": true}), true),
                    (json!({"umcast": false}), false),
                ] {
                    let pod = node.pod();
                    let conf = network(node, &keys);
                    pod.attach(&conf, "net1");
                    assert_eq!(
                        mode_and_umcast(&pod).1,
                        expected,
                        "{kind:?}, parent {of_parent}, {keys}"
                    );
                    pod.check(&conf, "net1").done();
                    pod.detach(&conf, "net1");
                }
            }
        });
    }
}

#[test]
fn check_finds_that_the_transport_was_changed() {
    run_accelerated("", |node| {
        let pod = node.pod();
        let conf = network(node, &json!({"ipoibMode": "datagram"}));
        pod.attach(&conf, "net1");
        pod.ip("link set net1 type ipoib mode connected");
        pod.check(&conf, "net1")
            .refused(104, &["IPoIB mode is connected, want datagram"]);
        pod.detach(&conf, "net1");
    });
}

#[test]
fn a_port_in_the_container_can_be_the_master() {
    run(|node| {
        let pod = node.pod();
        // A host-device plugin moves a whole port into a pod in the same way.
        node.ip(&format!("link set ib2 netns {}", pod.netns.display()));
        pod.ip("link set ib2 up");
        soon("ib2 has carrier in the pod", || pod.link("ib2").carrier);
        let conf = network(node, &json!({"master": "ib2", "linkInContainer": true}));
        pod.attach(&conf, "net1");
        assert_eq!(pod.link("net1").parent, Some(pod.link("ib2").index));
        pod.check(&conf, "net1").done();
        pod.detach(&conf, "net1");
        assert_eq!(pod.link_names(), ["ib2"]);
        pod.ip("link set ib2 netns 1");
        soon("ib2 is back", || node.link_names().contains(&"ib2".to_owned()));
        node.ip("link set ib2 up");
    });
}

#[test]
fn installed_as_ipoib_the_plugin_accepts_ipoib_cni_configurations() {
    run(|node| {
        node.install_as("ipoib");
        let pods = [node.pod(), node.pod()];
        let conf = network(
            node,
            &json!({"type": "ipoib", "cniVersion": "0.3.1", "somethingOfItsOwn": 1}),
        );
        let results = [pods[0].attach(&conf, "net1"), pods[1].attach(&conf, "net1")];
        assert_eq!(pods[0].link("net1").kind.as_deref(), Some("ipoib"));
        assert_eq!(results[0]["ips"][0]["version"], "4", "the shape of 0.3.1");
        reaches(&pods[0], &address(&results[1], false));
        for pod in &pods {
            pod.detach(&conf, "net1");
            assert!(pod.links().is_empty());
        }
    });
}

/// Such a child has no mark and no record, and a runtime of an old version of CNI sends no prevResult.
#[test]
fn installed_as_ipoib_del_removes_a_reference_child_without_prev_result() {
    for kind in ["", "all"] {
        run_accelerated(kind, |node| {
            let pod = node.pod();
            let conf = network(node, &json!({}));
            node.ip("link add link ib0 name theirs type ipoib");
            node.ip(&format!(
                "link set theirs netns {} name net1",
                pod.netns.display()
            ));
            pod.deletes_a_link_of("ipoib", &conf);
        });
    }
}

#[test]
fn a_second_add_is_refused_and_the_first_attachment_stays_intact() {
    run(|node| {
        let pod = node.pod();
        let conf = network(node, &json!({}));
        pod.attach(&conf, "net1");
        pod.call("ADD", &conf, "net1").run().refused(101, &["net1"]);
        pod.check(&conf, "net1").done();
        pod.detach(&conf, "net1");
        pod.detach(&conf, "net1");
    });
}

#[test]
fn a_pod_has_children_of_both_rails() {
    run(|node| {
        let pods = [node.pod(), node.pod()];
        let rails = [
            network(node, &json!({"master": "ib0"})),
            network(
                node,
                &json!({"name": "net-b", "master": "ib1", "ipam": node.rdma_ipam("10.8.0.0/24")}),
            ),
        ];
        for (rail, name) in rails.iter().zip(["net1", "net2"]) {
            pods[0].attach(rail, name);
            let target = pods[1].attach(rail, name);
            reaches(&pods[0], &address(&target, false));
        }
        for pod in &pods {
            pod.detach(&rails[0], "net1");
            pod.check(&rails[1], "net2").done();
            pod.detach(&rails[1], "net2");
            assert!(pod.links().is_empty());
        }
    });
}
