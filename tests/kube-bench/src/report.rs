// SPDX-License-Identifier: Apache-2.0
//! The numbers as Markdown.

use crate::side::Kind;
use bench_kube::call::Done;
use bench_kube::figures::{machine, millis, quantile};
use std::collections::BTreeMap;
use std::fmt::Write;
use std::time::Duration;

/// What was measured, by level, verb and side.
#[derive(Default)]
pub(crate) struct Table(BTreeMap<(usize, &'static str, Kind), Cell>);

#[derive(Default)]
struct Cell {
    times: Vec<Duration>,
    walls: Vec<Duration>,
    requests: usize,
    failed: usize,
}

impl Table {
    /// Adds a round of as many calls as `done` has, which cost `requests`.
    pub(crate) fn add(&mut self, kind: Kind, verb: &'static str, done: &Done, requests: usize) {
        let cell = self.0.entry((done.answers.len(), verb, kind)).or_default();
        let succeeded = done.answers.iter().filter(|answer| answer.succeeded);
        cell.times.extend(succeeded.map(|answer| answer.time));
        cell.failed += done.answers.iter().filter(|answer| !answer.succeeded).count();
        cell.walls.push(done.wall);
        cell.requests += requests;
    }

    /// The whole table.
    pub(crate) fn render(&self, seed: u64, rounds: usize) -> String {
        let mut text = format!(
            "Command: `bench-kube … {rounds}`, seed {seed}. {}\n\n\
             | at once | op | side | n | failed | min ms | p50 ms | p99 ms | all done, min ms | median ms | requests per op |\n\
             | --: | --- | --- | --: | --: | --: | --: | --: | --: | --: | --: |\n",
            machine()
        );
        for ((level, verb, kind), cell) in &self.0 {
            let calls = cell.times.len() + cell.failed;
            let _ = writeln!(
                text,
                "| {level} | {verb} | {} | {calls} | {} | {} | {} | {} | {} | {} | {:.2} |",
                kind.title(),
                cell.failed,
                millis(quantile(&cell.times, 0)),
                millis(quantile(&cell.times, 50)),
                millis(quantile(&cell.times, 99)),
                millis(quantile(&cell.walls, 0)),
                millis(quantile(&cell.walls, 50)),
                // Both are far below what a double has digits for.
                f64::from(u32::try_from(cell.requests).unwrap()) / f64::from(u32::try_from(calls).unwrap()),
            );
        }
        text
    }
}
