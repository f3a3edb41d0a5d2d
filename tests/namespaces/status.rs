// SPDX-License-Identifier: Apache-2.0
//! STATUS reports whether ADD would succeed: 50 if it would fail, 51 if attached pods are disconnected too.

use tests::{Node, json};

#[test]
fn status_succeeds_on_a_node_that_can_serve() {
    Node::run(|node| {
        for ipam in [
            json!({}),
            node.rdma_ipam("10.7.0.0/24"),
            node.host_local("10.8.0.0/24"),
        ] {
            node.status(&node.conf(json!({"ipam": ipam}))).done();
        }
    });
}

#[test]
fn status_reports_limited_connectivity_when_the_parent_is_down() {
    Node::run(|node| {
        let conf = node.conf(json!({}));
        node.ip("link set eth0-far down");
        node.status(&conf).refused(51, &["eth0", "carrier", "cable"]);
        node.ip("link set eth0 down");
        node.status(&conf)
            .refused(51, &["eth0 is down", "ip link set eth0 up"]);
    });
}

#[test]
fn status_reports_unavailable_if_add_would_refuse_the_network() {
    Node::run(|node| {
        for (keys, piece) in [
            (json!({"master": "ib7"}), "ib7"),
            (json!({"mode": "ipoib"}), "InfiniBand"),
            (json!({"mtu": 9000}), "9000"),
            (json!({"mastr": "eth0"}), "mastr"),
            (json!({"ipam": {"type": "absent-ipam"}}), "absent-ipam"),
        ] {
            node.status(&node.conf(keys)).refused(50, &[piece]);
        }
    });
}

#[test]
fn status_reports_unavailable_if_the_pool_has_no_free_address() {
    Node::run(|node| {
        let conf = node.conf(json!({"ipam": node.rdma_ipam("10.7.0.0/30")}));
        node.status(&conf).done();
        node.pod().attach(&conf, "net1");
        node.status(&conf)
            .refused(50, &["rdma-ipam", "net-a", "10.7.0.1-10.7.0.2", "1 of 1 in use"]);
    });
}

#[test]
fn a_failing_ipam_plugin_is_unavailable_unless_it_reports_limited() {
    Node::run(|node| {
        for (says, code) in [(50, 50), (51, 51), (999, 50)] {
            node.install_script(
                "failing",
                &format!("echo '{{\"code\":{says},\"msg\":\"no database\"}}'; exit 1"),
            );
            let conf = node.conf(json!({"ipam": {"type": "failing"}}));
            node.status(&conf).refused(code, &["failing", "no database"]);
        }
    });
}

#[test]
fn status_ignores_a_parent_that_only_the_pod_or_a_device_plugin_knows() {
    Node::run(|node| {
        node.status(&node.conf(json!({"master": "inner", "linkInContainer": true})))
            .done();
        node.status(&node.conf(json!({})).without("master")).done();
    });
}
