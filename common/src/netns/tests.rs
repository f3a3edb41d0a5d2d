// SPDX-License-Identifier: Apache-2.0
use super::{Error, Netns};
use nix::sched::{CloneFlags, unshare};
use std::fs;
use std::path::Path;
use std::thread;

/// A namespace for one test. It ends with the last descriptor.
pub(crate) fn fresh() -> Netns {
    let made = thread::spawn(|| {
        unshare(CloneFlags::CLONE_NEWNET).expect("this test makes network namespaces and must run as root");
        Netns::current().unwrap()
    });
    made.join().unwrap()
}

#[test]
fn work_runs_inside_and_the_caller_stays_outside() {
    let before = Netns::current().unwrap();
    let netns = fresh();
    let inside = netns.run(|| Netns::current().unwrap().id()).unwrap();
    assert_eq!(inside, netns.id());
    assert!(Netns::current().unwrap().is_same(&before));
    assert!(!netns.is_same(&before));
}

#[test]
fn a_panic_inside_a_namespace_reaches_the_caller() {
    let before = Netns::current().unwrap();
    let netns = fresh();
    let outcome = std::panic::catch_unwind(|| netns.run(|| panic!("inside")));
    assert_eq!(outcome.unwrap_err().downcast_ref::<&str>(), Some(&"inside"));
    assert!(Netns::current().unwrap().is_same(&before));
}

#[test]
fn a_namespace_path_that_does_not_exist_is_missing() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("file");
    fs::write(&file, "").unwrap();
    for path in [directory.path().join("gone"), file.join("below-a-file")] {
        let error = Netns::open(&path).unwrap_err();
        assert!(
            matches!(&error, Error::Missing { path: p } if *p == path),
            "{error:?}"
        );
    }
}

#[test]
fn other_files_are_refused_as_namespaces() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("file");
    fs::write(&file, "").unwrap();
    let pipe = directory.path().join("pipe");
    nix::unistd::mkfifo(&pipe, nix::sys::stat::Mode::S_IRWXU).unwrap();
    for path in [
        &file,
        &pipe,
        directory.path(),
        Path::new("/dev/null"),
        Path::new("/proc/self/ns/mnt"),
    ] {
        let error = Netns::open(path).unwrap_err();
        assert!(
            matches!(&error, Error::NotANamespace { path: p } if p == path),
            "{error:?}"
        );
    }
}
