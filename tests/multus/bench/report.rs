// SPDX-License-Identifier: Apache-2.0
//! The numbers as Markdown.

use crate::side::Kind;
use bench::figures::{millis, quantile};
use bench::machine::describe_with_load;
use bench::table::Table;
use std::collections::BTreeMap;
use std::time::Duration;

/// Number of networks, verb and side; a pod without networks has no side.
pub(crate) type What = (usize, &'static str, Option<Kind>);

/// The measurements.
#[derive(Default)]
pub(crate) struct Measurements(BTreeMap<What, Cell>);

#[derive(Default)]
struct Cell {
    times: Vec<Duration>,
    requests: usize,
}

impl Measurements {
    /// Adds a call.
    pub(crate) fn add(&mut self, what: What, time: Duration, requests: usize) {
        let cell = self.0.entry(what).or_default();
        cell.times.push(time);
        cell.requests += requests;
    }

    /// The report.
    pub(crate) fn render(&self, seed: u64, rounds: usize) -> String {
        let mut table = Table::new([
            "networks",
            "op",
            "side",
            "n",
            "min ms",
            "p50 ms",
            "p95 ms",
            "above none, p50 ms",
            "requests per op",
        ]);
        for ((count, verb, kind), cell) in &self.0 {
            let none = self.0.get(&(0, *verb, None));
            let floor = none.and_then(|none| quantile(&none.times, 50));
            let half = quantile(&cell.times, 50);
            let above = half.zip(floor).map(|(half, floor)| half.saturating_sub(floor));
            let calls = u32::try_from(cell.times.len()).unwrap();
            let requests = f64::from(u32::try_from(cell.requests).unwrap()) / f64::from(calls);
            table.extend([vec![
                count.to_string(),
                (*verb).to_owned(),
                kind.map_or("Multus alone", Kind::title).to_owned(),
                calls.to_string(),
                millis(quantile(&cell.times, 0)),
                millis(half),
                millis(quantile(&cell.times, 95)),
                millis(above.filter(|_| *count > 0)),
                format!("{requests:.1}"),
            ]]);
        }
        format!(
            "Command: `bench-multus … {rounds}`, seed {seed}. {}\n\n{}",
            describe_with_load(),
            table.render()
        )
    }
}
