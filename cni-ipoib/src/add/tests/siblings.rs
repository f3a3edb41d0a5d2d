// SPDX-License-Identifier: Apache-2.0
//! The kernel has children of one kind on a link, and a macvlan child in mode passthru alone.

use super::*;
use crate::device::fixture::{WAYS, fixture};
use crate::journal::tests::{names_of, reads_of};
use serde_json::Value;

/// Keys for a child of `ens1`, in the mode of an ipvlan child or of a macvlan child.
fn keys(mode: &str) -> Value {
    match mode {
        "l2" | "l3" => json!({"master": "ens1", "mode": "ipvlan", "ipvlanMode": mode}),
        _ => json!({"master": "ens1", "mode": "macvlan", "macvlanMode": mode}),
    }
}

/// A node on which the pod of `c1` has a child of `ens1`. The model has one namespace for pods, so the child has
/// another name than those of later ADDs.
fn with_child(mode: &str) -> Fixture {
    let fixture = fixture(WAYS[0]);
    fixture.add_with("c1", &keys(mode)).unwrap();
    fixture.kernel.set().state.pod[0].name = "other".to_owned();
    fixture
}

/// The child of `c1`, the one of a new ADD, and the refusal.
const REFUSED: [(&str, &str, &str); 5] = [
    (
        "l2",
        "bridge",
        "ens1 cannot have a macvlan child: it has ipvlan children (such as that of fabric/net1 of container c1), and the \
         kernel allows one of the two kinds on a link; name another master, or use mode ipvlan",
    ),
    (
        "bridge",
        "l2",
        "ens1 cannot have an ipvlan child: it has macvlan children (such as that of fabric/net1 of container c1), and the \
         kernel allows one of the two kinds on a link; name another master, or use mode macvlan",
    ),
    (
        "passthru",
        "bridge",
        "ens1 cannot have a macvlan child: it has one in mode passthru (that of fabric/net1 of container c1), and the \
         kernel gives such a child its parent alone; name another master, or wait until that child is deleted",
    ),
    (
        "passthru",
        "passthru",
        "ens1 cannot have a macvlan child: it has one in mode passthru (that of fabric/net1 of container c1), and the \
         kernel gives such a child its parent alone; name another master, or wait until that child is deleted",
    ),
    (
        "bridge",
        "passthru",
        "ens1 cannot have a macvlan child in mode passthru: it has macvlan children (such as that of fabric/net1 of \
         container c1), and the kernel gives such a child its parent alone; name another master, or use another macvlan \
         mode",
    ),
];

#[test]
fn a_child_that_the_kernel_would_refuse_is_refused_with_the_reason() {
    for (old, new, text) in REFUSED {
        let fixture = with_child(old);
        let before = fixture.kernel.state();
        let error = fixture.add_with("c2", &keys(new)).unwrap_err();
        assert_eq!(
            (error.code, error.msg.as_str()),
            (Code::INVALID_CONFIG, text),
            "{new} beside {old}"
        );
        assert_eq!(fixture.kernel.state(), before);
        assert_eq!(fixture.ipam.verbs(), ["ADD"]);
        assert_eq!(fixture.written_down(), ["c1"]);
    }
}

#[test]
fn a_choice_passes_over_a_link_whose_children_do_not_fit() {
    for (old, new, text) in REFUSED {
        let fixture = with_child(old);
        let mut keys = keys(new);
        keys["master"] = json!(["ens1", "ens2"]);
        fixture.add_with("c2", &keys).unwrap();
        let intent = fixture.entry("c2").intent.clone().unwrap();
        assert_eq!(intent.master, "ens2", "{new} beside {old}");
        assert!(intent.why.unwrap().contains(text), "{new} beside {old}");
    }
}

#[test]
fn a_choice_without_a_mode_passes_over_a_link_with_ipvlan_children() {
    let fixture = with_child("l2");
    let keys = json!({"master": ["ens1", "ens2"]});
    fixture.add_with("c2", &keys).unwrap();
    assert_eq!(fixture.entry("c2").intent.as_ref().unwrap().master, "ens2");
}

#[test]
fn the_children_of_an_attachment_of_an_earlier_version_count() {
    for (old, new) in [("l2", "bridge"), ("bridge", "l2"), ("bridge", "passthru")] {
        let fixture = with_child(old);
        fixture.amend_intent("c1", |intent| {
            (intent.ipvlan, intent.macvlan) = (None, None);
        });
        let error = fixture.add_with("c2", &keys(new)).unwrap_err();
        assert_eq!(
            error.code,
            Code::INVALID_CONFIG,
            "{new} beside {old}: {}",
            error.msg
        );
    }
}

/// Deletes `ens1`, and with it its children, and creates another link of that name.
fn replace_ens1(fixture: &Fixture) {
    let mut model = fixture.kernel.set();
    model.state.pod.clear();
    let ens1 = model.state.host.iter_mut().find(|link| link.name == "ens1");
    ens1.unwrap().index = 60;
}

const MISFITS: [(&str, &str); 3] = [("l2", "bridge"), ("bridge", "l2"), ("passthru", "passthru")];

#[test]
fn children_of_dead_pods_do_not_count() {
    for (old, new) in MISFITS {
        let fixture = with_child(old);
        fixture.kill_pod("c1");
        fixture.add_with("c2", &keys(new)).unwrap();
    }
}

#[test]
fn children_of_an_earlier_link_of_the_name_do_not_count() {
    for (old, new) in MISFITS {
        let fixture = with_child(old);
        replace_ens1(&fixture);
        fixture.add_with("c2", &keys(new)).unwrap();
    }
}

#[test]
fn children_of_one_kind_share_their_parent() {
    for (old, new) in [("bridge", "private"), ("l3", "l3")] {
        let fixture = with_child(old);
        fixture.add_with("c2", &keys(new)).unwrap();
        let intent = fixture.entry("c2").intent.clone().unwrap();
        assert_eq!(intent.macvlan.or(intent.ipvlan).as_deref(), Some(new));
    }
}

#[test]
fn an_add_reads_one_name_and_file_of_many_attachments_on_its_parent() {
    for mode in ["l2", "bridge"] {
        let fixture = with_child(mode);
        let intent = fixture.entry("c1").intent.clone().unwrap();
        for number in 0..40 {
            let mut entry = fixture.entry(&format!("d{number}"));
            entry.begin(intent.clone()).unwrap();
            entry.finish().unwrap();
        }
        let read = |master: &str| {
            let mut keys = keys(mode);
            keys["master"] = json!(master);
            let mut files = 0;
            let names = names_of(|| files = reads_of(|| fixture.add_with("c2", &keys)).1);
            fixture.del("c2").unwrap();
            (names, files)
        };
        let (busy, free) = (read("ens1"), read("ens2"));
        // The names are that of the network and that of an attachment.
        assert_eq!((busy.0 - free.0, busy.1 - free.1), (2, 1), "{mode}");
    }
}
