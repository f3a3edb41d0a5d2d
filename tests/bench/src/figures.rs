// SPDX-License-Identifier: Apache-2.0
//! Figures of many samples.

use std::time::Duration;

/// The smallest sample that is not below `percent` of all samples (nearest rank, so it is always a measured value; the
/// minimum for 0). `None` if there are no samples.
pub fn quantile<T: Ord + Copy>(samples: &[T], percent: usize) -> Option<T> {
    let mut sorted = samples.to_vec();
    sorted.sort_unstable();
    let rank = (sorted.len() * percent).div_ceil(100).max(1);
    sorted.get(rank - 1).copied()
}

/// Milliseconds with two digits; a dash if there is no time.
pub fn millis(time: Option<Duration>) -> String {
    time.map_or("-".to_owned(), |time| {
        format!("{:.2}", time.as_secs_f64() * 1000.0)
    })
}

/// A count as a number to divide.
#[expect(
    clippy::cast_precision_loss,
    reason = "a double represents each count below 2^53 exactly"
)]
pub fn number(count: usize) -> f64 {
    count as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_quantile_is_one_of_the_samples() {
        let samples: Vec<u64> = (1..=100).rev().collect();
        let quantiles = [0, 50, 95, 100].map(|percent| quantile(&samples, percent));
        assert_eq!(quantiles, [Some(1), Some(50), Some(95), Some(100)]);
        assert_eq!(quantile(&[4], 50), Some(4));
        assert_eq!(quantile::<u64>(&[], 50), None);
        assert_eq!(millis(None), "-");
    }
}
