// SPDX-License-Identifier: Apache-2.0
use crate::device::fixture::{WAYS, add, claim, fixture};
use crate::model::{Fixture, of_kind};
use common::netlink::{Link, RouteEntry};

fn refused(fixture: &Fixture, link: &str) -> String {
    add(fixture, link).unwrap_err().msg
}

#[test]
fn users_of_a_link_are_found_in_pods_too() {
    let fixture = fixture(WAYS[0]);
    let vlan = Link {
        parent: Some(6),
        ..of_kind("vlan", crate::model::ethernet(60, "ens1.7"))
    };
    fixture.kernel.set().state.host.push(vlan);
    assert!(refused(&fixture, "ens1").contains("it has links on top of it (ens1.7)"));
    fixture
        .add_with("c2", &serde_json::json!({"master": "ib0"}))
        .unwrap();
    fixture.kernel.set().state.pod[0].name = "other".to_owned();
    let text = refused(&fixture, "ib0");
    assert!(
        text.contains("it has links on top of it (the interface of fabric/net1 of container c2)"),
        "{text}"
    );
}

#[test]
fn the_default_route_is_found_through_a_bond() {
    let fixture = fixture(WAYS[0]);
    {
        let mut model = fixture.kernel.set();
        model
            .state
            .host
            .push(of_kind("bond", crate::model::ethernet(70, "bond0")));
        model.state.host[2].master = Some(70);
        model
            .state
            .host_routes
            .push(RouteEntry::new("0.0.0.0/0".parse().unwrap(), 70));
    }
    let text = refused(&fixture, "ens1");
    assert!(
        text.contains("it is a port of bond0 and takes part in the default route over bond0"),
        "{text}"
    );
}

#[test]
fn a_physical_function_with_virtual_functions_stays() {
    let fixture = fixture(WAYS[0]);
    fixture
        .node
        .write("devices/pci0000:3a/0000:17:00.0/sriov_numvfs", "2");
    assert!(refused(&fixture, "ens1").contains("it has 2 virtual functions"));
    fixture
        .node
        .write("devices/pci0000:3a/0000:17:00.0/sriov_numvfs", "0");
    add(&fixture, "ens1").unwrap();
}

#[test]
fn the_last_active_port_stays() {
    let fixture = fixture(WAYS[0]);
    fixture
        .node
        .write("class/infiniband/mlx5_1/ports/1/state", "1: DOWN");
    assert!(refused(&fixture, "ib0").contains("the last active InfiniBand port"));
    fixture.kernel.set().state.host[3].carrier = false;
    assert!(refused(&fixture, "ens1").contains("the last active Ethernet port"));
    let keys = serde_json::json!({"mode": "device", "master": "ib0", "keepLast": false});
    fixture.add_with("c1", &keys).unwrap();
}

/// The namespace to which the pod had moved the link has ended, and the pod lives.
#[test]
fn a_returned_link_belongs_to_its_living_pod_whatever_its_address() {
    let fixture = fixture(WAYS[0]);
    fixture.kernel.set().state.host[2].perm_address = None;
    add(&fixture, "ens1").unwrap();
    {
        let mut model = fixture.kernel.set();
        model.state.pod[0].address = "02:00:00:00:00:aa".parse().unwrap();
        model.state.pod_dies();
    }
    fixture.node.netdev("net1", 6, "0000:17:00.0");
    let keys = serde_json::json!({"mode": "device", "master": "net1"});
    let text = fixture.add_with("c2", &keys).unwrap_err().msg;
    assert!(text.contains("net1 of container c1"), "{text}");
}

/// The node's bond was removed, or the node renamed the link, while a pod has a child of the link.
#[test]
fn a_link_with_a_child_in_a_pod_stays_though_its_name_has_changed() {
    for (link, master) in [("ens1", "former"), ("ib0", "bond0")] {
        let fixture = fixture(WAYS[0]);
        fixture
            .add_with("c2", &serde_json::json!({"master": link}))
            .unwrap();
        fixture.amend_intent("c2", |intent| intent.master = master.to_owned());
        fixture.kernel.set().state.pod[0].name = "other".to_owned();
        let text = refused(&fixture, link);
        assert!(
            text.contains("it has links on top of it (the interface of fabric/net1 of container c2)"),
            "{text}"
        );
    }
}

#[test]
fn a_port_that_another_add_is_about_to_move_is_not_left_to_the_node() {
    for (link, other) in [("ib0", "ib1"), ("ens1", "ens2")] {
        let fixture = fixture(WAYS[0]);
        let intent = claim(&fixture, other);
        fixture.entry("c2").begin(intent).unwrap();
        let text = refused(&fixture, link);
        assert!(text.contains("the last active"), "{text}");
        fixture.amend_intent("c2", |intent| intent.netns_id = (1, 1));
        add(&fixture, link).expect("the pod that had the other port is dead");
    }
}
