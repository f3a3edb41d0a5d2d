// SPDX-License-Identifier: Apache-2.0
use super::*;
use crate::model::alone;
use std::process::{Child, Command};

fn program(words: &[&str]) -> Child {
    Command::new(words[0]).args(&words[1..]).spawn().unwrap()
}

#[test]
fn a_record_of_a_process_survives_writing_and_reading() {
    let own = Running::of(std::process::id()).unwrap().unwrap();
    assert_eq!(Running::parse(own.to_string().as_bytes()), Some(own));
    for line in [
        "",
        "running",
        "running ",
        "running 1 2",
        "running 1 2 x",
        "running 1 2 3 4",
        "running 4294967296 2 3",
        "done",
    ] {
        assert_eq!(Running::parse(line.as_bytes()), None, "{line:?}");
    }
    assert_eq!(Running::parse(b"running 1 2 \xff"), None);
}

#[test]
fn a_process_that_ended_is_not_alive_even_if_not_reaped() {
    let _alone = alone();
    assert!(Running::of(std::process::id()).unwrap().unwrap().is_alive());
    let mut child = program(&["sleep", "60"]);
    let running = Running::of(child.id()).unwrap().unwrap();
    assert!(running.is_alive());
    child.kill().unwrap();
    while start_of(child.id()).is_some() {
        std::thread::sleep(std::time::Duration::from_millis(1));
    }
    assert!(!running.is_alive(), "it is a zombie");
    child.wait().unwrap();
    assert!(!running.is_alive());
}

#[test]
fn a_process_that_ended_before_its_record_needs_none() {
    let _alone = alone();
    let file = tempfile::tempfile().unwrap();
    let mut child = program(&["true"]);
    while start_of(child.id()).is_some() {
        std::thread::sleep(std::time::Duration::from_millis(1));
    }
    Notes::of(&file).unwrap().running(child.id()).unwrap();
    assert_eq!(file.metadata().unwrap().len(), 0);
    child.wait().unwrap();
}

#[test]
fn a_later_process_with_the_same_id_is_another_one() {
    let own = Running::of(std::process::id()).unwrap().unwrap();
    for other in [
        Running {
            started: own.started + 1,
            ..own
        },
        Running {
            namespace: own.namespace + 1,
            ..own
        },
    ] {
        assert!(!other.is_alive(), "{other:?}");
    }
}
