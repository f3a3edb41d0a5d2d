// SPDX-License-Identifier: Apache-2.0
use super::*;
use crate::model::alone;
use std::thread;

#[test]
fn one_chooses_at_a_time() {
    let _alone = alone();
    let dir = tempfile::tempdir().unwrap();
    let first = turn_within(dir.path(), TURN_TIMEOUT).unwrap();
    let patience = Duration::from_millis(30);
    let started = Instant::now();
    assert!(
        turn_within(dir.path(), patience).is_none(),
        "it goes on without a turn"
    );
    assert!(started.elapsed() >= patience);
    let waiting = thread::spawn({
        let state = dir.path().to_owned();
        move || turn_within(&state, TURN_TIMEOUT).is_some()
    });
    sleep(patience);
    drop(first);
    assert!(waiting.join().unwrap());
}

#[test]
fn a_pod_starts_with_an_unwritable_state_directory() {
    assert!(turn_within(Path::new("/proc/self/nowhere"), TURN_TIMEOUT).is_none());
}
