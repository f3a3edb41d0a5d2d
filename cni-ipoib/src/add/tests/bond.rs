// SPDX-License-Identifier: Apache-2.0
//! A bond in the pod: three links that are created and deleted together.

use super::{a_failure_leaves_nothing, after_a_kill, mortal};
use crate::mark::Mark;
use crate::model::{Fault, Ipam, Rig, attachment, ethernet, ipoib};
use common::cni::Code;
use common::netlink::{Link, LinkInfo, LinkLayer};
use serde_json::json;

fn rig() -> Rig {
    Rig::new().on_bond()
}

fn names(links: &[Link]) -> Vec<&str> {
    links.iter().map(|link| link.name.as_str()).collect()
}

#[test]
fn the_pod_gets_a_bond_its_ports_and_one_address() {
    let rig = rig();
    let result = rig.add("c1").unwrap();
    let state = rig.kernel.state();
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
    rig.del("c1").unwrap();
    assert!(rig.kernel.state().pod.is_empty());
}

#[test]
fn every_link_of_a_bond_has_the_mark_of_the_attachment() {
    let rig = rig();
    rig.add("c1").unwrap();
    let mark = Mark::new("fabric", &attachment("c1"));
    for link in &rig.kernel.state().pod {
        assert_eq!(
            (link.group, link.alias.as_deref()),
            (mark.group, Some(mark.alias.as_str()))
        );
    }
}

#[test]
fn a_failure_at_any_step_of_a_bond_leaves_nothing() {
    a_failure_leaves_nothing(&rig(), Fault::Refused);
    a_failure_leaves_nothing(&rig(), Fault::AnswerLost);
}

#[test]
fn a_failure_at_any_step_of_a_bond_with_a_renamed_port_leaves_nothing() {
    let rig = rig();
    rig.kernel.set().names_of_host_count = true;
    rig.kernel.set().state.host.push(ipoib(19, "net1p0", 0x8001));
    a_failure_leaves_nothing(&rig, Fault::Refused);
}

#[test]
fn after_a_kill_at_any_step_of_a_bond_del_finds_everything() {
    after_a_kill(&mortal().on_bond(), |rig, case| rig.del("c1").expect(case));
}

#[test]
fn after_a_kill_at_any_step_of_a_bond_gc_finds_everything() {
    after_a_kill(&mortal().on_bond(), |rig, case| rig.gc(&["other"]).expect(case));
}

#[test]
fn after_a_kill_of_a_bonds_add_and_the_pods_death_del_finds_everything() {
    after_a_kill(&mortal().on_bond(), |rig, case| {
        rig.kernel.set().state.pod_dies();
        rig.del_without_netns("c1").expect(case);
    });
    after_a_kill(&mortal().on_bond(), |rig, case| {
        rig.kernel.set().state.pod_dies();
        rig.gc(&[]).expect(case);
    });
}

#[test]
fn gc_removes_both_returned_ports_of_a_bond_without_its_journal_entry() {
    let rig = rig();
    rig.add("c1").unwrap();
    rig.kernel.set().state.pod_dies();
    assert_eq!(rig.kernel.state().host.len(), 5);
    std::fs::remove_dir_all(rig.state.path().join("attachments")).unwrap();
    rig.ipam.forget_calls();
    rig.gc(&[]).unwrap();
    assert_eq!(names(&rig.kernel.state().host), ["ib0", "ib1", "bond0"]);
    assert_eq!(rig.ipam.calls(), ["DEL c1 net1", "GC"]);
}

#[test]
fn a_port_name_in_use_is_refused_before_any_change() {
    let rig = rig();
    rig.kernel.set().state.pod.push(ethernet(70, "net1p1"));
    let before = rig.kernel.state();
    let error = rig.add("c1").unwrap_err();
    assert_eq!(error.code, Code::IFNAME_IN_USE);
    assert!(error.msg.contains("net1p1"), "{}", error.msg);
    assert_eq!(rig.kernel.state(), before);
    assert_eq!(rig.ipam.verbs(), [""; 0]);
}

#[test]
fn a_bond_needs_carrier_on_one_port() {
    let rig = rig();
    rig.kernel.set().dark = vec![5];
    rig.add("c1").unwrap();
    rig.del("c1").unwrap();
    let before = rig.kernel.state();
    rig.kernel.set().dark = vec![4, 5];
    let error = rig.add("c1").unwrap_err();
    assert_eq!(error.code, Code::NO_CARRIER);
    assert!(
        error.msg.contains("net1 has no carrier after 10s"),
        "{}",
        error.msg
    );
    assert_eq!(rig.kernel.state(), before);
}

#[test]
fn the_bond_has_the_mtu_of_its_ports_unless_one_is_requested() {
    let rig = Rig::with(Ipam::dual_stack()).on_bond();
    rig.add_with("c1", &json!({})).unwrap();
    let mtus = |rig: &Rig| {
        rig.kernel
            .state()
            .pod
            .iter()
            .map(|link| link.mtu)
            .collect::<Vec<_>>()
    };
    assert_eq!(mtus(&rig), [2044; 3]);
    rig.del("c1").unwrap();
    rig.kernel.set().mtu_cap = 1900;
    let error = rig.add_with("c1", &json!({"mtu": 2000})).unwrap_err();
    assert!(
        error.msg.starts_with("net1 has MTU 1900, not 2000"),
        "{}",
        error.msg
    );
}

#[test]
fn bond_active_makes_one_child_of_the_active_port() {
    let rig = rig();
    rig.add_with("c1", &json!({"bond": "active"})).unwrap();
    let pod = rig.kernel.state().pod;
    assert_eq!((names(&pod), pod[0].parent), (vec!["net1"], Some(4)));
}
