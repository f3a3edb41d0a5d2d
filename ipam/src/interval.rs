// SPDX-License-Identifier: Apache-2.0
//! Sets of numbers as sorted, disjoint intervals. The cost of a range depends on its number of gaps, not on
//! its size.
//!
//! Invariant: the intervals of a set are in ascending order, with at least one absent number between
//! neighbours. Invariant: no function iterates over the numbers of an interval.

/// The numbers from `first` to `last`, both included.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Interval {
    /// The smallest number.
    pub first: u128,
    /// The largest number, never below `first`.
    pub last: u128,
}

/// A set of numbers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct IntervalSet(Vec<Interval>);

impl Interval {
    /// The interval from `first` to `last`; `None` if it would be empty.
    pub fn new(first: u128, last: u128) -> Option<Self> {
        (first <= last).then_some(Self { first, last })
    }

    /// Whether `number` lies in it.
    pub fn contains(self, number: u128) -> bool {
        (self.first..=self.last).contains(&number)
    }

    /// Whether some number lies in both.
    pub fn overlaps(self, other: Self) -> bool {
        self.first <= other.last && other.first <= self.last
    }

    /// The number of members; the full interval of 2^128 numbers counts one less.
    pub fn count(self) -> u128 {
        (self.last - self.first).saturating_add(1)
    }
}

impl FromIterator<Interval> for IntervalSet {
    fn from_iter<I: IntoIterator<Item = Interval>>(intervals: I) -> Self {
        let mut sorted: Vec<Interval> = intervals.into_iter().collect();
        work(sorted.len());
        sorted.sort_unstable();
        let mut disjoint: Vec<Interval> = Vec::new();
        for next in sorted {
            match disjoint.last_mut() {
                Some(previous) if next.first <= previous.last.saturating_add(1) => {
                    previous.last = previous.last.max(next.last);
                }
                _ => disjoint.push(next),
            }
        }
        Self(disjoint)
    }
}

impl IntervalSet {
    /// Whether `number` is a member.
    pub fn contains(&self, number: u128) -> bool {
        self.interval_from(number).is_some_and(|i| i.contains(number))
    }

    /// The smallest member that is not below `number`.
    pub fn first_from(&self, number: u128) -> Option<u128> {
        self.interval_from(number).map(|i| i.first.max(number))
    }

    /// The number of members; at most `u128::MAX`.
    pub fn count(&self) -> u128 {
        self.0.iter().fold(0, |sum, i| sum.saturating_add(i.count()))
    }

    /// Its intervals in ascending order.
    pub fn intervals(&self) -> &[Interval] {
        &self.0
    }

    /// The members within `window`. The cost depends on their number, not on the size of the set.
    #[must_use]
    pub fn within(&self, window: Interval) -> Self {
        let first = self.0.partition_point(|i| i.last < window.first);
        let inside = self.0[first..].iter().take_while(|i| i.first <= window.last);
        let cut = inside.map(|i| Interval {
            first: i.first.max(window.first),
            last: i.last.min(window.last),
        });
        let cut: Vec<Interval> = cut.collect();
        work(cut.len() + 1);
        Self(cut)
    }

    /// The members of both sets.
    #[must_use]
    pub fn both(&self, other: &Self) -> Self {
        self.minus(&self.minus(other))
    }

    /// Whether the set has no member.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The members of `self` that are not in `other`.
    #[must_use]
    pub fn minus(&self, other: &Self) -> Self {
        let mut rest = Vec::new();
        let mut next_gap = 0;
        for whole in &self.0 {
            let mut start = Some(whole.first);
            while let (Some(from), Some(gap)) = (start, other.0.get(next_gap)) {
                work(1);
                if gap.last < from {
                    next_gap += 1;
                } else if gap.first > whole.last {
                    break;
                } else {
                    rest.extend(
                        gap.first
                            .checked_sub(1)
                            .and_then(|last| Interval::new(from, last)),
                    );
                    start = gap.last.checked_add(1).filter(|after| *after <= whole.last);
                }
            }
            rest.extend(start.and_then(|from| Interval::new(from, whole.last)));
        }
        Self(rest)
    }

    /// The first interval that ends at or after `number`.
    fn interval_from(&self, number: u128) -> Option<Interval> {
        self.0.get(self.0.partition_point(|i| i.last < number)).copied()
    }
}

#[cfg(test)]
thread_local! {
    /// How many intervals this thread has visited, for tests of an algorithm's cost.
    pub(crate) static WORK: std::cell::Cell<usize> = const { std::cell::Cell::new(0) };
}

/// Counts visited intervals, in tests.
fn work(intervals: usize) {
    #[cfg(test)]
    WORK.set(WORK.get() + intervals);
    #[cfg(not(test))]
    let _ = intervals;
}

#[cfg(test)]
mod tests;
