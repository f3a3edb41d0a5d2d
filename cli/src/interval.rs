// SPDX-License-Identifier: Apache-2.0
//! Converts addresses between text (`10.0.0.1`, `10.0.0.0/28` and `10.0.0.1-10.0.0.9`) and numbers.

use ipam::interval::{Interval, IntervalSet};
use ipam::range::{Family, bits};
use ipam::text::exclusion;

/// The addresses of an entry; `None` if the entry cannot be parsed.
pub fn parse(entry: &str) -> Option<(Family, Interval)> {
    let (first, last) = exclusion("the entry", entry.trim()).ok()?;
    Some((Family::of(first), Interval::new(bits(first), bits(last))?))
}

/// `10.0.0.1-10.0.0.9`, or `10.0.0.1` for one address.
pub fn format_interval(family: Family, interval: Interval) -> String {
    let (first, last) = (family.address(interval.first), family.address(interval.last));
    if first == last {
        first.to_string()
    } else {
        format!("{first}-{last}")
    }
}

/// `set` as at most `max` intervals. If there are more, the intervals with the smallest gaps between them are merged.
pub fn merged(set: &IntervalSet, max: usize) -> Vec<Interval> {
    let mut all: Vec<Interval> = set.intervals().to_vec();
    while all.len() > max.max(1) {
        let gap = |i: usize| all[i + 1].first - all[i].last;
        let Some(nearest) = (0..all.len() - 1).min_by_key(|i| gap(*i)) else {
            break;
        };
        let next = all.remove(nearest + 1);
        all[nearest].last = next.last;
    }
    all
}

#[cfg(test)]
mod tests;
