// SPDX-License-Identifier: Apache-2.0
//! The load that other programs put on the machine during a run.

use crate::error::{IoContext, Result};
use nix::sys::resource::{UsageWho, getrusage};
use nix::sys::time::{TimeVal, TimeValLike};
use nix::unistd::{SysconfVar, sysconf};
use std::fs;

#[cfg(test)]
mod tests;

/// The load of the machine since a start time.
pub(crate) struct Load {
    since: Ticks,
    own_micros: u64,
}

impl Load {
    /// Starts the measurement.
    pub(crate) fn watch() -> Result<Self> {
        Ok(Self {
            since: Ticks::read()?,
            own_micros: own_micros()?,
        })
    }

    /// The share of all processors' time that neither the idle loop nor this process and its children used, in percent.
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
        Ok(Self::parse(
            &fs::read_to_string("/proc/stat").context(|| "cannot read /proc/stat".into())?,
        ))
    }

    /// Reads user nice system idle iowait irq softirq steal. The columns after these are contained in user and nice.
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
