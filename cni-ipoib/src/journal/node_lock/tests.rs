// SPDX-License-Identifier: Apache-2.0
use super::*;
use crate::model::alone;
use common::lock::wait_until_awaited;
use std::thread;
use std::time::Instant;

const SHORT: Duration = Duration::from_millis(30);

#[test]
fn one_call_holds_the_lock_and_the_next_times_out() {
    let _alone = alone();
    let state = tempfile::tempdir().unwrap();
    let first = NodeLock::take(state.path()).unwrap();
    let second = NodeLock::take_within(state.path(), Share::Exclusive, Duration::ZERO);
    assert!(
        matches!(&second, Err(Error::Locked { path, .. }) if path.ends_with("attachments")),
        "{second:?}"
    );
    drop(first);
    NodeLock::take_within(state.path(), Share::Exclusive, Duration::ZERO).unwrap();
    assert_eq!(crate::journal::written(state.path()).unwrap(), []);
}

#[test]
fn one_chooses_at_a_time() {
    let _alone = alone();
    let dir = tempfile::tempdir().unwrap();
    let first = NodeLock::attempt(dir.path()).unwrap();
    let started = Instant::now();
    assert!(
        NodeLock::attempt_within(dir.path(), Share::Exclusive, SHORT).is_none(),
        "the call continues without the lock"
    );
    assert!(started.elapsed() >= SHORT);
    let waiting = thread::spawn({
        let state = dir.path().to_owned();
        move || NodeLock::attempt(&state).is_some()
    });
    wait_until_awaited(&dir.path().join("attachments"));
    drop(first);
    assert!(waiting.join().unwrap());
}

#[test]
fn a_pod_starts_with_an_unwritable_state_directory() {
    assert!(NodeLock::attempt(Path::new("/proc/self/nowhere")).is_none());
}
