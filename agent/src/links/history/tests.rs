// SPDX-License-Identifier: Apache-2.0
use super::*;
use std::os::unix::fs::PermissionsExt;

fn names(names: &[&str]) -> Vec<String> {
    names.iter().map(|name| (*name).to_owned()).collect()
}

#[test]
fn a_restarted_agent_remembers_links_that_had_carrier() {
    let dir = tempfile::tempdir().unwrap();
    let mut history = CarrierHistory::read(dir.path());
    assert!(history.seen().is_empty());
    history.add(names(&["ib0"]));
    history.add(names(&["ib1", "ib0"]));
    assert_eq!(
        CarrierHistory::read(dir.path()).seen().iter().collect::<Vec<_>>(),
        ["ib0", "ib1"]
    );
    assert_eq!(
        fs::read_dir(dir.path()).unwrap().count(),
        1,
        "no unfinished file remains"
    );
    let file = fs::metadata(dir.path().join(".links.json")).unwrap();
    assert_eq!(file.permissions().mode() & 0o777, 0o600);
}

#[test]
fn a_damaged_file_of_remembered_links_is_replaced() {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join(".links.json"), "{").unwrap();
    let mut history = CarrierHistory::read(dir.path());
    assert!(history.seen().is_empty());
    history.add(names(&["ib0"]));
    assert!(CarrierHistory::read(dir.path()).seen().contains("ib0"));
}

#[test]
fn the_agent_remembers_a_link_even_if_the_write_fails() {
    let dir = tempfile::tempdir().unwrap();
    let mut history = CarrierHistory::read(&dir.path().join("absent"));
    history.add(names(&["ib0"]));
    assert!(history.seen().contains("ib0"));
}

#[test]
fn a_file_of_remembered_links_with_any_content_is_replaced() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join(".links.json");
    common::mutate::cases("carrier histories", 1000, |_, random| {
        let mut content = serde_json::json!({ "seen": ["ib0", "ib1"] });
        common::mutate::json(random, &mut content);
        let mut bytes = content.to_string().into_bytes();
        common::mutate::bytes(random, &mut bytes);
        fs::write(&file, bytes).unwrap();
        CarrierHistory::read(dir.path()).add(names(&["ib9"]));
        assert!(CarrierHistory::read(dir.path()).seen().contains("ib9"));
    });
}
