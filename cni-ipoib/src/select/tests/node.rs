// SPDX-License-Identifier: Apache-2.0
//! Reading candidates from a node.

use super::*;
use crate::model::{Fault, ModelKernel, Node, bond, ethernet, ipoib, of_kind};
use common::netlink::{Link, RouteEntry};

/// `ib0` on `mlx5_0`, and `roce0` on `mlx5_1`.
fn node() -> Node {
    let node = Node::with_ib0();
    node.device("mlx5_1", "0000:3b:00.1")
        .port("mlx5_1", 1, "Ethernet", "4: ACTIVE")
        .netdev("roce0", 6, "0000:3b:00.1");
    node
}

fn links() -> Vec<Link> {
    vec![ethernet(2, "eth0"), ipoib(4, "ib0", 0xffff), ethernet(6, "roce0")]
}

fn found(kernel: &mut ModelKernel, master: Value) -> Vec<Candidate> {
    candidates(kernel, &node().sysfs(), &preferences(master), &Loads::new()).unwrap()
}

fn aside_of(links: Vec<Link>, name: &str, master: Value) -> Option<Aside> {
    let all = found(&mut ModelKernel::new(links), master);
    let one = all.into_iter().find(|candidate| candidate.name == name);
    one.unwrap_or_else(|| panic!("{name} is no candidate")).aside
}

fn names(links: Vec<Link>, master: Value) -> Vec<String> {
    let all = found(&mut ModelKernel::new(links), master);
    all.into_iter().map(|candidate| candidate.name).collect()
}

fn child_of(parent: u32, child: Link) -> Link {
    Link {
        parent: Some(parent),
        ..child
    }
}

#[test]
fn children_bridges_and_pods_links_are_candidates_only_by_name() {
    let mut all = links();
    all.push(child_of(4, ipoib(7, "ib0.8001", 0x8001)));
    all.push(child_of(6, of_kind("vlan", ethernet(8, "roce0.5"))));
    all.push(of_kind("bridge", ethernet(9, "br0")));
    assert_eq!(names(all.clone(), json!({})), ["eth0", "ib0", "roce0"]);
    assert_eq!(
        names(all.clone(), json!(["roce0.5", {}])),
        ["eth0", "ib0", "roce0", "roce0.5"]
    );
    let child = aside_of(all, "roce0.5", json!(["roce0.5"]));
    assert_eq!(child, Some(Aside::Unasked("is a child of roce0".to_owned())));
}

#[test]
fn a_link_with_our_mark_is_never_a_master() {
    let mut all = links();
    all.push(Link {
        alias: Some("rdmanet:other/c1@net1".to_owned()),
        ..child_of(4, ipoib(7, "net1", 0x8001))
    });
    let expected = Aside::Always("is the interface of a pod".to_owned());
    assert_eq!(aside_of(all, "net1", json!(["net1"])), Some(expected));
}

#[test]
fn a_port_of_a_vrf_is_a_candidate_only_by_name() {
    let mut all = links();
    all.push(of_kind("vrf", ethernet(9, "vrf0")));
    all[2].master = Some(9);
    assert_eq!(
        aside_of(all, "roce0", json!({})),
        Some(Aside::Unasked("is a port of vrf0".to_owned()))
    );
}

#[test]
fn a_port_of_a_bond_is_left_to_the_bond() {
    let mut all = links();
    all.push(bond(9, "bond9"));
    all.push(of_kind("bond", ethernet(10, "bond10")));
    all[1].master = Some(9);
    all[2].master = Some(10);
    assert_eq!(
        aside_of(all.clone(), "ib0", json!({})),
        Some(Aside::Unasked("is a port of bond9".to_owned())),
        "children of an InfiniBand port work beside the bond"
    );
    assert_eq!(
        aside_of(all.clone(), "roce0", json!({})),
        Some(Aside::Always("is a port of bond10".to_owned()))
    );
    let found = found(&mut ModelKernel::new(all), json!({}));
    let bonds: Vec<(&str, &str)> = found
        .iter()
        .filter(|candidate| candidate.name.starts_with("bond"))
        .map(|bond| (bond.name.as_str(), bond.port.as_ref().unwrap().device.as_str()))
        .collect();
    assert_eq!(bonds, [("bond9", "mlx5_0"), ("bond10", "mlx5_1")]);
    let pci: Vec<String> = found
        .iter()
        .filter_map(|one| one.pci)
        .map(|pci| pci.to_string())
        .collect();
    assert_eq!(pci.len(), 4, "a bond is where its first port is: {pci:?}");
}

#[test]
fn a_bond_is_skipped_if_bonds_are_refused() {
    let mut all = links();
    all.push(bond(9, "bond9"));
    let mut asked = preferences(json!({}));
    asked.needs.no_bond = true;
    let found = candidates(&mut ModelKernel::new(all), &node().sysfs(), &asked, &Loads::new()).unwrap();
    let aside = |name| found.iter().find(|one| one.name == name).unwrap().aside.clone();
    assert_eq!(
        aside("bond9"),
        Some(Aside::Always("is a bond, and bond is \"refuse\"".to_owned()))
    );
    assert_eq!(aside("ib0"), None);
}

fn default_route(index: u32) -> RouteEntry {
    RouteEntry::new("0.0.0.0/0".parse().unwrap(), index)
}

#[test]
fn an_ethernet_link_with_the_default_route_on_a_vlan_is_withheld() {
    let mut all = links();
    all.push(child_of(6, of_kind("vlan", ethernet(8, "roce0.5"))));
    all.push(child_of(8, of_kind("macvlan", ethernet(9, "mgmt"))));
    for (index, via) in [(6, ""), (8, " through roce0.5"), (9, " through mgmt")] {
        let mut kernel = ModelKernel::new(all.clone());
        kernel.set().state.host_routes = vec![default_route(index)];
        let all = found(&mut kernel, json!({}));
        let expected = format!("carries the node's default route{via}; name it if pods may share it");
        assert_eq!(all.last().unwrap().aside, Some(Aside::Unasked(expected)));
    }
    let mut kernel = ModelKernel::new(links());
    kernel.set().state.host_routes = vec![
        RouteEntry {
            table: Some(100),
            ..default_route(6)
        },
        default_route(4),
    ];
    let asides: Vec<_> = found(&mut kernel, json!({}))
        .into_iter()
        .map(|one| one.aside)
        .collect();
    assert_eq!(
        asides,
        [None, None, None],
        "another table, and an InfiniBand link, whose children share nothing"
    );
}

#[test]
fn a_node_address_withholds_only_a_bond() {
    let mut all = links();
    all[2] = of_kind("bond", all[2].clone());
    all.push(child_of(6, of_kind("vlan", ethernet(8, "roce0.5"))));
    for (index, via) in [(6, ""), (8, " through roce0.5")] {
        let mut kernel = ModelKernel::new(all.clone());
        kernel.set().state.host_addresses = vec![
            (4, "10.1.0.1/24".parse().unwrap()),
            (index, "10.2.0.1/24".parse().unwrap()),
        ];
        let found = found(&mut kernel, json!({}));
        assert_eq!(found[1].aside, None);
        let expected =
            format!("is a bond that carries the node's address 10.2.0.1{via}; name it if pods may share it");
        assert_eq!(found[2].aside, Some(Aside::Unasked(expected)));
    }
    let mut kernel = ModelKernel::new(links());
    kernel.set().state.host_addresses = vec![(6, "10.1.0.1/24".parse().unwrap())];
    assert!(
        found(&mut kernel, json!({}))
            .iter()
            .all(|one| one.aside.is_none())
    );
}

#[test]
fn a_link_below_a_bridge_with_the_default_route_is_chosen_only_by_name() {
    let mut all = links();
    let vlan = child_of(6, of_kind("vlan", ethernet(8, "roce0.5")));
    all.push(Link {
        master: Some(9),
        ..vlan
    });
    all.push(of_kind("bridge", ethernet(9, "br0")));
    let mut kernel = ModelKernel::new(all);
    kernel.set().state.host_routes = vec![default_route(9)];
    let why = "carries the node's default route through br0; name it if pods may share it";
    assert_eq!(
        found(&mut kernel, json!({}))[2].aside,
        Some(Aside::Unasked(why.to_owned()))
    );
}

#[test]
fn a_representor_is_never_chosen() {
    let mut all = links();
    all[2].phys_port_name = Some("pf0vf0".to_owned());
    let why = "is the representor pf0vf0: it reaches only the function that it represents";
    for master in [json!({}), json!(["roce0"])] {
        let expected = Some(Aside::Always(why.to_owned()));
        assert_eq!(aside_of(all.clone(), "roce0", master), expected);
    }
    all[2].phys_port_name = Some("p0".to_owned());
    assert_eq!(aside_of(all, "roce0", json!({})), None, "the uplink");
}

#[test]
fn a_used_link_is_never_the_parent_of_a_passthru_child() {
    let mut all = links();
    all.push(child_of(6, of_kind("vlan", ethernet(8, "roce0.5"))));
    for (index, via) in [(6, ""), (8, " through roce0.5")] {
        for (routes, what) in [
            (vec![default_route(index)], "default route"),
            (Vec::new(), "address 10.1.0.1"),
        ] {
            let mut kernel = ModelKernel::new(all.clone());
            kernel.set().state.host_addresses = vec![(index, "10.1.0.1/24".parse().unwrap())];
            kernel.set().state.host_routes = routes;
            for master in [json!({}), json!(["eth0", "roce0"])] {
                let keys = json!({"master": master, "macvlanMode": "passthru"});
                let preferences = preferences_of(keys);
                let found = candidates(&mut kernel, &node().sysfs(), &preferences, &Loads::new()).unwrap();
                let expected = format!(
                    "carries the node's {what}{via}, and a child in mode passthru takes the frames of its parent"
                );
                assert_eq!(found[2].aside, Some(Aside::Always(expected)));
                assert_eq!((&found[0].aside, &found[1].aside), (&None, &None));
            }
        }
    }
}

#[test]
fn a_candidate_without_traffic_has_a_reason() {
    type Change = fn(&mut Link);
    let cases: [(usize, Change, &str); 3] = [
        (1, |link| link.up = false, "is down (ip link set ib0 up)"),
        (2, |link| link.up = false, "is down (ip link set roce0 up)"),
        (2, |link| link.carrier = false, "has no carrier"),
    ];
    for (index, change, problem) in cases {
        let mut all = links();
        change(&mut all[index]);
        let found = found(&mut ModelKernel::new(all), json!({}));
        assert_eq!(found[index].problem.as_deref(), Some(problem));
    }
    let mut all = links();
    all[1].carrier = false;
    let found = found(&mut ModelKernel::new(all), json!({}));
    assert_eq!(
        found[1].problem, None,
        "of InfiniBand the port decides: another partition may have its group"
    );
}

#[test]
fn a_candidate_whose_port_is_not_active_names_what_the_subnet_manager_has_not_done() {
    for (state, problem) in [
        ("1: DOWN", "down (LinkUp)"),
        (
            "2: INIT",
            "initializing (LinkUp), because no subnet manager has configured it",
        ),
        (
            "3: ARMED",
            "armed (LinkUp), because the subnet manager has not finished configuring it",
        ),
    ] {
        let node = node();
        node.write("class/infiniband/mlx5_0/ports/1/state", state);
        let kernel = &mut ModelKernel::new(links());
        let found = candidates(kernel, &node.sysfs(), &preferences(json!({})), &Loads::new()).unwrap();
        let expected = format!("carries nothing: mlx5_0 port 1 is {problem}");
        assert_eq!(found[1].problem, Some(expected));
    }
}

#[test]
fn partitions_are_read_only_for_a_description_that_needs_them() {
    let pkeys = |keys: Value| {
        let preferences = preferences_of(keys);
        let mut kernel = ModelKernel::new(links());
        let found = candidates(&mut kernel, &node().sysfs(), &preferences, &Loads::new()).unwrap();
        found[1].port.as_ref().unwrap().pkeys.len()
    };
    assert_eq!(pkeys(json!({"master": {}})), 0);
    assert_eq!(pkeys(json!({"master": {"pkey": "0x8001"}})), 3);
    assert_eq!(pkeys(json!({"master": ["ib0"], "pkey": "0x8001"})), 3);
}

#[test]
fn the_error_of_a_refused_request_names_the_step() {
    let mut all = links();
    all[2] = of_kind("bond", all[2].clone());
    for (number, step) in [
        "list the links",
        "list the routes of roce0",
        "list the addresses of roce0",
    ]
    .into_iter()
    .enumerate()
    {
        let mut kernel = ModelKernel::new(all.clone());
        kernel.fail(Fault::Refused(number));
        let result = candidates(
            &mut kernel,
            &node().sysfs(),
            &preferences(json!({})),
            &Loads::new(),
        );
        assert_eq!(result.unwrap_err().to_string(), format!("cannot {step}"));
    }
}
