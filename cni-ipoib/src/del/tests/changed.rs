// SPDX-License-Identifier: Apache-2.0
//! A pod that changes the properties of its link, and a link of another plugin.

use crate::model::{Pod, Rig, State, ethernet, ipoib, of_kind};
use common::cni::dispatch::{Call, Plugin};
use common::netlink::{HwAddress, Link};
use serde_json::json;

/// A change by a pod to its link, and its name.
type Change = (&'static str, fn(&mut Link));

/// The changes that pods make to their link, and the worst that a pod can do.
const CHANGES: [Change; 5] = [
    ("an alias", |link| link.alias = Some("mine".to_owned())),
    ("a group", |link| link.group = 7),
    ("a name", |link| link.name = "fast0".to_owned()),
    ("everything", |link| {
        (link.name, link.alias, link.group) = ("fast0".to_owned(), Some("mine".to_owned()), 7);
    }),
    ("nothing is left of it", |link| {
        (link.name, link.alias, link.group) = ("fast0".to_owned(), None, 0);
    }),
];

fn change(rig: &Rig, of_pod: fn(&mut Link)) {
    let mut model = rig.kernel.set();
    model.state.pod.iter_mut().for_each(of_pod);
}

/// The pod's namespace ends without DEL.
fn dies(rig: &mut Rig) {
    rig.kernel.set().state.pod_dies();
    rig.pod = Pod::new();
}

/// A rig for each way of creation of a child, and each master, one after the other.
fn on_every_node(test: impl Fn(&mut Rig, &State)) {
    for (plain, bonded) in [(false, false), (true, false), (false, true)] {
        let mut rig = Rig::new();
        if bonded {
            rig = rig.on_bond();
        }
        if plain {
            rig = rig.plain();
        }
        let before = rig.kernel.state();
        test(&mut rig, &before);
    }
}

#[test]
fn a_link_that_the_pod_changed_is_deleted_before_its_address_is_released() {
    on_every_node(|rig, before| {
        for (what, of_pod) in CHANGES {
            rig.ipam.forget_calls();
            rig.add("c1").unwrap();
            change(rig, of_pod);
            rig.del("c1").unwrap();
            assert_eq!(&rig.kernel.state(), before, "{what}");
            assert_eq!(rig.ipam.verbs(), ["ADD", "DEL"], "{what}");
        }
    });
}

#[test]
fn gc_finds_a_link_that_the_pod_changed_too() {
    on_every_node(|rig, before| {
        for (what, of_pod) in CHANGES {
            rig.add("c1").unwrap();
            change(rig, of_pod);
            rig.gc(&[]).unwrap();
            assert_eq!(&rig.kernel.state(), before, "{what}");
        }
    });
}

#[test]
fn a_changed_child_that_the_kernel_returned_to_the_host_is_found() {
    on_every_node(|rig, before| {
        for (what, of_pod) in CHANGES {
            rig.add("c1").unwrap();
            change(rig, of_pod);
            dies(rig);
            rig.del_without_netns("c1").unwrap();
            assert_eq!(&rig.kernel.state(), before, "{what}");
        }
    });
}

#[test]
fn a_pods_own_link_with_our_name_and_kind_survives() {
    let rig = Rig::new();
    rig.add("c1").unwrap();
    let theirs = Link {
        index: 300,
        parent: Some(9),
        address: HwAddress::new([0; 20]),
        ..ipoib(300, "net1", 0x8001)
    };
    rig.kernel.set().state.pod = vec![theirs.clone()];
    rig.del("c1").unwrap();
    assert_eq!(rig.kernel.state().pod, [theirs]);
    assert_eq!(rig.ipam.verbs(), ["ADD", "DEL"], "no link has the address");
}

#[test]
fn an_administrators_child_of_the_same_port_survives_the_del_of_a_dead_pod() {
    let mut rig = Rig::new();
    rig.add("c1").unwrap();
    let mut admins = Link {
        index: 300,
        name: "ib0.8001".to_owned(),
        alias: None,
        group: 0,
        ..rig.kernel.state().pod[0].clone()
    };
    // The pod deleted its link, and the HCA reused the queue pair.
    rig.kernel.set().state.pod.clear();
    admins.up = true;
    rig.kernel.set().state.host.push(admins.clone());
    dies(&mut rig);
    rig.del_without_netns("c1").unwrap();
    assert!(rig.kernel.state().host.contains(&admins));
}

/// A macvlan link of a peer in the pod, with a parent on the host.
fn of_peer() -> Link {
    Link {
        parent: Some(2),
        parent_netnsid: Some(0),
        ..of_kind("macvlan", ethernet(7, "net1"))
    }
}

fn call_as(rig: &Rig, program: &str) -> Call {
    Call {
        program: program.to_owned(),
        ..rig.call(&json!({}))
    }
}

#[test]
fn under_a_peers_name_the_peers_link_is_deleted_by_its_name() {
    for (program, deleted) in [("macvlan", true), ("ipoib", true), ("cni-ipoib", false)] {
        let rig = Rig::new();
        rig.kernel.set().state.pod.push(of_peer());
        let call = call_as(&rig, program);
        let netns = rig.pod.path();
        rig.plugin()
            .del(&call, &crate::model::attachment("c1"), Some(&netns))
            .unwrap();
        assert_eq!(rig.kernel.state().pod.is_empty(), deleted, "{program}");
    }
}

#[test]
fn under_a_peers_name_the_journal_entry_decides() {
    let rig = Rig::new();
    rig.add("c1").unwrap();
    rig.kernel.set().state.pod = vec![of_peer()];
    let netns = rig.pod.path();
    rig.plugin()
        .del(
            &call_as(&rig, "macvlan"),
            &crate::model::attachment("c1"),
            Some(&netns),
        )
        .unwrap();
    assert_eq!(rig.kernel.state().pod, [of_peer()], "ADD made another link");
}
