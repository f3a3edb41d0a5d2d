// SPDX-License-Identifier: Apache-2.0
//! The numbers as Markdown.

use crate::call::Done;
use crate::side::Kind;
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

/// The smallest sample that `percent` of 100 do not exceed; nothing of nothing.
fn quantile(times: &[Duration], percent: usize) -> Option<Duration> {
    let mut sorted = times.to_vec();
    sorted.sort_unstable();
    let count = (sorted.len() * percent).div_ceil(100).max(1);
    sorted.get(count - 1).copied()
}

fn millis(time: Option<Duration>) -> String {
    time.map_or("-".to_owned(), |time| {
        format!("{:.2}", time.as_secs_f64() * 1000.0)
    })
}

fn machine() -> String {
    let read = |path: &str| std::fs::read_to_string(path).unwrap_or_default();
    let info = read("/proc/cpuinfo");
    let model = info
        .lines()
        .find_map(|line| line.strip_prefix("model name")?.split_once(": "));
    let cores = std::thread::available_parallelism().map_or(0, std::num::NonZero::get);
    let load = read("/proc/loadavg");
    let load = load.split(' ').next().unwrap_or_default();
    format!(
        "Machine: {cores} cores of {}, Linux {}; load {load} at the end, the bench's own included.",
        model.map_or("an unknown processor", |(_, name)| name),
        read("/proc/sys/kernel/osrelease").trim(),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_quantile_is_a_sample() {
        let times: Vec<Duration> = (1..=100).rev().map(Duration::from_millis).collect();
        assert_eq!(quantile(&times, 50), Some(Duration::from_millis(50)));
        assert_eq!(quantile(&times, 99), Some(Duration::from_millis(99)));
        assert_eq!(quantile(&times[..1], 99), Some(Duration::from_millis(100)));
        assert_eq!(quantile(&times, 0), Some(Duration::from_millis(1)));
        assert_eq!(quantile(&[], 50), None);
    }
}
