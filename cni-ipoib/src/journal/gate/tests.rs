// SPDX-License-Identifier: Apache-2.0
use super::*;
use crate::model::alone;
use common::lock::wait_until_awaited;
use std::time::Instant;

const SHORT: Duration = Duration::from_millis(40);

/// Only a hang takes as long.
const HANG: Duration = Duration::from_secs(300);

fn is_locked(gate: &Result<Gate, Error>) -> bool {
    matches!(gate, Err(Error::Locked { .. }))
}

#[test]
fn many_adds_pass_the_gate_at_once_and_none_while_it_is_shut() {
    let _alone = alone();
    let dir = tempfile::tempdir().unwrap();
    let first = Gate::pass(dir.path(), HANG).unwrap();
    let second = Gate::pass(dir.path(), HANG).unwrap();
    assert!(is_locked(&Gate::shut(dir.path(), SHORT)));
    drop((first, second));
    // The threads of the calls that failed may get the lock first.
    let shut = Gate::shut(dir.path(), HANG).unwrap();
    assert!(is_locked(&Gate::pass(dir.path(), SHORT)));
    assert!(is_locked(&Gate::shut(dir.path(), SHORT)));
    drop(shut);
    Gate::pass(dir.path(), HANG).unwrap();
}

#[test]
fn a_waiting_add_passes_as_soon_as_the_gate_opens() {
    let _alone = alone();
    let dir = tempfile::tempdir().unwrap();
    let shut = Gate::shut(dir.path(), HANG).unwrap();
    let path = dir.path().to_owned();
    let waiting = std::thread::spawn(move || Gate::pass(&path, 2 * HANG).map(|_| Instant::now()));
    wait_until_awaited(dir.path());
    let opened = Instant::now();
    drop(shut);
    let passed = waiting.join().unwrap().unwrap();
    assert!(passed >= opened && passed - opened < HANG);
}

#[test]
fn the_error_of_a_shut_gate_names_the_network_and_the_holder() {
    let _alone = alone();
    let dir = tempfile::tempdir().unwrap();
    let network = dir.path().join("rail0");
    std::fs::create_dir(&network).unwrap();
    let _shut = Gate::shut(&network, HANG).unwrap();
    let text = Gate::pass(&network, Duration::ZERO).unwrap_err().to_string();
    let holder = format!("by process {} (", std::process::id());
    assert!(
        text.contains("rail0 has been locked for ") && text.contains(&holder),
        "{text}"
    );
    assert!(
        !text.contains("GC"),
        "the holder may be another process than a GC: {text}"
    );
}
