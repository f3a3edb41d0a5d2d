// SPDX-License-Identifier: Apache-2.0
use super::*;
use crate::device_info;
use crate::journal::Journal;
use crate::model::attachment;
use crate::rdma::record;

fn mode(path: &Path) -> u32 {
    fs::metadata(path).unwrap().permissions().mode() & 0o7777
}

#[test]
fn directories_of_an_older_version_get_their_modes() {
    let dir = tempfile::tempdir().unwrap();
    let state = dir.path().join("run/state");
    let attachments = attachments(&state).unwrap();
    assert_eq!((mode(&state), mode(&attachments)), (0o711, 0o700));
    let network = attachments.join("rail0");
    fs::create_dir(&network).unwrap();
    for path in [&attachments, &network] {
        fs::set_permissions(path, Permissions::from_mode(0o755)).unwrap();
    }
    let entry = Journal::new(&state, "rail0").open(&attachment("c1")).unwrap();
    assert_eq!((mode(&attachments), mode(&network)), (0o700, 0o700));
    assert_eq!(mode(&network.join("c1@net1")), 0o600);
    entry.remove().unwrap();
}

#[test]
fn records_and_device_info_are_readable_for_all() {
    let dir = tempfile::tempdir().unwrap();
    let state = dir.path().join("state");
    attachments(&state).unwrap();
    let file = record::file(&state, &attachment("c1"));
    device_info::write(&file, &serde_json::json!({})).unwrap();
    assert_eq!((mode(&file), mode(file.parent().unwrap())), (0o444, 0o755));
    device_info::write(&file, &serde_json::json!({"again": 1})).unwrap();
    assert!(fs::read_to_string(&file).unwrap().contains("again"));
}

#[test]
fn a_foreign_directory_keeps_its_mode() {
    let dir = tempfile::tempdir().unwrap();
    fs::set_permissions(dir.path(), Permissions::from_mode(0o750)).unwrap();
    attachments(dir.path()).unwrap();
    public(dir.path()).unwrap();
    assert_eq!(mode(dir.path()), 0o750);
}

#[test]
fn a_file_in_the_way_is_an_error() {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("attachments"), "").unwrap();
    attachments(dir.path()).unwrap_err();
    public(&dir.path().join("attachments/below")).unwrap_err();
}
