// SPDX-License-Identifier: Apache-2.0
//! Both ways to create a child: in the pod, or on the node with a move into the pod. The driver of the port decides.
//! The guarantees hold for both.

use crate::fabric::{address, network, reaches, run};
use tests::{Node, json};

/// The name of the driver of a port's link.
fn driver(node: &Node, port: &str) -> String {
    let output = node.exec("ethtool", &format!("-i {port}"));
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let line = text.lines().find_map(|line| line.strip_prefix("driver: "));
    line.unwrap_or_else(|| panic!("{text}")).to_owned()
}

#[test]
fn rdmanet_node_shows_how_each_port_creates_children() {
    run(|node| {
        let answer = crate::rdmanet_node::node_output(node);
        for (hca, port) in [("softib0", "ib0"), ("softib1", "ib1"), ("softib2", "ib2")] {
            let way = match driver(node, port).as_str() {
                "ib_ipoib" => "direct",
                "mlx5_core[ib_ipoib]" => "moved",
                other => panic!("{port} has driver {other}"),
            };
            let shown = crate::rdmanet_node::port(&answer, hca);
            assert_eq!(shown["children"], json!(way), "{}", answer.text);
        }
    });
}

#[test]
fn a_pod_link_with_the_index_of_the_parent_does_not_disturb_add() {
    run(|node| {
        let conf = network(node, &json!({}));
        let (first, second) = (node.pod(), node.pod());
        let number = node.link("ib0").index;
        first.ip(&format!("link add decoy index {number} type dummy"));
        first.attach(&conf, "net1");
        let there = second.attach(&conf, "net1");
        reaches(&first, &address(&there, false));
        let on_the_way = |name: &String| name.starts_with("rn");
        assert!(
            !node.link_names().iter().any(on_the_way),
            "{:?}",
            node.link_names()
        );
        first.check(&conf, "net1").done();
        first.detach(&conf, "net1");
        second.detach(&conf, "net1");
        assert_eq!(first.link_names(), ["decoy"]);
    });
}
