// SPDX-License-Identifier: Apache-2.0
//! The library of the end-to-end suites: a node with its own namespaces, its pods, and a runtime that calls plugins as
//! containerd does.
//!
//! Invariant: no test sees or changes the network, the mounts or the files of the machine, except in the fabric's VM,
//! whose own network is the node. A test without a requirement (a binary, root) fails with one line.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::missing_panics_doc,
    clippy::print_stderr,
    reason = "a fixture that cannot be made fails its test, and says why"
)]

pub mod call;
pub mod collector;
pub mod conf;
pub mod daemon;
pub mod fail;
pub mod faults;
pub mod kubelet;
pub mod multus;
pub mod node;
pub mod pod;
pub mod programs;
pub mod snapshot;
pub mod storm;
pub mod trace;
pub mod traces;
pub mod version;

pub use call::{Answer, Call};
pub use conf::Conf;
pub use daemon::Daemon;
pub use node::Node;
pub use pod::Pod;
pub use serde_json::{Value, json};
pub use snapshot::Snapshot;
pub use traces::Traces;
pub use version::Version;

/// Waits until `holds` returns true.
///
/// # Panics
/// After `timeout`.
#[track_caller]
pub fn within(timeout: std::time::Duration, what: &str, holds: impl Fn() -> bool) {
    let start = std::time::Instant::now();
    while !holds() {
        assert!(start.elapsed() < timeout, "not within {timeout:?}: {what}");
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
}

/// Prints a line past libtest's capture, so that the log of a successful run contains it.
pub fn log_line(what: &str) {
    use std::io::Write;
    let mut stdout = std::io::stdout().lock();
    stdout.write_all(format!("did: {what}\n").as_bytes()).unwrap();
}
