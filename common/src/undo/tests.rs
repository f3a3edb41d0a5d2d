// SPDX-License-Identifier: Apache-2.0
use super::{NotUndone, Undo};
use std::panic::{AssertUnwindSafe, catch_unwind};

type Log = Vec<String>;

/// Logs `word`, and registers a step that logs `-word`.
fn step(undo: &mut Undo<'_, Log>, word: &'static str) {
    undo.remember(format!("undo {word}"), move |log| {
        log.push(format!("-{word}"));
        Ok::<(), String>(())
    });
    undo.target().push(word.to_owned());
}

#[test]
fn early_return_undoes_the_steps_in_reverse_order() {
    let mut log = Log::new();
    let mut undo = Undo::new(&mut log);
    step(&mut undo, "a");
    step(&mut undo, "b");
    drop(undo);
    assert_eq!(log, ["a", "b", "-b", "-a"]);
}

#[test]
fn commit_keeps_everything() {
    let mut log = Log::new();
    let mut undo = Undo::new(&mut log);
    step(&mut undo, "a");
    undo.commit();
    assert_eq!(log, ["a"]);
}

#[test]
fn a_step_registered_before_its_effect_is_undone() {
    let mut log = Log::new();
    let mut undo = Undo::new(&mut log);
    undo.remember("release the address", |log: &mut Log| {
        log.push("released".to_owned());
        Ok::<(), String>(())
    });
    undo.target().push("half done".to_owned());
    drop(undo);
    assert_eq!(log, ["half done", "released"]);
}

#[test]
fn failing_and_panicking_steps_are_reported_and_the_rest_is_undone() {
    let mut log = Log::new();
    let mut undo = Undo::new(&mut log);
    step(&mut undo, "a");
    undo.remember("delete the link net1", |_| Err("EBUSY"));
    undo.remember("release the address", |_| -> Result<(), String> {
        panic!("a bug")
    });
    let failures = undo.rollback();
    let expected = [
        ("release the address", "panicked; this is a bug"),
        ("delete the link net1", "EBUSY"),
    ];
    let expected = expected.map(|(step, reason)| NotUndone {
        step: step.to_owned(),
        reason: reason.to_owned(),
    });
    assert_eq!(failures, expected);
    assert_eq!(failures[1].to_string(), "cannot delete the link net1: EBUSY");
    assert_eq!(log, ["a", "-a"]);
}

#[test]
fn a_panic_during_the_work_undoes_every_step() {
    let mut log = Log::new();
    let outcome = catch_unwind(AssertUnwindSafe(|| {
        let mut undo = Undo::new(&mut log);
        step(&mut undo, "a");
        panic!("in the middle");
    }));
    assert!(outcome.is_err());
    assert_eq!(log, ["a", "-a"]);
}
