// SPDX-License-Identifier: Apache-2.0
//! What many samples of one operation say together.

use std::time::Duration;

use crate::process::Cost;

#[cfg(test)]
mod tests;

/// One operation on one side.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Summary {
    pub(crate) samples: usize,
    /// Wall time: the middle sample.
    pub(crate) median: Duration,
    /// Wall time: 95 of 100 samples took no longer.
    pub(crate) p95: Duration,
    /// Wall time: the fastest sample.
    pub(crate) min: Duration,
    /// User and system time of plugin and delegate together: the middle sample.
    pub(crate) cpu: Duration,
    /// Peak resident memory in KiB of the larger of plugin and delegate: the largest sample.
    pub(crate) peak_kib: u64,
    /// Minor page faults of plugin and delegate together: the middle sample.
    pub(crate) minor_faults: u64,
}

impl Summary {
    /// Summarises `costs`; nothing, when there are none.
    pub(crate) fn of(costs: &[Cost]) -> Option<Self> {
        let walls = sorted(costs.iter().map(|cost| cost.wall));
        let peaks = sorted(costs.iter().map(|cost| cost.peak_kib));
        Some(Self {
            samples: costs.len(),
            median: rank(&walls, 50)?,
            p95: rank(&walls, 95)?,
            min: *walls.first()?,
            cpu: rank(&sorted(costs.iter().map(|cost| cost.cpu)), 50)?,
            peak_kib: *peaks.last()?,
            minor_faults: rank(&sorted(costs.iter().map(|cost| cost.minor_faults)), 50)?,
        })
    }
}

/// The middle of `values`; nothing, when there are none.
pub(crate) fn median<T: Ord + Copy>(values: &[T]) -> Option<T> {
    rank(&sorted(values.iter().copied()), 50)
}

fn sorted<T: Ord>(values: impl Iterator<Item = T>) -> Vec<T> {
    let mut values: Vec<T> = values.collect();
    values.sort_unstable();
    values
}

/// The smallest of the `sorted` values that is not below `percent` of them (nearest rank: always a measured value).
fn rank<T: Copy>(sorted: &[T], percent: usize) -> Option<T> {
    let rank = (sorted.len() * percent).div_ceil(100);
    sorted.get(rank.checked_sub(1)?).copied()
}
