// SPDX-License-Identifier: Apache-2.0
use super::*;

#[test]
fn the_process_that_holds_a_lock_is_named() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("lock");
    let file = File::create(&path).unwrap();
    assert_eq!(holder(&file), "another process");
    file.lock().unwrap();
    let text = holder(&File::open(&path).unwrap());
    assert!(
        text.starts_with(&format!("process {} (", std::process::id())),
        "{text}"
    );
}

#[test]
fn waiting_processes_and_other_files_are_not_holders() {
    let held = "1: FLOCK  ADVISORY  WRITE 4711 fe:00:1234 0 EOF";
    assert_eq!(holds(held, 1234), Some("4711"));
    assert_eq!(holds(held, 12), None);
    assert_eq!(
        holds("1: -> FLOCK  ADVISORY  WRITE 4712 fe:00:1234 0 EOF", 1234),
        None
    );
    assert_eq!(
        holds("2: POSIX  ADVISORY  WRITE 4713 fe:00:1234 0 EOF", 1234),
        None
    );
}
