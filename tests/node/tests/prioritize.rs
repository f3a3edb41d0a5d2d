// SPDX-License-Identifier: Apache-2.0
//! `tests/node/prioritize` changes the priority of its own session and of no other one, and a refused priority stops nothing.

#![expect(clippy::unwrap_used, reason = "in a test, a panic is the report")]

use std::fs;
use std::path::Path;
use std::process::{Command, Output};

/// Where a kernel without the feature has no file, `None`.
const SESSION: &str = "/proc/self/autogroup";

fn session() -> Option<String> {
    Path::new(SESSION)
        .exists()
        .then(|| fs::read_to_string(SESSION).unwrap())
}

/// The output of a program that prints its own priority and that of its session.
fn prioritize(nice: &str) -> Output {
    let print = format!("cut -d ' ' -f 19 /proc/self/stat; if [ -e {SESSION} ]; then cat {SESSION}; fi");
    Command::new("setsid")
        .arg("--wait")
        .arg(Path::new(env!("CARGO_MANIFEST_DIR")).join("prioritize"))
        .args([nice, "sh", "-c", &print])
        .output()
        .unwrap()
}

#[test]
fn the_program_and_its_session_have_the_priority_and_the_callers_session_does_not() {
    let before = session();
    let output = prioritize("7");
    let printed = String::from_utf8(output.stdout).unwrap();
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    assert_eq!(printed.lines().next(), Some("7"), "{printed}");
    if before.is_some() {
        assert!(printed.trim_end().ends_with("nice 7"), "{printed}");
    }
    assert_eq!(session(), before);
}

/// The kernel answers EINVAL for this number, as it does for the session of its root group.
#[test]
fn a_refused_priority_is_reported_and_the_program_runs() {
    let output = prioritize("-100");
    assert!(output.status.success());
    assert!(!output.stdout.is_empty());
    if session().is_some() {
        let said = String::from_utf8(output.stderr).unwrap();
        assert!(said.contains("Invalid argument"), "{said}");
    }
}
