// SPDX-License-Identifier: Apache-2.0
//! A macvlan child in mode passthru takes the frames of its parent.

use super::*;
use crate::device::fixture::{WAYS, fixture};
use common::netlink::{Link, RouteEntry};
use serde_json::Value;

fn passthru(master: &Value) -> Value {
    json!({"master": master, "mode": "macvlan", "macvlanMode": "passthru"})
}

fn index_of(fixture: &Fixture, name: &str) -> u32 {
    let state = fixture.kernel.state();
    state.host.iter().find(|link| link.name == name).unwrap().index
}

/// Gives the node an address on the link `name`.
fn give_address(fixture: &Fixture, name: &str) {
    let address = (index_of(fixture, name), "10.1.0.1/24".parse().unwrap());
    fixture.kernel.set().state.host_addresses.push(address);
}

/// A node with a VLAN on `ens1`.
fn with_vlan() -> Fixture {
    let fixture = fixture(WAYS[0]);
    let vlan = Link {
        parent: Some(index_of(&fixture, "ens1")),
        ..of_kind("vlan", ethernet(20, "ens1.5"))
    };
    fixture.kernel.set().state.host.push(vlan);
    fixture
}

#[test]
fn a_passthru_child_is_refused_on_a_link_with_the_nodes_network() {
    for (link, via) in [("ens1", ""), ("ens1.5", " through ens1.5")] {
        for what in ["default route", "address 10.1.0.1"] {
            let fixture = with_vlan();
            let route = RouteEntry::new("0.0.0.0/0".parse().unwrap(), index_of(&fixture, link));
            match what {
                "default route" => fixture.kernel.set().state.host_routes.push(route),
                _ => give_address(&fixture, link),
            }
            let before = fixture.kernel.state();
            let keys = passthru(&json!("ens1"));
            let error = fixture.add_with("c1", &keys).unwrap_err();
            let text = format!(
                "ens1 cannot have a macvlan child in mode passthru: it carries the node's {what}{via}, and such a child \
                 takes the frames of its parent; name another master, or use another macvlan mode"
            );
            assert_eq!((error.code, error.msg), (Code::INVALID_CONFIG, text.clone()));
            assert_eq!(fixture.kernel.state(), before);
            assert_eq!(fixture.ipam.verbs(), [""; 0]);
            let error = fixture.status(&keys).unwrap_err();
            assert_eq!((error.code, error.msg), (Code::NOT_AVAILABLE, text));
        }
    }
}

/// A node whose VLAN on `ens1` is a port of `above` (index 21), a link of this kind.
fn with_vlan_below(kind: &str, above: &str) -> Fixture {
    let fixture = with_vlan();
    let mut model = fixture.kernel.set();
    model.state.host.push(of_kind(kind, ethernet(21, above)));
    let vlan = model.state.host.iter_mut().find(|link| link.index == 20);
    vlan.unwrap().master = Some(21);
    drop(model);
    fixture
}

#[test]
fn a_passthru_child_is_refused_below_a_bridge_on_a_vlan() {
    for what in ["default route", "address 10.1.0.1"] {
        let fixture = with_vlan_below("bridge", "br0");
        let route = RouteEntry::new("0.0.0.0/0".parse().unwrap(), 21);
        match what {
            "default route" => fixture.kernel.set().state.host_routes.push(route),
            _ => give_address(&fixture, "br0"),
        }
        let error = fixture.add_with("c1", &passthru(&json!("ens1"))).unwrap_err();
        let text = format!("it carries the node's {what} through br0, and such a child takes");
        assert!(error.msg.contains(&text), "{error}");
        assert_eq!(error.code, Code::INVALID_CONFIG);
    }
}

#[test]
fn a_passthru_child_is_refused_below_a_vlan_in_open_vswitch() {
    let fixture = with_vlan_below("openvswitch", "ovs-system");
    let error = fixture.add_with("c1", &passthru(&json!("ens1"))).unwrap_err();
    let text = "it carries Open vSwitch (ovs-system), and such a child takes the frames";
    assert!(error.msg.contains(text), "{error}");
    assert_eq!(error.code, Code::INVALID_CONFIG);
}

#[test]
fn a_passthru_child_is_refused_on_a_port_of_a_vrf_with_an_address() {
    let fixture = with_vlan_below("vrf", "vrf0");
    give_address(&fixture, "vrf0");
    let error = fixture.add_with("c1", &passthru(&json!("ens1"))).unwrap_err();
    assert!(error.msg.contains("10.1.0.1 through vrf0"), "{error}");
}

#[test]
fn another_macvlan_mode_may_share_the_nodes_network() {
    let fixture = with_vlan();
    give_address(&fixture, "ens1");
    let keys = json!({"master": "ens1", "mode": "macvlan", "macvlanMode": "private"});
    fixture.add_with("c1", &keys).unwrap();
}

#[test]
fn a_choice_for_a_passthru_child_passes_over_the_nodes_network() {
    let fixture = with_vlan();
    give_address(&fixture, "ens1.5");
    let keys = passthru(&json!(["ens1", "ens2"]));
    fixture.status(&keys).unwrap();
    fixture.add_with("c1", &keys).unwrap();
    let intent = fixture.entry("c1").intent.clone().unwrap();
    assert_eq!(intent.master, "ens2");
    let why = intent.why.unwrap();
    assert!(
        why.contains("ens1 (Ethernet) carries the node's address 10.1.0.1 through ens1.5, and a child"),
        "{why}"
    );
}
