// SPDX-License-Identifier: Apache-2.0
use super::*;
use crate::journal::tests::{intent, reads_of};
use crate::journal::{Entry, Intent, Journal};
use crate::model::attachment;

fn open(state: &Path, network: &str, container: &str) -> Entry {
    Journal::new(state, network).open(&attachment(container)).unwrap()
}

fn attach(state: &Path, network: &str, container: &str, master: &str) -> Entry {
    let mut entry = open(state, network, container);
    let master = master.to_owned();
    entry.begin(Intent { master, ..intent() }).unwrap();
    entry
}

/// The loads above 0.
fn used(state: &Path) -> Vec<(String, usize)> {
    let all = loads(state, None).into_iter();
    all.map(|(parent, load)| (parent, load.all))
        .filter(|(_, load)| *load > 0)
        .collect()
}

fn on(list: &[(&str, usize)]) -> Vec<(String, usize)> {
    list.iter()
        .map(|(parent, load)| ((*parent).to_owned(), *load))
        .collect()
}

#[test]
fn an_attachment_counts_from_its_intent_to_its_removal() {
    let dir = tempfile::tempdir().unwrap();
    assert_eq!(used(dir.path()), [], "no journal yet");
    attach(dir.path(), "fabric", "a", "ib0");
    attach(dir.path(), "other", "a", "ib0");
    attach(dir.path(), "other", "b", "ib1");
    open(dir.path(), "other", "empty");
    let (loads, reads) = reads_of(|| used(dir.path()));
    assert_eq!((loads, reads), (on(&[("ib0", 2), ("ib1", 1)]), 0));
    open(dir.path(), "other", "a").remove().unwrap();
    assert_eq!(used(dir.path()), on(&[("ib0", 1), ("ib1", 1)]));
    open(dir.path(), "other", "b").forget().unwrap();
    assert_eq!(used(dir.path()), on(&[("ib0", 1)]));
}

#[test]
fn an_attachment_with_a_new_parent_counts_once() {
    let dir = tempfile::tempdir().unwrap();
    attach(dir.path(), "fabric", "a", "ib0");
    attach(dir.path(), "fabric", "a", "ib1");
    assert_eq!(used(dir.path()), on(&[("ib1", 1)]));
}

/// A kill leaves the file of an attachment without its intent.
#[test]
fn del_discounts_an_attachment_whose_intent_was_not_written() {
    let dir = tempfile::tempdir().unwrap();
    attach(dir.path(), "fabric", "a", "ib0");
    fs::write(dir.path().join("attachments/fabric/a@net1"), "").unwrap();
    assert_eq!(used(dir.path()), on(&[("ib0", 1)]));
    open(dir.path(), "fabric", "a").remove().unwrap();
    assert_eq!(used(dir.path()), []);
}

/// A kill after the first of two removals leaves the other.
#[test]
fn an_attachment_is_discounted_before_its_file_is_removed() {
    let dir = tempfile::tempdir().unwrap();
    let entry = attach(dir.path(), "fabric", "a", "ib0");
    let file = dir.path().join("attachments/fabric/a@net1");
    fs::remove_file(&file).unwrap();
    fs::create_dir(&file).unwrap();
    entry.remove().expect_err("a directory is no file");
    assert_eq!(used(dir.path()), []);
}

/// A release without these files removed the attachments.
#[test]
fn attachments_that_an_older_release_removed_are_forgotten() {
    let dir = tempfile::tempdir().unwrap();
    for (network, container) in [("fabric", "a"), ("fabric", "b"), ("other", "a")] {
        attach(dir.path(), network, container, "ib0");
    }
    for file in ["fabric/a@net1", "other/a@net1"] {
        fs::remove_file(dir.path().join("attachments").join(file)).unwrap();
    }
    Journal::new(dir.path(), "fabric").forget_removed();
    assert_eq!(
        used(dir.path()),
        on(&[("ib0", 2)]),
        "another network is left alone"
    );
    Journal::new(dir.path(), "other").forget_removed();
    assert_eq!(used(dir.path()), on(&[("ib0", 1)]));
}

/// A release without these files made the attachment.
#[test]
fn an_attachment_of_an_older_release_can_be_removed() {
    let dir = tempfile::tempdir().unwrap();
    attach(dir.path(), "fabric", "a", "ib0");
    fs::remove_dir_all(dir.path().join(PARENTS)).unwrap();
    assert_eq!(used(dir.path()), []);
    open(dir.path(), "fabric", "a").remove().unwrap();
}

#[test]
fn a_damaged_directory_of_parents_fails_no_call() {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join(PARENTS), "").unwrap();
    let entry = attach(dir.path(), "fabric", "a", "ib0");
    Journal::new(dir.path(), "fabric").forget_removed();
    assert_eq!(used(dir.path()), []);
    entry.remove().unwrap();
}

#[test]
fn a_damaged_name_of_a_parent_creates_nothing_elsewhere() {
    let dir = tempfile::tempdir().unwrap();
    let outside = dir.path().join("outside");
    for name in [
        "..",
        "../..",
        ".",
        "",
        "a/b",
        "../outside",
        outside.to_str().unwrap(),
    ] {
        attach(dir.path(), "fabric", "a", name);
        assert!(!dir.path().join(PARENTS).exists(), "{name}");
    }
    let there = names(dir.path()).unwrap();
    assert_eq!(there, ["attachments"]);
}
