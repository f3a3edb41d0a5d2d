// SPDX-License-Identifier: Apache-2.0
//! A bond in the pod: three links that are created and deleted together.

use super::{a_failure_leaves_nothing, after_a_kill, assert_clean, at_every_request, with_failing_del};
use crate::mark::Mark;
use crate::model::{Fault, Fixture, Ipam, attachment, ethernet, ipoib};
use common::cni::Code;
use common::netlink::{Link, LinkInfo, LinkLayer};
use serde_json::json;

fn fixture() -> Fixture {
    Fixture::new().on_bond()
}

fn names(links: &[Link]) -> Vec<&str> {
    links.iter().map(|link| link.name.as_str()).collect()
}

#[test]
fn the_pod_gets_a_bond_its_ports_and_one_address() {
    let fixture = fixture();
    let result = fixture.add("c1").unwrap();
    let state = fixture.kernel.state();
    assert_eq!(names(&state.pod), ["net1", "net1p0", "net1p1"]);
    let bond = &state.pod[0];
    assert!(matches!(bond.info, LinkInfo::Bond { .. }), "{:?}", bond.info);
    assert_eq!(
        (bond.layer, bond.up, bond.mtu),
        (LinkLayer::Infiniband, true, 2000)
    );
    for (port, parent) in state.pod[1..].iter().zip([4, 5]) {
        assert_eq!((port.master, port.parent), (Some(bond.index), Some(parent)));
        assert_eq!((port.up, port.mtu), (true, 2000));
    }
    assert!(state.addresses.iter().all(|(of, _)| *of == bond.index));
    assert_eq!(result.interfaces.len(), 1);
    assert_eq!(result.interfaces[0].name, "net1");
    assert_eq!(result.interfaces[0].pci_id, "", "the functions are the ports'");
    fixture.del("c1").unwrap();
    assert!(fixture.kernel.state().pod.is_empty());
}

#[test]
fn every_link_of_a_bond_has_the_mark_of_the_attachment() {
    let fixture = fixture();
    fixture.add("c1").unwrap();
    let mark = Mark::new("fabric", &attachment("c1"));
    for link in &fixture.kernel.state().pod {
        assert_eq!(
            (link.group, link.alias.as_deref()),
            (mark.group, Some(mark.alias.as_str()))
        );
    }
}

#[test]
fn a_failure_at_any_step_of_a_bond_leaves_nothing() {
    a_failure_leaves_nothing(&fixture(), Fault::Refused);
    a_failure_leaves_nothing(&fixture(), Fault::AnswerLost);
}

#[test]
fn a_failure_at_any_step_of_a_bond_with_a_renamed_port_leaves_nothing() {
    let fixture = fixture();
    fixture.kernel.set().names_of_host_count = true;
    fixture.kernel.set().state.host.push(ipoib(19, "net1p0", 0x8001));
    a_failure_leaves_nothing(&fixture, Fault::Refused);
}

#[test]
fn a_refused_change_leaves_no_link_of_a_bond_whose_mark_the_pod_changed() {
    let fixture = fixture();
    let before = fixture.kernel.state();
    let mut changes = 0;
    at_every_request(Fault::Unmarked, |number| {
        fixture.kernel.fail(Fault::Unmarked(number));
        let added = fixture.add("c1");
        let log = fixture.kernel.get().log.clone();
        if log.get(number).is_some_and(|asked| asked.starts_with("change ")) {
            added.unwrap_err();
            changes += 1;
            assert_clean(&fixture, &before, &format!("without {:?}", log[number]));
        } else {
            fixture.kernel.fail(Fault::None);
            fixture.del("c1").unwrap();
            let mut state = fixture.kernel.set();
            state.state = before.clone();
        }
        log.len()
    });
    assert_eq!(changes, 3, "one for each link");
}

#[test]
fn after_a_kill_at_any_step_of_a_bond_del_finds_everything() {
    after_a_kill(&with_failing_del().on_bond(), |fixture, case| {
        fixture.del("c1").expect(case);
    });
}

#[test]
fn after_a_kill_at_any_step_of_a_bond_gc_finds_everything() {
    after_a_kill(&with_failing_del().on_bond(), |fixture, case| {
        fixture.gc(&["other"]).expect(case);
    });
}

#[test]
fn after_a_kill_of_a_bonds_add_and_the_pods_death_del_finds_everything() {
    after_a_kill(&with_failing_del().on_bond(), |fixture, case| {
        fixture.kernel.set().state.pod_dies();
        fixture.del_without_netns("c1").expect(case);
    });
    after_a_kill(&with_failing_del().on_bond(), |fixture, case| {
        fixture.kernel.set().state.pod_dies();
        fixture.gc(&[]).expect(case);
    });
}

#[test]
fn gc_removes_both_returned_ports_of_a_bond_without_its_journal_entry() {
    let fixture = fixture();
    fixture.add("c1").unwrap();
    fixture.kernel.set().state.pod_dies();
    assert_eq!(fixture.kernel.state().host.len(), 5);
    std::fs::remove_dir_all(fixture.state.path().join("attachments")).unwrap();
    fixture.ipam.forget_calls();
    fixture.gc(&[]).unwrap();
    assert_eq!(names(&fixture.kernel.state().host), ["ib0", "ib1", "bond0"]);
    assert_eq!(fixture.ipam.calls(), ["DEL c1 net1", "GC"]);
}

#[test]
fn a_port_name_in_use_is_refused_before_any_change() {
    let fixture = fixture();
    fixture.kernel.set().state.pod.push(ethernet(70, "net1p1"));
    let before = fixture.kernel.state();
    let error = fixture.add("c1").unwrap_err();
    assert_eq!(error.code, Code::IFNAME_IN_USE);
    assert!(error.msg.contains("net1p1"), "{}", error.msg);
    assert_eq!(fixture.kernel.state(), before);
    assert_eq!(fixture.ipam.verbs(), [""; 0]);
}

#[test]
fn a_bond_needs_carrier_on_one_port() {
    let fixture = fixture();
    fixture.kernel.set().dark = vec![5];
    fixture.add("c1").unwrap();
    fixture.del("c1").unwrap();
    let before = fixture.kernel.state();
    fixture.kernel.set().dark = vec![4, 5];
    let error = fixture.add("c1").unwrap_err();
    assert_eq!(error.code, Code::NO_CARRIER);
    assert!(
        error.msg.contains("net1 has no carrier after 10s"),
        "{}",
        error.msg
    );
    assert_eq!(fixture.kernel.state(), before);
}

#[test]
fn the_bond_has_the_mtu_of_its_ports_unless_one_is_requested() {
    let fixture = Fixture::with(Ipam::dual_stack()).on_bond();
    fixture.add_with("c1", &json!({})).unwrap();
    let mtus = |fixture: &Fixture| {
        fixture
            .kernel
            .state()
            .pod
            .iter()
            .map(|link| link.mtu)
            .collect::<Vec<_>>()
    };
    assert_eq!(mtus(&fixture), [2044; 3]);
    fixture.del("c1").unwrap();
    fixture.kernel.set().mtu_cap = 1900;
    let error = fixture.add_with("c1", &json!({"mtu": 2000})).unwrap_err();
    assert!(
        error.msg.starts_with("net1 has MTU 1900, not 2000"),
        "{}",
        error.msg
    );
}

#[test]
fn bond_active_makes_one_child_of_the_active_port() {
    let fixture = fixture();
    fixture.add_with("c1", &json!({"bond": "active"})).unwrap();
    let pod = fixture.kernel.state().pod;
    assert_eq!((names(&pod), pod[0].parent), (vec!["net1"], Some(4)));
}
