// SPDX-License-Identifier: Apache-2.0
//! Figures for people.

use std::time::Duration;

/// The smallest sample that `percent` of 100 do not exceed; nothing of nothing.
pub fn quantile(times: &[Duration], percent: usize) -> Option<Duration> {
    let mut sorted = times.to_vec();
    sorted.sort_unstable();
    let count = (sorted.len() * percent).div_ceil(100).max(1);
    sorted.get(count - 1).copied()
}

/// Milliseconds with two digits; a dash for nothing.
pub fn millis(time: Option<Duration>) -> String {
    time.map_or("-".to_owned(), |time| {
        format!("{:.2}", time.as_secs_f64() * 1000.0)
    })
}

/// What it ran on, and how busy that was.
pub fn machine() -> String {
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
mod tests;
