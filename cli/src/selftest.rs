// SPDX-License-Identifier: Apache-2.0
//! `rdmanet selftest`: tests the installed plugins on a spare port of this node. It calls them as a runtime does, and
//! compares the node before and after. Its report has what a bug report needs.
//!
//! ```text
//! what a killed run left is removed ─▶ port (refuses one in use) ─▶ steps (bench: namespaces, plugins) ─▶ report
//! ```
//!
//! Invariant: whatever step fails, everything that this program made is removed, and what cannot be removed is in the report. If
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

use crate::answer::{Answer, Failure, Outcome};
use crate::args;
use crate::node::look;
use bench::{Bench, Role};
use log::Log;
use snapshot::Snapshot;
use uses::Uses;

/// Runs all steps.
///
/// # Errors
/// No port may be used, a program is missing, or another self-test runs on this node.
pub fn run(options: &args::Selftest) -> Result<Answer, Failure> {
    let role = if options.listen {
        Role::Listener
    } else {
        Role::Tester
    };
    let mut bench = Bench::open(options, role)?;
    let answer = on(&mut bench, role, options);
    bench.close();
    answer
}

fn on(bench: &mut Bench, role: Role, options: &args::Selftest) -> Result<Answer, Failure> {
    let left = bench.remove_everything();
    let facts = look::facts(&options.node())?;
    let port = port::choose(&facts, options.master.as_deref(), &Uses::read()?)?;
    let before = Snapshot::take(options)?;
    bench.aim(&port);
    let mut log = Log::default();
    if !left.is_empty() {
        log.step("what an earlier run left is removed", || nothing(&left));
    }
    match role {
        Role::Tester => steps::all(
            bench,
            &mut log,
            options.peer.map(|peer| peer.to_string()).as_deref(),
        ),
        Role::Listener => listener::listen(bench, &mut log),
    }
    let left = bench.remove_everything();
    log.step("what the self-test made is removed", || nothing(&left));
    log.step("the node is as it was", || before.still_holds(options));
    let report = report::Report::of(&port, options, log);
    Ok(Answer {
        text: report.text(),
        json: report.json(),
        outcome: if report.failed() {
            Outcome::Found
        } else {
            Outcome::Fine
        },
    })
}

fn nothing(left: &[String]) -> Result<(), String> {
    if left.is_empty() {
        Ok(())
    } else {
        Err(left.join("; "))
    }
}
