// SPDX-License-Identifier: Apache-2.0
use crate::model::{Fixture, Ipam};
use common::cni::Code;
use serde_json::json;

fn refused(fixture: &Fixture, keys: &serde_json::Value) -> (u32, String) {
    let error = fixture.status(keys).unwrap_err();
    (error.code.0, error.msg)
}

#[test]
fn status_of_a_ready_node_calls_the_ipam_plugin() {
    let fixture = Fixture::new();
    let before = fixture.kernel.state();
    fixture.status(&json!({})).unwrap();
    assert_eq!(fixture.ipam.verbs(), ["STATUS"]);
    assert_eq!(fixture.kernel.state(), before);
    fixture.status(&json!({"ipam": {}})).unwrap();
    assert_eq!(fixture.ipam.verbs(), ["STATUS"]);
}

#[test]
fn a_parent_without_traffic_is_reported_as_limited() {
    let fixture = Fixture::new();
    fixture.kernel.set().state.host[0].up = false;
    assert_eq!(
        refused(&fixture, &json!({})),
        (51, "ib0 is down; bring it up: ip link set ib0 up".to_owned())
    );
    fixture.kernel.set().state.host[0].up = true;
    fixture
        .node
        .write("class/infiniband/mlx5_0/ports/1/state", "2: INIT");
    let (code, text) = refused(&fixture, &json!({}));
    assert_eq!(code, 51);
    assert!(
        text.starts_with("ib0 carries nothing: mlx5_0 port 1 is initializing"),
        "{text}"
    );
}

#[test]
fn every_other_refusal_is_reported_as_not_available() {
    let fixture = Fixture::new();
    for (keys, text) in [
        (
            json!({"master": "ib9"}),
            "master \"ib9\" does not exist on this node",
        ),
        (
            json!({"pkey": "0x8003"}),
            "pkey 0x8003 is not in the table of mlx5_0 port 1",
        ),
        (
            json!({"mode": "macvlan"}),
            "ib0 is InfiniBand: macvlan needs Ethernet; use mode ipoib",
        ),
        (json!({"mtu": -1}), "mtu is -1, want 68 bytes or more"),
        (json!({"mtu": "x"}), "network configuration: mtu: invalid type"),
        (json!({"pkye": 1}), "unknown key pkye"),
        (
            json!({"ipam": {"type": "dhcp"}}),
            "ipam.type dhcp is not supported",
        ),
        (
            json!({"ipam": {"type": "nowhere"}}),
            "ipam plugin \"nowhere\" is not in CNI_PATH",
        ),
    ] {
        let (code, message) = refused(&fixture, &keys);
        assert_eq!(code, 50, "{message}");
        assert!(message.starts_with(text), "{message}");
    }
}

#[test]
fn the_ipam_plugins_error_is_passed_on_in_one_of_two_codes() {
    for (its, ours, more) in [
        (50, Code::NOT_AVAILABLE, ""),
        (51, Code::LIMITED, ""),
        (7, Code::NOT_AVAILABLE, ""),
        (999, Code::NOT_AVAILABLE, " (code 999 of ranges)"),
    ] {
        let script = format!("echo '{{\"code\":{its},\"msg\":\"pool is full\"}}'; exit 1");
        let fixture = Fixture::with(Ipam::running(&script));
        assert_eq!(
            refused(&fixture, &json!({})),
            (ours.0, format!("ranges: pool is full{more}"))
        );
    }
}

#[test]
fn a_parent_that_is_known_only_at_add_is_not_checked() {
    let fixture = Fixture::new();
    fixture
        .status(&json!({"master": "eth9", "linkInContainer": true}))
        .unwrap();
    fixture.status(&json!({"master": null})).unwrap();
}

#[test]
fn a_bond_is_ready_while_one_port_carries_traffic() {
    let fixture = Fixture::new().on_bond();
    fixture
        .node
        .write("class/infiniband/mlx5_0/ports/1/state", "1: DOWN");
    fixture.status(&json!({})).unwrap();
    fixture
        .node
        .write("class/infiniband/mlx5_1/ports/1/state", "2: INIT");
    let (code, text) = refused(&fixture, &json!({}));
    assert_eq!(code, 51);
    assert!(
        text.starts_with("bond0 carries nothing: ib0 on mlx5_0 port 1 is down"),
        "{text}"
    );
    let (code, text) = refused(&fixture, &json!({"bond": "refuse"}));
    assert_eq!(code, 50);
    assert!(text.starts_with("bond0 is a bond, and bond is"), "{text}");
}
