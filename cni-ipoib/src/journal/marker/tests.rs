// SPDX-License-Identifier: Apache-2.0
use super::*;
use crate::device::snapshot;
use crate::intent::{Sharing, Snapshot};
use crate::journal::Intent;
use crate::journal::tests::{intent, reads_of};
use crate::journal::{Journal, names};
use crate::model::{ModelKernel, attachment, ethernet, grant};
use serde_json::json;

/// A snapshot with only the parts that this module uses.
fn device() -> Snapshot {
    let mut kernel = ModelKernel::new(Vec::new());
    snapshot::take(&mut kernel, &ethernet(6, "ens1"), None, Vec::new()).unwrap()
}

fn taking(taken: &[Taken]) -> Intent {
    let moved = Sharing::Exclusive { rename: None };
    Intent {
        device: taken.contains(&Taken::Link).then(device),
        rdma: taken.contains(&Taken::RdmaDevice).then(|| grant(None, moved)),
        ..intent()
    }
}

fn attach(state: &Path, network: &str, container: &str, taken: &[Taken]) {
    let mut entry = Journal::new(state, network).open(&attachment(container)).unwrap();
    entry.begin(taking(taken)).unwrap();
}

fn found(state: &Path, taken: Taken) -> Vec<(String, String)> {
    let all = takers(state, taken).unwrap();
    let one = |of: Written| (of.network, of.attachment.container_id.to_string());
    all.into_iter().map(one).collect()
}

fn named(list: &[(&str, &str)]) -> Vec<(String, String)> {
    list.iter()
        .map(|(a, b)| ((*a).to_owned(), (*b).to_owned()))
        .collect()
}

/// Once the file is gone, an ADD of the same attachment may begin.
#[test]
fn the_marker_of_an_entry_is_removed_before_its_file() {
    let dir = tempfile::tempdir().unwrap();
    attach(dir.path(), "fabric", "link", &[Taken::Link]);
    let entry = Journal::new(dir.path(), "fabric")
        .open(&attachment("link"))
        .unwrap();
    let marker = dir.path().join("whole/fabric/link@net1");
    assert!(marker.exists());
    // A file that cannot be removed.
    let file = dir.path().join("attachments/fabric/link@net1");
    std::fs::remove_file(&file).unwrap();
    std::fs::create_dir(&file).unwrap();
    entry.remove().unwrap_err();
    assert!(!marker.exists());
}

#[test]
fn attachments_that_took_nothing_are_not_read() {
    let dir = tempfile::tempdir().unwrap();
    for number in 0..50 {
        attach(dir.path(), "fabric", &format!("c{number}"), &[]);
    }
    attach(dir.path(), "fabric", "link", &[Taken::Link]);
    attach(dir.path(), "fabric", "both", &Taken::ALL);
    attach(dir.path(), "other", "rdma", &[Taken::RdmaDevice]);
    for (taken, expected) in [
        (Taken::Link, [("fabric", "both"), ("fabric", "link")]),
        (Taken::RdmaDevice, [("fabric", "both"), ("other", "rdma")]),
    ] {
        assert_eq!(reads_of(|| found(dir.path(), taken)), (named(&expected), 2));
    }
}

#[test]
fn a_shared_device_is_not_taken() {
    let dir = tempfile::tempdir().unwrap();
    let mut entry = Journal::new(dir.path(), "fabric")
        .open(&attachment("c1"))
        .unwrap();
    let rdma = Some(grant(None, Sharing::Shared));
    entry.begin(Intent { rdma, ..intent() }).unwrap();
    assert_eq!(reads_of(|| found(dir.path(), Taken::RdmaDevice)), (Vec::new(), 1));
    assert_eq!(reads_of(|| found(dir.path(), Taken::RdmaDevice)), (Vec::new(), 0));
}

#[test]
fn attachments_of_an_earlier_release_are_read_once() {
    for taken in Taken::ALL {
        let dir = tempfile::tempdir().unwrap();
        attach(dir.path(), "fabric", "c1", &[]);
        attach(dir.path(), "fabric", "w1", &[taken]);
        fs::remove_dir_all(dir.path().join(taken.directory())).unwrap();
        let one = named(&[("fabric", "w1")]);
        assert_eq!(reads_of(|| found(dir.path(), taken)), (one.clone(), 3));
        assert_eq!(reads_of(|| found(dir.path(), taken)), (one, 1));
    }
}

#[test]
fn a_marker_is_removed_when_nothing_is_taken_or_with_the_attachment() {
    for taken in Taken::ALL {
        let dir = tempfile::tempdir().unwrap();
        let markers = || names(&dir.path().join(taken.directory()).join("fabric")).unwrap();
        attach(dir.path(), "fabric", "w1", &[taken]);
        attach(dir.path(), "fabric", "w2", &[taken]);
        let journal = Journal::new(dir.path(), "fabric");
        journal.open(&attachment("w1")).unwrap().remove().unwrap();
        assert_eq!(markers(), ["w2@net1"]);
        attach(dir.path(), "fabric", "w2", &[]);
        assert_eq!(markers(), [""; 0]);
    }
}

#[test]
fn a_device_that_add_takes_later_gets_its_marker() {
    let dir = tempfile::tempdir().unwrap();
    let mut entry = Journal::new(dir.path(), "fabric")
        .open(&attachment("w1"))
        .unwrap();
    entry.begin(taking(&[Taken::Link])).unwrap();
    assert_eq!(found(dir.path(), Taken::RdmaDevice), []);
    entry.amend(taking(&Taken::ALL)).unwrap();
    assert_eq!(found(dir.path(), Taken::RdmaDevice), named(&[("fabric", "w1")]));
}

#[test]
fn an_extra_marker_of_a_killed_call_is_harmless() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("attachments/fabric/w1@net1");
    attach(dir.path(), "fabric", "w1", &Taken::ALL);
    fs::remove_file(&file).unwrap();
    let none = || {
        Taken::ALL
            .into_iter()
            .all(|taken| found(dir.path(), taken).is_empty())
    };
    assert!(none());
    attach(dir.path(), "fabric", "w1", &Taken::ALL);
    fs::write(&file, json!({"not": "a record"}).to_string()).unwrap();
    assert!(none());
}

/// The next ADD may be refused, and warns of each marker that no intent explains.
#[test]
fn an_entry_whose_hardware_is_back_has_no_markers() {
    let dir = tempfile::tempdir().unwrap();
    let mut entry = Journal::new(dir.path(), "fabric")
        .open(&attachment("c1"))
        .unwrap();
    let markers = Markers::of(dir.path(), Path::new("fabric/c1@net1"));
    entry.begin(taking(&Taken::ALL)).unwrap();
    assert_eq!(markers.present().count(), Taken::ALL.len());
    entry.forget().unwrap();
    assert_eq!(markers.present().count(), 0);
    assert_eq!(entry.intent, None);
}
