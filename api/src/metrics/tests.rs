// SPDX-License-Identifier: Apache-2.0
use super::SECONDS;

/// Otherwise the estimate passes the threshold, or stays below it, with a share of requests that the alert does not name.
#[test]
fn the_threshold_of_each_alert_on_a_quantile_is_a_bound_of_the_histogram() {
    let alerts = include_str!("../../../conf/monitoring/alerts.yaml");
    let quantiles: Vec<&str> = alerts
        .lines()
        .filter(|line| line.contains("histogram_quantile("))
        .collect();
    assert_eq!(quantiles.len(), 1, "{quantiles:?}");
    for expr in quantiles {
        let threshold: f64 = expr.rsplit_once("> ").unwrap().1.trim().parse().unwrap();
        assert!(SECONDS.contains(&threshold), "{threshold} of {expr}");
    }
}
