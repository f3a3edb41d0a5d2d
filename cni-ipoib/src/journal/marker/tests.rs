// SPDX-License-Identifier: Apache-2.0
use super::*;
use crate::device::snapshot;
use crate::intent::Snapshot;
use crate::journal::Intent;
use crate::journal::tests::{intent, reads_of};
use crate::model::{ModelKernel, attachment, ethernet};
use serde_json::json;

/// A snapshot with only the parts that this module uses.
fn device() -> Snapshot {
    let mut kernel = ModelKernel::new(Vec::new());
    snapshot::take(&mut kernel, &ethernet(6, "ens1"), None, Vec::new()).unwrap()
}

fn attach(state: &Path, network: &str, container: &str, whole: bool) {
    let mut entry = Journal::new(state, network).open(&attachment(container)).unwrap();
    let device = whole.then(device);
    entry.begin(Intent { device, ..intent() }).unwrap();
}

fn whole(state: &Path) -> Vec<(String, String)> {
    let all = whole_links(state).unwrap();
    let one = |of: Written| (of.network, of.attachment.container_id.to_string());
    all.into_iter().map(one).collect()
}

fn named(list: &[(&str, &str)]) -> Vec<(String, String)> {
    list.iter()
        .map(|(a, b)| ((*a).to_owned(), (*b).to_owned()))
        .collect()
}

#[test]
fn attachments_without_a_whole_link_are_not_read() {
    let dir = tempfile::tempdir().unwrap();
    for number in 0..50 {
        attach(dir.path(), "fabric", &format!("c{number}"), false);
    }
    attach(dir.path(), "fabric", "w1", true);
    attach(dir.path(), "other", "w2", true);
    let (found, reads) = reads_of(|| whole(dir.path()));
    assert_eq!(found, named(&[("fabric", "w1"), ("other", "w2")]));
    assert_eq!(reads, 2);
}

#[test]
fn attachments_of_an_earlier_release_are_read_once() {
    let dir = tempfile::tempdir().unwrap();
    attach(dir.path(), "fabric", "c1", false);
    attach(dir.path(), "fabric", "w1", true);
    fs::remove_dir_all(dir.path().join(WHOLE)).unwrap();
    let (found, reads) = reads_of(|| whole(dir.path()));
    assert_eq!((found, reads), (named(&[("fabric", "w1")]), 3));
    let (found, reads) = reads_of(|| whole(dir.path()));
    assert_eq!((found, reads), (named(&[("fabric", "w1")]), 1));
}

#[test]
fn a_marker_is_removed_with_the_link_or_the_attachment() {
    let dir = tempfile::tempdir().unwrap();
    attach(dir.path(), "fabric", "w1", true);
    attach(dir.path(), "fabric", "w2", true);
    let journal = Journal::new(dir.path(), "fabric");
    journal.open(&attachment("w1")).unwrap().remove().unwrap();
    assert_eq!(names(&dir.path().join("whole/fabric")).unwrap(), ["w2@net1"]);
    attach(dir.path(), "fabric", "w2", false);
    assert_eq!(names(&dir.path().join("whole/fabric")).unwrap(), [""; 0]);
}

#[test]
fn an_extra_marker_of_a_killed_call_is_harmless() {
    let dir = tempfile::tempdir().unwrap();
    attach(dir.path(), "fabric", "w1", true);
    fs::remove_file(dir.path().join("attachments/fabric/w1@net1")).unwrap();
    assert_eq!(whole(dir.path()), []);
    attach(dir.path(), "fabric", "w1", true);
    let content = json!({"not": "a record"}).to_string();
    fs::write(dir.path().join("attachments/fabric/w1@net1"), content).unwrap();
    assert_eq!(whole(dir.path()), []);
}
