// SPDX-License-Identifier: Apache-2.0
use super::*;
use crate::model::alone;
use std::thread;

#[test]
fn one_chooses_at_a_time() {
    let _alone = alone();
    let dir = tempfile::tempdir().unwrap();
    let first = choice_lock_within(dir.path(), LOCK_TIMEOUT).unwrap();
    let patience = Duration::from_millis(30);
    let started = Instant::now();
    assert!(
        choice_lock_within(dir.path(), patience).is_none(),
        "the call continues without the lock"
    );
    assert!(started.elapsed() >= patience);
    let waiting = thread::spawn({
        let state = dir.path().to_owned();
        move || choice_lock_within(&state, LOCK_TIMEOUT).is_some()
    });
    sleep(patience);
    drop(first);
    assert!(waiting.join().unwrap());
}

#[test]
fn a_pod_starts_with_an_unwritable_state_directory() {
    assert!(choice_lock_within(Path::new("/proc/self/nowhere"), LOCK_TIMEOUT).is_none());
}
