// SPDX-License-Identifier: Apache-2.0
use super::*;
use nix::sys::memfd::{MFdFlags, memfd_create};
use std::time::Instant;

/// Whether the description names this process. Other locks of this machine that end meanwhile can hide it.
fn names_me(describe: impl Fn() -> String) -> bool {
    let me = format!("process {} (", std::process::id());
    (0..100).any(|_| describe().starts_with(&me))
}

#[test]
fn the_process_that_holds_a_lock_is_named() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("lock");
    let file = File::create(&path).unwrap();
    assert_eq!(holder(&file), "another process");
    file.lock().unwrap();
    assert!(names_me(|| holder(&File::open(&path).unwrap())));
}

#[test]
fn waiting_processes_and_files_of_other_file_systems_are_not_holders() {
    let locks = "1: POSIX  ADVISORY  WRITE 4713 fe:00:1234 0 EOF\n\
        2: FLOCK  ADVISORY  WRITE 4711 00:1a:1234 0 EOF\n\
        2: -> FLOCK  ADVISORY  WRITE 4712 fe:00:1234 0 EOF\n\
        3: FLOCK  ADVISORY  READ 4714 fe:00:1234 0 EOF\n";
    let found = |place: &str| owner(locks, |it| it == place);
    assert_eq!(found("fe:00:1234").as_deref(), Some("4714"));
    assert_eq!(found("00:1a:1234").as_deref(), Some("4711"));
    assert_eq!(found("fe:00:12"), None);
}

/// Inode numbers of memory files are small, as those of /run are. Their file system reports the device that the list has.
#[test]
fn the_kernel_lists_the_device_of_a_locked_file() {
    let file = File::from(memfd_create("lock", MFdFlags::MFD_CLOEXEC).unwrap());
    file.lock().unwrap();
    let listed = place(&file.metadata().unwrap());
    let me = std::process::id().to_string();
    let owner = || owner(&fs::read_to_string("/proc/locks").unwrap(), |it| it == listed);
    assert!((0..100).any(|_| owner().as_ref() == Some(&me)), "{listed}");
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
        assert!(names_me(|| {
            let started = Instant::now();
            let error = flock(&second, Share::Shared, wait).unwrap_err();
            assert!(started.elapsed() >= wait);
            match error {
                LockError::Held { waited, holder } if waited == wait => holder,
                other => panic!("{other:?}"),
            }
        }));
    }
}

#[test]
fn a_waiting_call_gets_the_lock_when_its_holder_ends() {
    let (dir, first, second) = opened_twice();
    flock(&first, Share::Exclusive, Duration::ZERO).unwrap();
    let waiting =
        thread::spawn(move || flock(&second, Share::Exclusive, Duration::from_secs(60)).map(|()| second));
    wait_until_awaited(&dir.path().join("lock"));
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
