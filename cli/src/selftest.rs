// SPDX-License-Identifier: Apache-2.0
//! `rdmanet selftest`: tests the installed plugins on a spare port of this node. It calls them as a runtime does, and
//! compares the node before and after. Its report has what a bug report needs.
//!
//! ```text
//! remove leftovers of a killed run ─▶ port (refuses one in use) ─▶ steps (bench: namespaces, plugins) ─▶ report
//! ```
//!
//! Invariant: whatever step fails, everything that this program created is removed, and what cannot be removed is in the report. If
//! the program itself is killed, its next run removes what is left.

pub mod bench;
pub mod ip;
pub mod listener;
pub mod log;
pub mod port;
pub mod program;
pub mod report;
pub mod snapshot;
pub mod steps;
pub mod uses;

use crate::args;
use crate::node::collect;
use crate::output::{CommandError, Outcome, Output};
use bench::{Bench, Role};
use log::Log;
use snapshot::Snapshot;
use uses::Uses;

/// Runs all steps.
///
/// # Errors
/// No port may be used, a program is missing, or another self-test runs on this node.
pub fn run(options: &args::Selftest) -> Result<Output, CommandError> {
    let role = if options.listen {
        Role::Listener
    } else {
        Role::Tester
    };
    let mut bench = Bench::open(options, role)?;
    let left = bench.remove_everything_of_killed_runs(options);
    let output = run_on(&mut bench, &left, options);
    bench.close();
    output
}

fn run_on(bench: &mut Bench, left: &[String], options: &args::Selftest) -> Result<Output, CommandError> {
    let facts = collect::collect(&options.node())?;
    let uses = Uses::read(&facts)?;
    let port = port::choose(&facts, options.master.as_deref(), &uses)?;
    let before = Snapshot::take(options)?;
    bench.use_port(&port)?;
    let mut log = Log::default();
    if let Some(why) = port
        .rdma
        .as_ref()
        .and_then(|rdma| uses.rdma.unknown(&rdma.device))
    {
        log.not_run("no program and no kernel module uses the port by RDMA", why);
    }
    if !left.is_empty() {
        log.step("leftovers of an earlier run are removed", || require_empty(left));
    }
    match bench.role {
        Role::Tester => steps::all(
            bench,
            &mut log,
            options.peer.map(|peer| peer.to_string()).as_deref(),
        ),
        Role::Listener => listener::listen(bench, &mut log),
    }
    let left = bench.remove_everything();
    log.step("everything that the self-test created is removed", || {
        require_empty(&left)
    });
    log.step("the node is in the same state as before", || {
        before.still_holds(options)
    });
    let report = report::Report::of(&port, options, log);
    Ok(Output {
        text: report.text(),
        json: report.json(),
        outcome: Outcome::of(report.failed()),
    })
}

/// Fails with the entries of `left`, if it has any.
fn require_empty(left: &[String]) -> Result<(), String> {
    if left.is_empty() {
        Ok(())
    } else {
        Err(left.join("; "))
    }
}
