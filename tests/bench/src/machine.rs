// SPDX-License-Identifier: Apache-2.0
//! What the numbers depend on and the reader cannot know: processor, kernel, other work, day. Never the machine's name.

use std::fs;
use std::thread::available_parallelism;
use std::time::{SystemTime, UNIX_EPOCH};

use nix::sys::resource::{UsageWho, getrusage};
use nix::sys::time::{TimeVal, TimeValLike};
use nix::unistd::{SysconfVar, sysconf};

use crate::error::{IoContext, Result};

#[cfg(test)]
mod tests;

/// The machine and the moment of a run.
pub(crate) struct Machine {
    cores: usize,
    processor: String,
    kernel: String,
    memory_gib: u64,
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
            ..
        } = self;
        format!("{cores} cores of {processor}, {memory_gib} GiB, Linux {kernel}")
    }
}

/// How busy the machine is from a moment on, by whom.
pub(crate) struct Load {
    since: Ticks,
    own_micros: u64,
}

impl Load {
    /// Starts to watch.
    pub(crate) fn watch() -> Result<Self> {
        Ok(Self {
            since: Ticks::read()?,
            own_micros: own_micros()?,
        })
    }

    /// Percent of all processors' time since then that went neither to the idle loop nor to this process and its children.
    pub(crate) fn others_percent(&self) -> Result<u64> {
        let ticks_per_second =
            sysconf(SysconfVar::CLK_TCK).context(|| "cannot ask for the clock tick".into())?;
        let ticks_per_second = ticks_per_second
            .and_then(|ticks| u64::try_from(ticks).ok())
            .unwrap_or(100);
        let own = (own_micros()? - self.own_micros) * ticks_per_second / 1_000_000;
        Ok(Ticks::read()?.busy_percent_without(own, &self.since))
    }
}

/// The processors' time since boot, in clock ticks (proc(5), the first line of /proc/stat).
#[derive(Clone, Copy)]
struct Ticks {
    all: u64,
    idle: u64,
}

impl Ticks {
    fn read() -> Result<Self> {
        Ok(Self::parse(&read("/proc/stat")?))
    }

    /// user nice system idle iowait irq softirq steal; what follows is contained in user and nice.
    fn parse(stat: &str) -> Self {
        let first = stat.lines().next().unwrap_or_default();
        let fields: Vec<u64> = first
            .split_whitespace()
            .skip(1)
            .take(8)
            .flat_map(str::parse)
            .collect();
        Self {
            all: fields.iter().sum(),
            idle: fields.iter().skip(3).take(2).sum(),
        }
    }

    fn busy_percent_without(&self, own: u64, since: &Self) -> u64 {
        let all = self.all.saturating_sub(since.all);
        let idle = self.idle.saturating_sub(since.idle);
        let others = all.saturating_sub(idle).saturating_sub(own);
        (100 * others).checked_div(all).unwrap_or(0)
    }
}

/// Processor time of this process and of all its children that have ended.
fn own_micros() -> Result<u64> {
    let mut micros = 0;
    for who in [UsageWho::RUSAGE_SELF, UsageWho::RUSAGE_CHILDREN] {
        let usage = getrusage(who).context(|| "cannot ask for the processor time used".into())?;
        let used: TimeVal = usage.user_time() + usage.system_time();
        micros += u64::try_from(used.num_microseconds()).unwrap_or(0);
    }
    Ok(micros)
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
