// SPDX-License-Identifier: Apache-2.0
use super::*;
use std::time::Instant;

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
    let line = "1: FLOCK  ADVISORY  WRITE 4711 fe:00:1234 0 EOF";
    assert_eq!(holds(line, 1234), Some("4711"));
    assert_eq!(holds(line, 12), None);
    assert_eq!(
        holds("1: -> FLOCK  ADVISORY  WRITE 4712 fe:00:1234 0 EOF", 1234),
        None
    );
    assert_eq!(
        holds("2: POSIX  ADVISORY  WRITE 4713 fe:00:1234 0 EOF", 1234),
        None
    );
}

const SHORT: Duration = Duration::from_millis(40);

/// A file, opened as by two processes.
fn opened_twice() -> (tempfile::TempDir, File, File) {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("lock");
    let first = File::create(&path).unwrap();
    let second = File::open(&path).unwrap();
    (dir, first, second)
}

#[test]
fn a_second_holder_times_out_and_the_error_names_the_first() {
    let (_dir, first, second) = opened_twice();
    flock(&first, Share::Exclusive, Duration::ZERO).unwrap();
    for wait in [Duration::ZERO, SHORT] {
        let started = Instant::now();
        let error = flock(&second, Share::Shared, wait).unwrap_err();
        assert!(started.elapsed() >= wait);
        let own = format!("process {} (", std::process::id());
        assert!(
            matches!(&error, LockError::Held { waited, holder } if *waited == wait && holder.starts_with(&own)),
            "{error:?}"
        );
    }
}

#[test]
fn a_waiting_call_gets_the_lock_when_its_holder_ends() {
    let (_dir, first, second) = opened_twice();
    flock(&first, Share::Exclusive, Duration::ZERO).unwrap();
    let waiting =
        thread::spawn(move || flock(&second, Share::Exclusive, Duration::from_secs(60)).map(|()| second));
    thread::sleep(SHORT);
    drop(first);
    waiting.join().unwrap().unwrap();
}

#[test]
fn shared_holders_hold_a_lock_side_by_side_and_exclude_others() {
    let (dir, first, second) = opened_twice();
    flock(&first, Share::Shared, Duration::ZERO).unwrap();
    flock(&second, Share::Shared, Duration::ZERO).unwrap();
    let third = File::open(dir.path().join("lock")).unwrap();
    flock(&third, Share::Exclusive, Duration::ZERO).unwrap_err();
}

#[test]
fn a_lock_that_comes_after_the_time_limit_ends_with_the_file_of_its_call() {
    let (dir, first, second) = opened_twice();
    flock(&first, Share::Exclusive, Duration::ZERO).unwrap();
    flock(&second, Share::Exclusive, SHORT).unwrap_err();
    drop((first, second));
    let third = File::open(dir.path().join("lock")).unwrap();
    flock(&third, Share::Exclusive, Duration::from_secs(60)).unwrap();
}

#[test]
fn a_removed_or_replaced_file_is_not_current() {
    let (dir, first, _) = opened_twice();
    let path = dir.path().join("lock");
    assert!(current(&first, &path).unwrap().is_some());
    fs::remove_file(&path).unwrap();
    assert!(current(&first, &path).unwrap().is_none());
    File::create(&path).unwrap();
    assert!(current(&first, &path).unwrap().is_none());
}
