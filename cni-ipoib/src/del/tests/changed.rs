// SPDX-License-Identifier: Apache-2.0
//! A pod that changes the properties of its link, and a link of another plugin.

use crate::mark::Mark;
use crate::model::{Fixture, Pod, State, attachment, ethernet, ipoib, of_kind};
use common::cni::dispatch::{Call, Plugin};
use common::netlink::{HwAddress, Link};
use serde_json::json;

/// A change by a pod to its link, and its name.
type Change = (&'static str, fn(&mut Link));

/// Changes that pods make to their link, including malicious ones.
const CHANGES: [Change; 7] = [
    ("an alias", |link| link.alias = Some("mine".to_owned())),
    ("a group", |link| link.group = 7),
    ("a name", |link| link.name = "fast0".to_owned()),
    ("everything", |link| {
        (link.name, link.alias, link.group) = ("fast0".to_owned(), Some("mine".to_owned()), 7);
    }),
    ("nothing is left of it", |link| {
        (link.name, link.alias, link.group) = ("fast0".to_owned(), None, 0);
    }),
    ("a temporary name", |link| {
        let temporary = of_another().temporary(0);
        (link.name, link.alias, link.group) = (temporary, None, 0);
    }),
    ("the mark of another attachment", |link| {
        let mark = of_another();
        (link.alias, link.group) = (Some(mark.alias), mark.group);
    }),
];

/// The mark of an attachment that the journal does not have.
fn of_another() -> Mark {
    Mark::new("fabric", &attachment("c9"))
}

fn change(fixture: &Fixture, of_pod: fn(&mut Link)) {
    let mut model = fixture.kernel.set();
    model.state.pod.iter_mut().for_each(of_pod);
}

/// The pod's namespace ends without DEL.
fn dies(fixture: &mut Fixture) {
    fixture.kernel.set().state.pod_dies();
    fixture.pod = Pod::new();
}

/// A fixture for each way of creation of a child, and each master, one after the other.
fn on_every_node(test: impl Fn(&mut Fixture, &State)) {
    for (plain, bonded) in [(false, false), (true, false), (false, true)] {
        let mut fixture = Fixture::new();
        if bonded {
            fixture = fixture.on_bond();
        }
        if plain {
            fixture = fixture.plain();
        }
        let before = fixture.kernel.state();
        test(&mut fixture, &before);
    }
}

#[test]
fn a_link_that_the_pod_changed_is_deleted_before_its_address_is_released() {
    on_every_node(|fixture, before| {
        for (what, of_pod) in CHANGES {
            fixture.ipam.forget_calls();
            fixture.add("c1").unwrap();
            change(fixture, of_pod);
            fixture.del("c1").unwrap();
            assert_eq!(&fixture.kernel.state(), before, "{what}");
            assert_eq!(fixture.ipam.verbs(), ["ADD", "DEL"], "{what}");
        }
    });
}

/// The kernel gives the link a new index if another link has the old one by then.
#[test]
fn a_link_that_the_pod_moved_away_and_back_is_deleted_whatever_its_mark() {
    for plain in [false, true] {
        let mut fixture = Fixture::new();
        if plain {
            fixture = fixture.plain();
        }
        let before = fixture.kernel.state();
        for (what, of_pod) in CHANGES {
            fixture.add("c1").unwrap();
            change(&fixture, of_pod);
            change(&fixture, |link| link.index += 500);
            fixture.del("c1").unwrap();
            let after = fixture.kernel.state();
            assert_eq!(
                (after.host, after.pod),
                (before.host.clone(), Vec::new()),
                "{what}"
            );
        }
    }
}

/// The kernel returns the link after DEL of a pod that moved the link into a namespace of its own.
#[test]
fn a_bond_of_the_pod_with_the_mark_does_not_count_as_the_link_that_returns_later() {
    let fixture = Fixture::new();
    let before = fixture.kernel.state();
    fixture.add("c1").unwrap();
    {
        let mut model = fixture.kernel.set();
        let mark = Mark::new("fabric", &attachment("c1"));
        let mut link = model.state.pod.remove(0);
        let decoy = Link {
            alias: Some(mark.alias),
            group: mark.group,
            ..of_kind("bond", ethernet(70, "d"))
        };
        model.state.pod.push(decoy);
        (link.name, link.alias, link.group, link.up) = ("net1".to_owned(), None, 0, false);
        model.late = vec![(2, link)];
    }
    fixture.del("c1").unwrap();
    assert_eq!(fixture.kernel.get().late, [], "DEL awaits the link");
    let after = fixture.kernel.state();
    assert_eq!((after.host, after.pod), (before.host, Vec::new()));
}

/// The HCA gave the queue pair of a deleted link to the link of the next attachment in the same pod.
#[test]
fn the_link_of_another_attachment_with_the_same_queue_pair_stays() {
    let fixture = Fixture::new();
    fixture.add("c1").unwrap();
    let address = fixture.kernel.state().pod[0].address.clone();
    fixture.kernel.set().state.pod.clear();
    fixture.add("c2").unwrap();
    let index = {
        let mut model = fixture.kernel.set();
        let link = &mut model.state.pod[0];
        link.address = address.clone();
        // As a pod that moves the link away and back.
        link.index += 500;
        link.index
    };
    fixture.amend_intent("c2", |intent| intent.made[0].address = address.clone());
    fixture.del("c1").unwrap();
    let left = fixture.kernel.state().pod;
    assert_eq!(left.iter().map(|link| link.index).collect::<Vec<_>>(), [index]);
    fixture.del("c2").unwrap();
    assert_eq!(fixture.kernel.state().pod, []);
}

/// ADD was killed after it created the link, and before it recorded it.
#[test]
fn a_link_that_no_record_has_is_deleted_by_its_name_whatever_its_mark() {
    for (what, of_pod) in CHANGES {
        let fixture = Fixture::new();
        fixture.add("c1").unwrap();
        let before_the_record = crate::intent::Intent {
            made: Vec::new(),
            ..fixture.entry("c1").intent.clone().unwrap()
        };
        fixture.entry("c1").begin(before_the_record).unwrap();
        change(&fixture, of_pod);
        change(&fixture, |link| link.name = "net1".to_owned());
        fixture.del("c1").unwrap();
        assert_eq!(fixture.kernel.state().pod, [], "{what}");
    }
}

/// Runs `end` after each change by a pod, on every node. Nothing of the attachment may be left.
fn after_each_change(end: impl Fn(&mut Fixture)) {
    on_every_node(|fixture, before| {
        for (what, of_pod) in CHANGES {
            fixture.add("c1").unwrap();
            change(fixture, of_pod);
            end(fixture);
            assert_eq!(&fixture.kernel.state(), before, "{what}");
        }
    });
}

#[test]
fn gc_finds_a_link_that_the_pod_changed_too() {
    after_each_change(|fixture| fixture.gc(&[]).unwrap());
}

#[test]
fn a_changed_child_that_the_kernel_returned_to_the_host_is_found() {
    after_each_change(|fixture| {
        dies(fixture);
        fixture.del_without_netns("c1").unwrap();
    });
}

/// The pod's own namespace exists until the runtime ends it. The pod's processes, and what they created, have ended.
#[test]
fn a_child_in_a_namespace_that_the_pod_made_is_found_after_that_namespace_ends() {
    after_each_change(|fixture| {
        fixture.kernel.set().state.pod_dies();
        fixture.del("c1").unwrap();
    });
}

/// The HCA gave the queue pair of a deleted link to the next child.
#[test]
fn a_child_that_another_add_is_creating_survives_the_del_of_a_dead_pod() {
    let mut fixture = Fixture::new();
    fixture.add("c1").unwrap();
    let mark = Mark::new("fabric", &attachment("c2"));
    let on_its_way = Link {
        name: mark.temporary(0),
        group: mark.group,
        alias: None,
        up: false,
        ..fixture.kernel.state().pod[0].clone()
    };
    fixture.kernel.set().state.pod.clear();
    dies(&mut fixture);
    fixture.entry("c2").begin(fixture.intent()).unwrap();
    fixture.kernel.set().state.host.push(on_its_way.clone());
    fixture.del_without_netns("c1").unwrap();
    assert!(fixture.kernel.state().host.contains(&on_its_way));
}

#[test]
fn a_pods_own_link_with_our_name_and_kind_survives() {
    let fixture = Fixture::new();
    fixture.add("c1").unwrap();
    let theirs = Link {
        index: 300,
        parent: Some(9),
        address: HwAddress::new([0; 20]),
        ..ipoib(300, "net1", 0x8001)
    };
    fixture.kernel.set().state.pod = vec![theirs.clone()];
    fixture.del("c1").unwrap();
    assert_eq!(fixture.kernel.state().pod, [theirs]);
    assert_eq!(fixture.ipam.verbs(), ["ADD", "DEL"], "no link has the address");
}

#[test]
fn an_administrators_child_of_the_same_port_survives_the_del_of_a_dead_pod() {
    let mut fixture = Fixture::new();
    fixture.add("c1").unwrap();
    let mut admins = Link {
        index: 300,
        name: "ib0.8001".to_owned(),
        alias: None,
        group: 0,
        ..fixture.kernel.state().pod[0].clone()
    };
    // The pod deleted its link, and the HCA reused the queue pair.
    fixture.kernel.set().state.pod.clear();
    admins.up = true;
    fixture.kernel.set().state.host.push(admins.clone());
    dies(&mut fixture);
    fixture.del_without_netns("c1").unwrap();
    assert!(fixture.kernel.state().host.contains(&admins));
}

/// A macvlan link of a peer in the pod, with a parent on the host.
fn of_peer() -> Link {
    Link {
        parent: Some(2),
        parent_netnsid: Some(0),
        ..of_kind("macvlan", ethernet(7, "net1"))
    }
}

fn call_as(fixture: &Fixture, program: &str) -> Call {
    Call {
        program: program.to_owned(),
        ..fixture.call(&json!({}))
    }
}

#[test]
fn under_a_peers_name_the_peers_link_is_deleted_by_its_name() {
    for (program, deleted) in [("macvlan", true), ("ipoib", true), ("cni-ipoib", false)] {
        let fixture = Fixture::new();
        fixture.kernel.set().state.pod.push(of_peer());
        let call = call_as(&fixture, program);
        let netns = fixture.pod.path();
        fixture
            .plugin()
            .del(&call, &attachment("c1"), Some(&netns))
            .unwrap();
        assert_eq!(fixture.kernel.state().pod.is_empty(), deleted, "{program}");
    }
}

#[test]
fn under_a_peers_name_the_journal_entry_decides() {
    let fixture = Fixture::new();
    fixture.add("c1").unwrap();
    fixture.kernel.set().state.pod = vec![of_peer()];
    let netns = fixture.pod.path();
    fixture
        .plugin()
        .del(&call_as(&fixture, "macvlan"), &attachment("c1"), Some(&netns))
        .unwrap();
    assert_eq!(fixture.kernel.state().pod, [of_peer()], "ADD made another link");
}
