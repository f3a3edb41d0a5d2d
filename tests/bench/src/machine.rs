// SPDX-License-Identifier: Apache-2.0
//! What the numbers depend on and the reader cannot know: processor, kernel, load, day. Never the machine's name.

use std::fs;
use std::thread::available_parallelism;
use std::time::{SystemTime, UNIX_EPOCH};

use crate::error::{IoContext, Result};

#[cfg(test)]
mod tests;

/// The machine and the moment of a run.
pub(crate) struct Machine {
    cores: usize,
    processor: String,
    kernel: String,
    memory_gib: u64,
    /// The load average over one minute when the run began.
    load: String,
    /// Year-month-day, UTC.
    pub(crate) date: String,
}

impl Machine {
    /// Reads it from /proc.
    pub(crate) fn read() -> Result<Self> {
        let seconds = SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .unwrap_or_default()
            .as_secs();
        Ok(Self {
            cores: available_parallelism()
                .context(|| "cannot count the processors".into())?
                .get(),
            processor: field(&read("/proc/cpuinfo")?, "model name")
                .unwrap_or("unknown processor")
                .to_owned(),
            kernel: read("/proc/sys/kernel/osrelease")?.trim().to_owned(),
            memory_gib: gibibytes(&read("/proc/meminfo")?),
            load: read("/proc/loadavg")?
                .split(' ')
                .next()
                .unwrap_or("unknown")
                .to_owned(),
            date: civil_date(seconds / 86_400),
        })
    }

    /// One line for the report.
    pub(crate) fn describe(&self) -> String {
        let Self {
            cores,
            processor,
            kernel,
            memory_gib,
            load,
            ..
        } = self;
        format!("{cores} cores of {processor}, {memory_gib} GiB, Linux {kernel}, load {load} before the run")
    }
}

fn read(path: &str) -> Result<String> {
    fs::read_to_string(path).context(|| format!("cannot read {path}"))
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

/// The Gregorian date `days` after 1 January 1970 (Howard Hinnant, "chrono-compatible low-level date algorithms").
fn civil_date(days: u64) -> String {
    let shifted = days + 719_468;
    let (era, day_of_era) = (shifted / 146_097, shifted % 146_097);
    let year_of_era = (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_from_march = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month_from_march + 2) / 5 + 1;
    let month = if month_from_march < 10 {
        month_from_march + 3
    } else {
        month_from_march - 9
    };
    let year = era * 400 + year_of_era + u64::from(month <= 2);
    format!("{year}-{month:02}-{day:02}")
}
