// SPDX-License-Identifier: Apache-2.0

use super::*;

#[test]
fn a_quantile_is_a_sample() {
    let times: Vec<Duration> = (1..=100).rev().map(Duration::from_millis).collect();
    assert_eq!(quantile(&times, 50), Some(Duration::from_millis(50)));
    assert_eq!(quantile(&times, 99), Some(Duration::from_millis(99)));
    assert_eq!(quantile(&times[..1], 99), Some(Duration::from_millis(100)));
    assert_eq!(quantile(&times, 0), Some(Duration::from_millis(1)));
    assert_eq!(quantile(&[], 50), None);
}
