// SPDX-License-Identifier: Apache-2.0
use super::*;

#[test]
fn a_parent_that_is_down_is_refused_with_a_command() {
    let down = |mut host: Host| {
        host.master.up = false;
        host.root.up = false;
        host
    };
    let mut child = infiniband();
    child.master = Link {
        up: false,
        ..ipoib(5, "ib0.8001", 0x8001)
    };
    let mut root = infiniband();
    root.master = ipoib(5, "ib0.8001", 0x8001);
    root.root.up = false;
    assert_refused([
        (
            json!({}),
            down(infiniband()),
            102,
            "ib0 is down; bring it up: ip link set ib0 up",
        ),
        (
            json!({}),
            down(lan()),
            102,
            "eth0 is down; bring it up: ip link set eth0 up",
        ),
        (
            json!({}),
            child,
            102,
            "ib0.8001 is down; bring it up: ip link set ib0.8001 up",
        ),
        (
            json!({}),
            root,
            102,
            "ib0 is down; bring it up: ip link set ib0 up",
        ),
    ]);
}

#[test]
fn an_infiniband_port_must_be_active() {
    let at = |state| Host {
        port: Some(port(state)),
        ..infiniband()
    };
    assert_refused([
        (
            json!({}),
            at(PortState::Down),
            102,
            "ib0 carries nothing: mlx5_0 port 1 is down (LinkUp); check cable, switch port and subnet manager",
        ),
        (
            json!({}),
            at(PortState::Init),
            102,
            "ib0 carries nothing: mlx5_0 port 1 is initializing (LinkUp); no subnet manager has configured it; start one that reaches this port: opensm, or one in a switch or in UFM",
        ),
        (
            json!({}),
            at(PortState::Armed),
            102,
            "ib0 carries nothing: mlx5_0 port 1 is armed (LinkUp); the subnet manager has not finished configuring it",
        ),
        (
            json!({}),
            at(PortState::ActiveDefer),
            102,
            "ib0 carries nothing: mlx5_0 port 1 is active, deferred (LinkUp); the subnet manager has not finished configuring it",
        ),
        (
            json!({}),
            at(PortState::Unknown),
            102,
            "ib0 carries nothing: mlx5_0 port 1 is unknown (LinkUp); the subnet manager has not finished configuring it",
        ),
    ]);
}

#[test]
fn without_an_rdma_port_carrier_decides() {
    let without = |mut host: Host| {
        host.root.carrier = false;
        host.master.carrier = false;
        host
    };
    planned(json!({}), &without(infiniband()));
    let unseen = Host {
        port: None,
        ..without(infiniband())
    };
    assert_refused([
        (
            json!({}),
            unseen,
            102,
            "ib0 has no carrier; check cable and switch port",
        ),
        (
            json!({}),
            without(lan()),
            102,
            "eth0 has no carrier; check cable and switch port",
        ),
        (
            json!({"mode": "ipvlan"}),
            without(lan()),
            102,
            "eth0 has no carrier; check cable and switch port",
        ),
    ]);
}

#[test]
fn an_invalid_configuration_is_reported_before_a_missing_carrier() {
    let mut parent = infiniband();
    parent.master.up = false;
    assert_eq!(refused(json!({"pkey": "0x8003"}), &parent).0, 7);
}
