// SPDX-License-Identifier: Apache-2.0
//! A child on a link that the ADD of another attachment has claimed, and moves whole once its IPAM plugin has answered.

use super::*;
use crate::device::fixture::{WAYS, add, claim, fixture};
use crate::journal::{Journal, NodeLock};
use common::lock::{Share, flock, wait_until_awaited};
use std::cell::Cell;
use std::fs::File;
use std::path::PathBuf;
use std::rc::Rc;
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

#[test]
fn a_child_is_refused_on_a_link_that_another_add_is_about_to_move() {
    let on_bond = || Fixture::new().on_bond();
    let rig = || fixture(WAYS[0]);
    let cases: [(&dyn Fn() -> Fixture, &str, serde_json::Value); 4] = [
        (&rig, "ib0", json!({"master": "ib0"})),
        (&rig, "ens1", json!({"master": "ens1", "mode": "macvlan"})),
        (&rig, "ens1", json!({"master": "ens1", "mode": "ipvlan"})),
        (&on_bond, "ib0", json!({"master": "bond0"})),
    ];
    for (fixture, link, keys) in cases {
        let fixture = fixture();
        let intent = claim(&fixture, link);
        fixture.entry("c2").begin(intent).unwrap();
        let before = fixture.kernel.state();
        let refused = fixture.add_with("c1", &keys);
        assert_eq!(
            refused.map_err(|error| (error.code, error.msg)).unwrap_err(),
            (
                Code::TRY_AGAIN,
                format!("{link} belongs to fabric/net1 of container c2; try again after that pod is deleted")
            ),
            "{keys}"
        );
        assert_eq!(fixture.kernel.state(), before, "{keys}");
        assert_eq!(fixture.written_down(), ["c2"], "{keys}");
        assert_eq!(fixture.ipam.verbs(), [""; 0], "{keys}");
    }
}

/// The host has no such link while the pod lives.
#[test]
fn a_link_that_another_pod_has_whole_is_not_called_missing() {
    for keys in [
        json!({"master": "ens1"}),
        json!({"master": "ens1np0"}),
        json!({"deviceID": "0000:17:00.0", "master": ""}),
        json!({"hwaddr": "b8:3f:d2:00:00:06", "master": ""}),
    ] {
        for mode in ["device", "macvlan"] {
            let fixture = fixture(WAYS[0]);
            add(&fixture, "ens1").unwrap();
            // The next pod is another one.
            fixture.kernel.set().state.pod.clear();
            let mut keys = keys.clone();
            keys["mode"] = json!(mode);
            let refused = fixture.add_with("c2", &keys).unwrap_err();
            let said = "ens1 belongs to fabric/net1 of container c1; try again after that pod is deleted";
            assert_eq!(
                (refused.code, refused.msg.as_str()),
                (Code::TRY_AGAIN, said),
                "{keys}"
            );
            assert_eq!(fixture.written_down(), ["c1"], "{keys}");
        }
    }
}

#[test]
fn a_child_may_be_made_on_a_link_whose_pod_is_dead() {
    let fixture = fixture(WAYS[0]);
    let mut dead = claim(&fixture, "ens1");
    dead.netns_id = (1, 1);
    fixture.entry("c2").begin(dead).unwrap();
    let keys = json!({"master": "ens1", "mode": "macvlan"});
    fixture.add_with("c1", &keys).unwrap();
}

#[test]
fn a_pod_may_have_a_child_of_its_whole_link() {
    let fixture = fixture(WAYS[0]);
    add(&fixture, "ens1").unwrap();
    fixture.kernel.set().state.pod[0].name = "eth1".to_owned();
    let keys = json!({"master": "eth1", "mode": "macvlan", "linkInContainer": true});
    fixture.add_with("c2", &keys).unwrap();
}

#[test]
fn a_choice_passes_over_a_link_that_another_add_is_about_to_move() {
    let fixture = fixture(WAYS[0]);
    let intent = claim(&fixture, "ens1");
    fixture.entry("c2").begin(intent).unwrap();
    let keys = json!({"master": ["ens1", "ens2"], "mode": "macvlan"});
    fixture.add_with("c1", &keys).unwrap();
    let intent = fixture.entry("c1").intent.clone().unwrap();
    assert_eq!(intent.master, "ens2");
    let why = intent.why.unwrap();
    assert!(
        why.contains("ens1 belongs to fabric/net1 of container c2"),
        "{why}"
    );
}

/// A call that claims the link records the claim before it releases the lock of the node.
#[test]
fn a_child_waits_for_an_add_that_is_about_to_claim_its_link() {
    let fixture = fixture(WAYS[0]);
    let intent = claim(&fixture, "ens1");
    let (locked, is_locked) = mpsc::channel();
    let state = fixture.state.path().to_owned();
    let other = thread::spawn(move || {
        let lock = NodeLock::take(&state).unwrap();
        locked.send(()).unwrap();
        wait_until_awaited(&state.join("attachments"));
        let journal = Journal::new(&state, "fabric");
        let mut entry = journal.open(&attachment("c2")).unwrap();
        entry.begin(intent).unwrap();
        drop(lock);
    });
    is_locked.recv().unwrap();
    let refused = fixture.add_with("c1", &json!({"master": "ens1", "mode": "macvlan"}));
    other.join().unwrap();
    assert_eq!(refused.map_err(|error| error.code).unwrap_err(), Code::TRY_AGAIN);
}

/// At its end, notes whether another call would get the lock of the node: shared, and exclusive.
struct Look {
    directory: PathBuf,
    free: Rc<Cell<Option<(bool, bool)>>>,
}

impl Drop for Look {
    fn drop(&mut self) {
        let is_free = |share| {
            let directory = File::open(&self.directory).unwrap();
            flock(&directory, share, Duration::ZERO).is_ok()
        };
        let shared = is_free(Share::Shared);
        self.free.set(Some((shared, is_free(Share::Exclusive))));
    }
}

#[test]
fn children_on_named_links_do_not_wait_for_each_other() {
    // A choice, and the mode of an ipvlan child, depend on the attachments of other ADDs.
    for (keys, free) in [
        (
            json!({"hwaddr": "b8:3f:d2:00:00:06", "master": "", "mode": "macvlan"}),
            (true, false),
        ),
        (
            json!({"hwaddr": "b8:3f:d2:00:00:06", "master": "", "mode": "ipvlan"}),
            (false, false),
        ),
        (json!({"master": ["ens1"], "mode": "macvlan"}), (false, false)),
    ] {
        let fixture = fixture(WAYS[0]);
        let found = Rc::new(Cell::new(None));
        fixture.kernel.set().ends_at_list = Some(Box::new(Look {
            directory: fixture.state.path().join("attachments"),
            free: Rc::clone(&found),
        }));
        fixture.add_with("c1", &keys).unwrap();
        assert_eq!(found.get(), Some(free), "{keys}");
    }
}
