// SPDX-License-Identifier: Apache-2.0
//! Prometheus metrics: how a process serves them, and those about its requests to the API server.
//!
//! Invariant: names follow Prometheus' conventions: `rdmanet_`, base units (seconds), `_total` on counters alone. Labels
//! have few values, such as pools and verbs; none is a name that a tenant chooses.

use crate::inputs::Source;
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::encoding::text::encode;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::metrics::info::Info;
use prometheus_client::registry::Registry;
use std::fmt::Display;
use std::sync::LazyLock;
use std::time::Duration;

/// The metrics that a process serves.
#[derive(Debug)]
pub struct Served(Registry);

impl Served {
    /// The metrics of every process, and those that `register` adds. `process`: the name of the program.
    pub fn new(process: &str, register: impl FnOnce(&mut Registry)) -> Self {
        let mut registry = Registry::default();
        let all = registry.sub_registry_with_prefix("rdmanet");
        let version = Info::new([("version", env!("CARGO_PKG_VERSION"))]);
        all.register("build", format!("The version of the {process}"), version);
        all.register(
            "api_request_duration_seconds",
            "Time of requests to the API server, including those that timed out",
            REQUESTS.durations.0.clone(),
        );
        all.register(
            "api_errors",
            "Requests to the API server that failed or timed out",
            REQUESTS.errors.clone(),
        );
        register(all);
        Self(registry)
    }

    /// The metrics in the text format of `OpenMetrics`.
    pub fn text(&self) -> String {
        let mut text = String::new();
        // Writing to a string does not fail.
        let _ = encode(&mut text, &self.0);
        text
    }
}

/// The label of a metric about reading an input.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct SourceLabels {
    /// [`Source::label`].
    pub source: &'static str,
}

impl SourceLabels {
    /// The label of this source.
    pub fn of(source: Source) -> Self {
        Self {
            source: source.label(),
        }
    }
}

/// The label of a metric of a pool.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct PoolLabels {
    /// The name of the pool.
    pub pool: String,
}

impl PoolLabels {
    /// The label of this pool.
    pub fn of(pool: impl Display) -> Self {
        Self {
            pool: pool.to_string(),
        }
    }
}

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
#[derive(Clone, Debug)]
pub struct Durations(pub Family<VerbLabels, Histogram, fn() -> Histogram>);

impl Default for Durations {
    fn default() -> Self {
        Self(Family::new_with_constructor(|| Histogram::new(SECONDS)))
    }
}

impl Durations {
    /// Adds the duration of one request.
    pub fn observe(&self, verb: String, time: Duration) {
        self.0
            .get_or_create(&VerbLabels { verb })
            .observe(time.as_secs_f64());
    }
}

/// Upper bounds in seconds, from a millisecond to the limits of requests: to the API server for a plugin (4), of a plugin (5), and
/// to the API server in the background (30). Prometheus estimates a quantile linearly between two bounds, so the threshold of
/// each alert on a quantile is a bound too (2, in conf/monitoring/alerts.yaml).
const SECONDS: [f64; 14] = [
    0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.0, 4.0, 5.0, 30.0,
];

/// Requests to the API server.
#[derive(Default)]
pub struct Requests {
    /// Durations of requests, timed-out ones included.
    pub durations: Durations,
    /// Requests without a result, by verb and reason.
    pub errors: Family<ErrorLabels, Counter>,
}

/// The metrics of this process. They are global, because a request has no reference to its daemon.
pub static REQUESTS: LazyLock<Requests> = LazyLock::new(Requests::default);

impl Requests {
    /// Records a request and its duration. `what` begins with the verb; `error` is the reason of a failure.
    pub(crate) fn record(&self, what: &str, time: Duration, error: Option<&'static str>) {
        let verb = what.split(' ').next().unwrap_or_default().to_lowercase();
        self.durations.observe(verb.clone(), time);
        if let Some(reason) = error {
            self.errors.get_or_create(&ErrorLabels { verb, reason }).inc();
        }
    }
}

#[cfg(test)]
mod tests;
