// SPDX-License-Identifier: Apache-2.0
//! Numbers for Prometheus.
//!
//! Invariant: names follow Prometheus' conventions: `rdmanet_`, base units (seconds), `_total` on counters only. Labels have few
//! values: pools, links of the node, verbs, codes; no name that a tenant chooses.

use api::request_metrics::{Durations, REQUESTS, VerbLabels, durations};
use ipam::agent::{Reply, Verb};
use ipam::pool::PoolName;
use prometheus_client::encoding::{EncodeLabelSet, text::encode};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::info::Info;
use prometheus_client::registry::Registry;
use std::sync::Mutex;
use std::time::Duration;

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct PoolLabels {
    pool: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct RequestLabels {
    pool: String,
    verb: String,
    code: u32,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct LinkLabels {
    link: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct SourceLabels {
    source: &'static str,
}

/// All metrics of the agent.
pub struct Metrics {
    request_durations: Durations,
    rounds_interrupted: Family<PoolLabels, Counter>,
    watch_errors: Family<SourceLabels, Counter>,
    blocks: Family<PoolLabels, Gauge>,
    addresses: Family<PoolLabels, Gauge>,
    tries: Family<PoolLabels, Counter>,
    claims: Family<PoolLabels, Counter>,
    lists: Family<PoolLabels, Counter>,
    returns: Family<PoolLabels, Counter>,
    freed: Family<PoolLabels, Counter>,
    rounds_failed: Family<PoolLabels, Counter>,
    requests: Family<RequestLabels, Counter>,
    requests_timed_out: Family<PoolLabels, Counter>,
    link_up: Family<LinkLabels, Gauge>,
    link_changes: Family<LinkLabels, Counter>,
    registry: Mutex<Registry>,
}

impl Default for Metrics {
    fn default() -> Self {
        Self {
            request_durations: durations(),
            rounds_interrupted: Family::default(),
            watch_errors: Family::default(),
            blocks: Family::default(),
            addresses: Family::default(),
            tries: Family::default(),
            claims: Family::default(),
            lists: Family::default(),
            returns: Family::default(),
            freed: Family::default(),
            rounds_failed: Family::default(),
            requests: Family::default(),
            requests_timed_out: Family::default(),
            link_up: Family::default(),
            link_changes: Family::default(),
            registry: Mutex::default(),
        }
    }
}

fn of(pool: &PoolName) -> PoolLabels {
    PoolLabels {
        pool: pool.to_string(),
    }
}

impl Metrics {
    /// Registers everything under the names that are served.
    #[must_use]
    pub fn registered(self) -> Self {
        {
            let mut registry = self
                .registry
                .lock()
                .unwrap_or_else(std::sync::PoisonError::into_inner);
            let all = registry.sub_registry_with_prefix("rdmanet");
            let version = Info::new([("version", env!("CARGO_PKG_VERSION"))]);
            all.register("build", "The version of the agent", version);
            self.register_latencies(all);
            all.register("blocks", "Blocks in this node's file", self.blocks.clone());
            all.register(
                "addresses_used",
                "Addresses held by attachments of this node",
                self.addresses.clone(),
            );
            all.register(
                "claim_attempts",
                "Attempts to claim a block, one CREATE each",
                self.tries.clone(),
            );
            all.register("blocks_claimed", "Blocks claimed", self.claims.clone());
            all.register(
                "claim_lists",
                "Lists of all blocks, after claim attempts that found each block taken",
                self.lists.clone(),
            );
            all.register("blocks_returned", "Blocks returned", self.returns.clone());
            all.register(
                "addresses_reclaimed",
                "Addresses that the garbage collector released",
                self.freed.clone(),
            );
            all.register(
                "rounds_failed",
                "Rounds of background work that failed",
                self.rounds_failed.clone(),
            );
            all.register(
                "plugin_requests",
                "Requests of plugins, by CNI code of the reply",
                self.requests.clone(),
            );
            all.register(
                "plugin_requests_timed_out",
                "Requests of plugins that timed out before the agent handled them",
                self.requests_timed_out.clone(),
            );
            all.register(
                "link_up",
                "Whether a port or bond of this node has carrier",
                self.link_up.clone(),
            );
            all.register(
                "link_changes",
                "Changes of a link's carrier",
                self.link_changes.clone(),
            );
        }
        self
    }

    fn register_latencies(&self, all: &mut Registry) {
        all.register(
            "plugin_request_duration_seconds",
            "Time from a plugin's request to the reply",
            self.request_durations.clone(),
        );
        all.register(
            "api_request_duration_seconds",
            "Time of requests to the API server, including those that timed out",
            REQUESTS.durations.clone(),
        );
        all.register(
            "api_errors",
            "Requests to the API server that failed or timed out",
            REQUESTS.errors.clone(),
        );
        all.register(
            "watch_errors",
            "Failed attempts to list or watch pools and blocks, or to read the Node",
            self.watch_errors.clone(),
        );
        all.register(
            "rounds_interrupted",
            "Rounds of background work that ended early because a plugin waited",
            self.rounds_interrupted.clone(),
        );
    }

    /// The text that Prometheus reads.
    pub fn text(&self) -> String {
        let registry = self
            .registry
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner);
        let mut text = String::new();
        // Writing to a string does not fail.
        let _ = encode(&mut text, &registry);
        text
    }

    pub(crate) fn holds(&self, pool: &PoolName, blocks: usize, used: u64) {
        self.blocks
            .get_or_create(&of(pool))
            .set(i64::try_from(blocks).unwrap_or(i64::MAX));
        self.addresses
            .get_or_create(&of(pool))
            .set(i64::try_from(used).unwrap_or(i64::MAX));
    }

    /// This node has no part of the pool any more. Its gauges are removed: a gauge that is not updated would be read as the
    /// current state.
    pub(crate) fn holds_nothing(&self, pool: &PoolName) {
        self.blocks.remove(&of(pool));
        self.addresses.remove(&of(pool));
    }

    /// A plugin was answered after this time.
    pub(crate) fn answered_in(&self, verb: Verb, time: Duration) {
        let verb = format!("{verb:?}").to_lowercase();
        self.request_durations
            .get_or_create(&VerbLabels { verb })
            .observe(time.as_secs_f64());
    }

    pub(crate) fn round_interrupted(&self, pool: &PoolName) {
        self.rounds_interrupted.get_or_create(&of(pool)).inc();
    }

    pub(crate) fn watch_failed(&self, source: &'static str) {
        self.watch_errors.get_or_create(&SourceLabels { source }).inc();
    }

    pub(crate) fn tried(&self, pool: &PoolName) {
        self.tries.get_or_create(&of(pool)).inc();
    }

    pub(crate) fn claimed(&self, pool: &PoolName) {
        self.claims.get_or_create(&of(pool)).inc();
    }

    pub(crate) fn listed(&self, pool: &PoolName) {
        self.lists.get_or_create(&of(pool)).inc();
    }

    pub(crate) fn returned(&self, pool: &PoolName) {
        self.returns.get_or_create(&of(pool)).inc();
    }

    pub(crate) fn freed(&self, pool: &PoolName) {
        self.freed.get_or_create(&of(pool)).inc();
    }

    pub(crate) fn round_failed(&self, pool: &PoolName) {
        self.rounds_failed.get_or_create(&of(pool)).inc();
    }

    pub(crate) fn answered(&self, pool: &PoolName, verb: Verb, reply: &Reply) {
        self.answered_of(pool.to_string(), verb, reply);
    }

    /// A request for a pool that does not exist. The name of such a pool is not used as a label.
    pub(crate) fn answered_unknown(&self, verb: Verb, reply: &Reply) {
        self.answered_of("(unknown)".to_owned(), verb, reply);
    }

    fn answered_of(&self, pool: String, verb: Verb, reply: &Reply) {
        let code = match reply {
            Reply::Refused { code, .. } => *code,
            _ => 0,
        };
        let verb = format!("{verb:?}").to_lowercase();
        self.requests
            .get_or_create(&RequestLabels { pool, verb, code })
            .inc();
    }

    pub(crate) fn request_timed_out(&self, pool: &PoolName) {
        self.requests_timed_out.get_or_create(&of(pool)).inc();
    }

    pub(crate) fn link(&self, name: &str, up: bool, changed: bool) {
        let link = LinkLabels {
            link: name.to_owned(),
        };
        self.link_up.get_or_create(&link).set(i64::from(up));
        if changed {
            self.link_changes.get_or_create(&link).inc();
        }
    }

    /// The link has left the node. Its gauge is removed: a gauge that is not updated would be read as the current state.
    pub(crate) fn link_gone(&self, name: &str) {
        let link = LinkLabels {
            link: name.to_owned(),
        };
        self.link_up.remove(&link);
    }
}
