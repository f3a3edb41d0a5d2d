// SPDX-License-Identifier: Apache-2.0
use super::*;
use crate::model::active_backup;
use common::cni::dispatch::Plugin as _;

fn on_bond() -> (Fixture, CniResult) {
    let fixture = Fixture::new().on_bond();
    let result = fixture.add("c1").unwrap();
    (fixture, result)
}

/// The findings of CHECK after `change` of the pod's links: the bond, and its ports.
fn findings(change: impl FnOnce(&mut Vec<Link>)) -> String {
    let (fixture, prev) = on_bond();
    change(&mut fixture.kernel.set().state.pod);
    let error = fixture.check("c1", &prev).unwrap_err();
    assert_eq!(error.code, Code::CHECK_FAILED);
    error.msg
}

#[test]
fn check_accepts_a_bond_as_add_left_it() {
    let (fixture, prev) = on_bond();
    fixture.check("c1", &prev).unwrap();
}

#[test]
fn check_accepts_the_address_of_a_bond_after_a_failover() {
    let (fixture, prev) = on_bond();
    let other = "00:00:10:50:fe:80:00:00:00:00:00:00:24:8a:07:03:00:b4:0c:5f";
    fixture.kernel.set().state.pod[0].address = other.parse().unwrap();
    fixture.check("c1", &prev).unwrap();
    let mut foreign = prev.clone();
    foreign.interfaces[0].mac = "00:00:00:00:fe:80:00:00:00:00:00:00:00:00:00:00:00:00:00:01".to_owned();
    let error = fixture.check("c1", &foreign).unwrap_err();
    assert!(error.msg.contains("its address is"), "{}", error.msg);
}

/// A change of the pod's links.
type PodChange = fn(&mut Vec<Link>);

#[test]
fn every_change_of_a_port_is_reported() {
    let cases: [(&str, PodChange); 5] = [
        ("its port on ib1 is gone", |pod| drop(pod.remove(2))),
        ("its port net1p1 (on ib1) is not in it any more", |pod| {
            pod[2].master = None;
        }),
        (
            "its port net1p1 (on ib1) has no carrier though ib1 carries traffic, so the bond cannot fail over",
            |pod| pod[2].carrier = false,
        ),
        (
            "its port net1p0 (on ib0): its P_Key is 0x8001, want 0xffff",
            |pod| {
                pod[1].info = LinkInfo::Ipoib {
                    pkey: Pkey(0x8001),
                    mode: IpoibMode::Datagram,
                    umcast: false,
                };
            },
        ),
        ("it is a link of kind ipoib, want bond", |pod| {
            pod[0].kind = Some("ipoib".to_owned());
            pod[0].info = pod[1].info.clone();
        }),
    ];
    for (finding, change) in cases {
        let text = findings(change);
        assert!(text.contains(finding), "{finding}: {text}");
    }
}

#[test]
fn a_port_without_a_cable_is_no_difference() {
    let (fixture, prev) = on_bond();
    fixture
        .node
        .write("class/infiniband/mlx5_1/ports/1/state", "1: DOWN");
    fixture.kernel.set().state.pod[2].carrier = false;
    fixture.check("c1", &prev).unwrap();
}

#[test]
fn a_bond_of_the_node_without_ports_is_reported() {
    let (fixture, prev) = on_bond();
    fixture.kernel.set().state.host.truncate(0);
    fixture.kernel.set().state.host.push(Link {
        info: active_backup(None),
        ..crate::model::bond(9, "bond0")
    });
    let error = fixture.check("c1", &prev).unwrap_err();
    assert_eq!(error.code, Code::NO_CARRIER);
    assert!(error.msg.starts_with("bond0 has no ports"), "{}", error.msg);
}

#[test]
fn check_finds_the_child_of_a_formerly_active_port() {
    let fixture = Fixture::new().on_bond();
    let keys = json!({"bond": "active"});
    let prev = fixture.add_with("c1", &keys).unwrap();
    fixture.kernel.set().state.host[2].info = active_backup(Some(5));
    let check = || {
        let prev = prev.to_json(common::cni::Version::V1_1_0);
        let call = fixture.call(&json!({"bond": "active", "prevResult": prev}));
        fixture
            .plugin()
            .check(&call, &attachment("c1"), &fixture.pod.path())
    };
    check().unwrap();
    fixture
        .node
        .write("class/infiniband/mlx5_0/ports/1/state", "1: DOWN");
    let error = check().unwrap_err();
    assert_eq!(error.code, Code::NO_CARRIER);
    assert!(error.msg.starts_with("ib0 carries nothing"), "{}", error.msg);
}

/// A macvlan on an Ethernet bond, and the result of ADD.
fn on_ethernet_bond() -> (Fixture, CniResult) {
    let mut fixture = Fixture::new();
    fixture.master = "bond0";
    let bond = crate::model::of_kind("bond", ethernet(9, "bond0"));
    let port = crate::model::port_of(9, ethernet(4, "eth1"));
    fixture.kernel.set().state.host = vec![port, bond];
    let prev = fixture.add_with("c1", &json!({})).unwrap();
    (fixture, prev)
}

fn check_of(fixture: &Fixture, prev: &CniResult) -> String {
    let call = fixture.call(&json!({"prevResult": prev.to_json(common::cni::Version::V1_1_0)}));
    let checked = fixture
        .plugin()
        .check(&call, &attachment("c1"), &fixture.pod.path());
    checked.map_or_else(|error| error.msg, |()| String::new())
}

#[test]
fn an_ethernet_bond_restarted_under_a_child_is_reported() {
    let (fixture, prev) = on_ethernet_bond();
    assert_eq!(check_of(&fixture, &prev), "");
    fixture.kernel.set().state.pod[0].carrier = false;
    assert_eq!(
        check_of(&fixture, &prev),
        "net1 is not as ADD left it: it has no carrier though bond0 has: was that bond restarted? set net1 down and up again, or create the pod again"
    );
    fixture.kernel.set().state.pod.clear();
    assert_eq!(
        check_of(&fixture, &prev),
        "net1 is not as ADD left it: it is gone (was bond0 recreated? the kernel deletes the children of a deleted bond); create the pod again"
    );
}

#[test]
fn check_finds_the_chosen_bond_without_the_journal_entry() {
    let fixture = Fixture::new().on_bond();
    let keys = json!({"master": [{"ifName": "bond*"}]});
    let prev = fixture.add_with("c1", &keys).unwrap();
    std::fs::remove_dir_all(fixture.state.path().join("attachments")).unwrap();
    // On the node, another link has the index of the pod's bond.
    let other = ethernet(fixture.kernel.state().pod[0].index, "bond7");
    fixture.kernel.set().state.host.push(other);
    let prev = prev.to_json(common::cni::Version::V1_1_0);
    let call = fixture.call(&json!({"master": [{"ifName": "bond*"}], "prevResult": prev}));
    fixture
        .plugin()
        .check(&call, &attachment("c1"), &fixture.pod.path())
        .unwrap();
}
