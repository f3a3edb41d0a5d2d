// SPDX-License-Identifier: Apache-2.0
//! The numbers as Markdown.

use crate::side::Kind;
use bench::figures::{millis, quantile};
use bench::machine::describe_with_load;
use bench::table::Table;
use bench_kube::call::Done;
use std::collections::BTreeMap;
use std::time::Duration;

/// The measurements, by level, verb and side.
#[derive(Default)]
pub(crate) struct Measurements(BTreeMap<(usize, &'static str, Kind), Cell>);

#[derive(Default)]
struct Cell {
    times: Vec<Duration>,
    walls: Vec<Duration>,
    requests: usize,
    failed: usize,
}

impl Measurements {
    /// Adds a round with the calls of `done`, which caused `requests`.
    pub(crate) fn add(&mut self, kind: Kind, verb: &'static str, done: &Done, requests: usize) {
        let cell = self.0.entry((done.answers.len(), verb, kind)).or_default();
        let succeeded = done.answers.iter().filter(|answer| answer.succeeded);
        cell.times.extend(succeeded.map(|answer| answer.time));
        cell.failed += done.answers.iter().filter(|answer| !answer.succeeded).count();
        cell.walls.push(done.wall);
        cell.requests += requests;
    }

    /// The report.
    pub(crate) fn render(&self, seed: u64, rounds: usize) -> String {
        let mut table = Table::new([
            "at once",
            "op",
            "side",
            "n",
            "failed",
            "min ms",
            "p50 ms",
            "p99 ms",
            "all done, min ms",
            "median ms",
            "requests per op",
        ]);
        for ((level, verb, kind), cell) in &self.0 {
            let calls = cell.times.len() + cell.failed;
            // A double represents both numbers exactly.
            let requests =
                f64::from(u32::try_from(cell.requests).unwrap()) / f64::from(u32::try_from(calls).unwrap());
            table.extend([vec![
                level.to_string(),
                (*verb).to_owned(),
                kind.title().to_owned(),
                calls.to_string(),
                cell.failed.to_string(),
                millis(quantile(&cell.times, 0)),
                millis(quantile(&cell.times, 50)),
                millis(quantile(&cell.times, 99)),
                millis(quantile(&cell.walls, 0)),
                millis(quantile(&cell.walls, 50)),
                format!("{requests:.2}"),
            ]]);
        }
        format!(
            "Command: `bench-kube … {rounds}`, seed {seed}. {}\n\n{}",
            describe_with_load(),
            table.render()
        )
    }
}
