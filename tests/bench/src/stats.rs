// SPDX-License-Identifier: Apache-2.0
//! Summarizes many samples of one operation.

use crate::process::Cost;
use bench::figures::quantile;
use std::time::Duration;

#[cfg(test)]
mod tests;

/// One operation on one side.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Summary {
    pub(crate) samples: usize,
    /// Wall time: the median.
    pub(crate) median: Duration,
    /// Wall time: the 95th percentile.
    pub(crate) p95: Duration,
    /// Wall time: the minimum.
    pub(crate) min: Duration,
    /// User and system time of plugin and delegate together: the median.
    pub(crate) cpu: Duration,
    /// Peak resident memory in KiB of the larger of plugin and delegate: the maximum.
    pub(crate) peak_kib: u64,
    /// Minor page faults of plugin and delegate together: the median.
    pub(crate) minor_faults: u64,
}

impl Summary {
    /// Summarises `costs`; `None` if there are none.
    pub(crate) fn of(costs: &[Cost]) -> Option<Self> {
        let walls: Vec<Duration> = costs.iter().map(|cost| cost.wall).collect();
        let cpu: Vec<Duration> = costs.iter().map(|cost| cost.cpu).collect();
        let faults: Vec<u64> = costs.iter().map(|cost| cost.minor_faults).collect();
        Some(Self {
            samples: costs.len(),
            median: quantile(&walls, 50)?,
            p95: quantile(&walls, 95)?,
            min: quantile(&walls, 0)?,
            cpu: quantile(&cpu, 50)?,
            peak_kib: costs.iter().map(|cost| cost.peak_kib).max()?,
            minor_faults: quantile(&faults, 50)?,
        })
    }
}
