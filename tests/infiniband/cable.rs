// SPDX-License-Identifier: Apache-2.0
//! Ports that are down: refused with the state and the remedy, and told by STATUS.

use crate::fabric::{assert_reaches, network, on_fabric, plug, soon};
use tests::{json, traces::assert_same};

#[test]
fn a_port_without_cable_is_refused_and_told_by_status() {
    on_fabric(|node| {
        let pod = node.pod();
        let conf = network(node, "ib1", &json!({}));
        node.status(&conf).done();
        plug(1, false);
        let before = node.traces(&[&pod]);
        let pieces = ["ib1", "softib1 port 1", "cable"];
        pod.add(&conf, "net1").refused(102, &pieces);
        node.status(&conf).refused(51, &pieces);
        assert_same(&before, &node.traces(&[&pod]), "after a refused ADD");
        plug(1, true);
        pod.attach(&conf, "net1");
        pod.detach(&conf, "net1");
    });
}

#[test]
fn a_parent_that_is_down_is_refused_with_the_command_that_brings_it_up() {
    on_fabric(|node| {
        node.ip("link set ib1 down");
        let conf = network(node, "ib1", &json!({}));
        let pieces = ["ib1 is down", "ip link set ib1 up"];
        node.pod().add(&conf, "net1").refused(102, &pieces);
        node.status(&conf).refused(51, &pieces);
    });
}

#[test]
fn pods_that_are_attached_come_back_with_the_cable_and_check_never_blames_them() {
    on_fabric(|node| {
        let (a, b) = (node.pod(), node.pod());
        let (on_ib0, on_ib1) = (network(node, "ib0", &json!({})), network(node, "ib1", &json!({})));
        a.attach(&on_ib0, "net1");
        b.attach(&on_ib1, "net1");
        plug(1, false);
        assert!(soon(|| !b.link("net1").carrier), "net1 keeps its carrier");
        plug(1, true);
        assert!(soon(|| b.link("net1").carrier), "net1 does not come back");
        assert_reaches(&a, &b);
        b.check(&on_ib1, "net1").done();
        a.detach(&on_ib0, "net1");
        b.detach(&on_ib1, "net1");
    });
}

#[test]
fn del_works_while_the_cable_is_out() {
    on_fabric(|node| {
        let pod = node.pod();
        let before = node.traces(&[&pod]);
        let conf = network(node, "ib1", &json!({}));
        pod.attach(&conf, "net1");
        plug(1, false);
        pod.detach(&conf, "net1");
        assert_same(&before, &node.traces(&[&pod]), "after DEL without a cable");
    });
}
