// SPDX-License-Identifier: Apache-2.0
use super::*;
use std::fs::File;
use std::time::{Duration, SystemTime};
use tempfile::TempDir;

/// A workspace with two sources and a program that was built from them.
fn workspace() -> (TempDir, PathBuf) {
    let dir = tempfile::tempdir().unwrap();
    let program = dir.path().join("program");
    let [one, two] = ["one.rs", "with space.rs"].map(|name| dir.path().join(name));
    for file in [&one, &two, &program] {
        fs::write(file, "").unwrap();
    }
    let two = two.display().to_string().replace(' ', "\\ ");
    let list = format!("{}: {} {two}\n", program.display(), one.display());
    fs::write(program.with_extension("d"), list).unwrap();
    written(&program, 10);
    (dir, program)
}

/// Sets the time of modification of `file`, in seconds from now.
fn written(file: &Path, seconds: u64) {
    let at = SystemTime::now() + Duration::from_secs(seconds);
    File::options()
        .write(true)
        .open(file)
        .unwrap()
        .set_modified(at)
        .unwrap();
}

#[test]
fn a_program_that_is_newer_than_its_sources_is_fresh() {
    let (dir, program) = workspace();
    assert_eq!(staleness(&program, dir.path()), None);
}

#[test]
fn a_program_is_stale_once_a_source_changes_or_is_gone() {
    for name in ["one.rs", "with space.rs"] {
        let (dir, program) = workspace();
        let source = dir.path().join(name);
        let expected = Some(format!("{} has changed since its build", source.display()));
        written(&source, 20);
        assert_eq!(staleness(&program, dir.path()), expected);
        fs::remove_file(&source).unwrap();
        assert_eq!(staleness(&program, dir.path()), expected);
    }
}

#[test]
fn a_program_of_another_workspace_or_without_a_list_is_stale() {
    let (dir, program) = workspace();
    let other = tempfile::tempdir().unwrap();
    assert_eq!(
        staleness(&program, other.path()),
        Some(format!("it was not built from {}", other.path().display()))
    );
    let list = program.with_extension("d");
    fs::remove_file(&list).unwrap();
    assert_eq!(
        staleness(&program, dir.path()),
        Some(format!("{} is missing, the list of its sources", list.display()))
    );
}
