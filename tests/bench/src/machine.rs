// SPDX-License-Identifier: Apache-2.0
//! The machine of a run, without its name.

use std::fs;
use std::num::NonZero;
use std::thread::available_parallelism;

/// Processors, memory and kernel, for a report.
pub fn describe() -> String {
    let read = |path: &str| fs::read_to_string(path).unwrap_or_default();
    let (processors, memory) = (read("/proc/cpuinfo"), read("/proc/meminfo"));
    format!(
        "{} cores of {}, {} GiB, Linux {}",
        available_parallelism().map_or(0, NonZero::get),
        field(&processors, "model name").unwrap_or("an unknown processor"),
        gibibytes(&memory),
        read("/proc/sys/kernel/osrelease").trim(),
    )
}

/// [`describe`], and the load after the run.
pub fn describe_with_load() -> String {
    let load = fs::read_to_string("/proc/loadavg").unwrap_or_default();
    let load = load.split(' ').next().unwrap_or_default();
    format!(
        "Machine: {}; load {load} at the end, including the benchmark.",
        describe()
    )
}

/// The value of the first line `name : value`.
fn field<'a>(text: &'a str, name: &str) -> Option<&'a str> {
    let (_, value) = text
        .lines()
        .filter_map(|line| line.split_once(':'))
        .find(|(key, _)| key.trim() == name)?;
    Some(value.trim())
}

fn gibibytes(meminfo: &str) -> u64 {
    let kibibytes = field(meminfo, "MemTotal").and_then(|total| total.split(' ').next()?.parse().ok());
    kibibytes.map_or(0, |kibibytes: u64| kibibytes.div_ceil(1 << 20))
}

#[cfg(test)]
mod tests;
