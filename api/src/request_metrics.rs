// SPDX-License-Identifier: Apache-2.0
//! Prometheus metrics about the requests of this process.
//!
//! Invariant: names follow Prometheus' conventions (base units, `_total` on counters alone), and labels have few values.

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::histogram::Histogram;
use std::sync::LazyLock;
use std::time::Duration;

/// The label of a histogram of durations.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct VerbLabels {
    /// In lower case, such as `get`.
    pub verb: String,
}

/// The labels of an error.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct ErrorLabels {
    /// In lower case, such as `get`.
    pub verb: String,
    /// `timeout`, `overload`, `refused` or `connection`.
    pub reason: &'static str,
}

/// A histogram of seconds for each verb.
pub type Durations = Family<VerbLabels, Histogram, fn() -> Histogram>;

/// Upper bounds in seconds: from a millisecond to the limits of a plugin's question (4) and of a background request (30).
const SECONDS: [f64; 12] = [
    0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 4.0, 30.0,
];

/// Empty histograms.
pub fn durations() -> Durations {
    Family::new_with_constructor(|| Histogram::new(SECONDS))
}

/// Requests to the API server.
pub struct Requests {
    /// Durations of requests, timed-out ones included.
    pub durations: Durations,
    /// Requests without a result, by verb and reason.
    pub errors: Family<ErrorLabels, Counter>,
}

/// The metrics of this process. They are global, because a request has no reference to its daemon.
pub static REQUESTS: LazyLock<Requests> = LazyLock::new(|| Requests {
    durations: durations(),
    errors: Family::default(),
});

impl Requests {
    /// Records a request and its duration. `what` begins with the verb; `error` is the reason of a failure.
    pub(crate) fn record(&self, what: &str, time: Duration, error: Option<&'static str>) {
        let verb = what.split(' ').next().unwrap_or_default().to_lowercase();
        let of = VerbLabels { verb: verb.clone() };
        self.durations.get_or_create(&of).observe(time.as_secs_f64());
        if let Some(reason) = error {
            self.errors.get_or_create(&ErrorLabels { verb, reason }).inc();
        }
    }
}
