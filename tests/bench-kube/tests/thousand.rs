// SPDX-License-Identifier: Apache-2.0
//! A small run of `bench-thousand`: 20 pods and 20 addresses on two nodes.

#![allow(clippy::unwrap_used, reason = "in a test, a panic is the report")]

use std::path::Path;
use std::process::Command;
use tests::programs::{program, whereabouts, whereabouts_definitions};

/// The cells of the row `name`: ours, whereabouts, whereabouts with slices.
fn row<'t>(report: &'t str, name: &str) -> Vec<&'t str> {
    let line = report
        .lines()
        .find(|line| line.starts_with(&format!("| {name} ")));
    let line = line.unwrap_or_else(|| panic!("no row {name}:\n{report}"));
    line.split('|').skip(2).map(str::trim).collect()
}

#[test]
fn twenty_pods_get_twenty_addresses_on_two_nodes_and_leave_nothing() {
    let output = Command::new(Path::new(env!("CARGO_BIN_EXE_bench-thousand")))
        .args([program("rdma-ipam"), whereabouts(), whereabouts_definitions()])
        .args(["20", "2", "120"])
        .output()
        .unwrap();
    let report = String::from_utf8(output.stdout).unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{report}\n{errors}");
    for (name, ours) in [
        ("addresses that may be allocated", "20"),
        ("pods with an address", "20"),
        ("addresses of two pods", "0"),
        ("addresses without a record", "0"),
        ("records of no address", "0"),
        ("DELs with an error", "0"),
        ("records left when none was left, or after 60 s", "0"),
    ] {
        assert_eq!(row(&report, name)[0], ours, "{name}:\n{report}");
    }
    // whereabouts may fail under load, but both its sides ran.
    assert_eq!(
        row(&report, "addresses that may be allocated")[1..3],
        ["20", "28"]
    );
}
