// SPDX-License-Identifier: Apache-2.0
//! Metrics for Prometheus. Their names and labels follow the rules of `api::metrics`.

use api::inputs::Source;
use api::metrics::{Durations, PoolLabels, SourceLabels};
use ipam::agent::{Reply, Verb};
use ipam::pool::PoolName;
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;
use std::collections::BTreeSet;
use std::time::Duration;

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
struct KindLabels {
    kind: &'static str,
}

/// All metrics of the agent.
#[derive(Default)]
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
    collected: Family<KindLabels, Counter>,
    uncollected: Gauge,
    /// Without a value while it is unknown whether the node has a collector.
    collector_up: Family<[(&'static str, &'static str); 0], Gauge>,
    lost_sandboxes: Family<PoolLabels, Gauge>,
    rounds_failed: Family<PoolLabels, Counter>,
    requests: Family<RequestLabels, Counter>,
    requests_timed_out: Family<PoolLabels, Counter>,
    link_up: Family<LinkLabels, Gauge>,
    link_expected: Family<LinkLabels, Gauge>,
    link_changes: Family<LinkLabels, Counter>,
}

impl Metrics {
    /// Registers everything under the names that are served.
    pub fn register(&self, all: &mut Registry) {
        self.register_latencies(all);
        self.register_garbage(all);
        all.register("blocks", "Blocks in this node's file", self.blocks.clone());
        all.register(
            "addresses_used",
            "Addresses that attachments of this node use",
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
            "link_expected",
            "1 while the condition of the Node reports this link if it has no carrier",
            self.link_expected.clone(),
        );
        all.register(
            "link_changes",
            "Changes of a link's carrier",
            self.link_changes.clone(),
        );
    }

    fn register_garbage(&self, all: &mut Registry) {
        all.register(
            "garbage_collected",
            "Attachments, and leases of ranges, of pods that were gone without a DEL",
            self.collected.clone(),
        );
        all.register(
            "garbage_left",
            "Attachments that are proven unused and could not be removed",
            self.uncollected.clone(),
        );
        all.register(
            "collector_up",
            "Whether the collector answered the last request of the agent",
            self.collector_up.clone(),
        );
        all.register(
            "lost_sandboxes",
            "Sandboxes whose pod has a newer one, and that keep their network namespace and their address",
            self.lost_sandboxes.clone(),
        );
    }

    fn register_latencies(&self, all: &mut Registry) {
        all.register(
            "plugin_request_duration_seconds",
            "Time from a plugin's request to the reply",
            self.request_durations.0.clone(),
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

    pub(crate) fn holds(&self, pool: &PoolName, blocks: usize, used: u64) {
        self.blocks
            .get_or_create(&PoolLabels::of(pool))
            .set(i64::try_from(blocks).unwrap_or(i64::MAX));
        self.addresses
            .get_or_create(&PoolLabels::of(pool))
            .set(i64::try_from(used).unwrap_or(i64::MAX));
    }

    /// This node has no part of the pool any more. Its gauges are removed: a gauge that is not updated would be read as the
    /// current state.
    pub(crate) fn holds_nothing(&self, pool: &PoolName) {
        self.blocks.remove(&PoolLabels::of(pool));
        self.addresses.remove(&PoolLabels::of(pool));
        self.lost_sandboxes.remove(&PoolLabels::of(pool));
    }

    /// A plugin was answered after this time.
    pub(crate) fn answered_in(&self, verb: Verb, time: Duration) {
        let verb = format!("{verb:?}").to_lowercase();
        self.request_durations.observe(verb, time);
    }

    pub(crate) fn round_interrupted(&self, pool: &PoolName) {
        self.rounds_interrupted.get_or_create(&PoolLabels::of(pool)).inc();
    }

    pub(crate) fn watch_failed(&self, source: Source) {
        self.watch_errors.get_or_create(&SourceLabels::of(source)).inc();
    }

    pub(crate) fn tried(&self, pool: &PoolName) {
        self.tries.get_or_create(&PoolLabels::of(pool)).inc();
    }

    pub(crate) fn claimed(&self, pool: &PoolName) {
        self.claims.get_or_create(&PoolLabels::of(pool)).inc();
    }

    pub(crate) fn listed(&self, pool: &PoolName) {
        self.lists.get_or_create(&PoolLabels::of(pool)).inc();
    }

    pub(crate) fn returned(&self, pool: &PoolName) {
        self.returns.get_or_create(&PoolLabels::of(pool)).inc();
    }

    pub(crate) fn freed(&self, pool: &PoolName) {
        self.freed.get_or_create(&PoolLabels::of(pool)).inc();
    }

    /// The agent collected an attachment, or a lease of ranges.
    pub(crate) fn collected(&self, kind: &'static str) {
        self.collected.get_or_create(&KindLabels { kind }).inc();
    }

    /// The number of sandboxes that keep an address of the pool although their pod has a newer one.
    pub(crate) fn lost_sandboxes(&self, pool: &PoolName, count: usize) {
        self.lost_sandboxes
            .get_or_create(&PoolLabels::of(pool))
            .set(i64::try_from(count).unwrap_or(i64::MAX));
    }

    /// The number of attachments that are proven unused and could not be removed.
    pub(crate) fn uncollected(&self, count: usize) {
        self.uncollected.set(i64::try_from(count).unwrap_or(i64::MAX));
    }

    /// Whether the collector answered the last request for its list.
    pub(crate) fn collector_answers(&self, answers: bool) {
        self.collector_up.get_or_create(&[]).set(i64::from(answers));
    }

    pub(crate) fn round_failed(&self, pool: &PoolName) {
        self.rounds_failed.get_or_create(&PoolLabels::of(pool)).inc();
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
        self.requests_timed_out.get_or_create(&PoolLabels::of(pool)).inc();
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

    /// Serves the links that are expected to have carrier. `before`: the links of the last call. A link of both calls is served
    /// without a gap, because a gap would end the alert about it.
    pub(crate) fn expect_links(&self, before: &BTreeSet<String>, now: &BTreeSet<String>) {
        let label = |link: &String| LinkLabels { link: link.clone() };
        for link in before.difference(now) {
            self.link_expected.remove(&label(link));
        }
        for link in now {
            self.link_expected.get_or_create(&label(link)).set(1);
        }
    }

    /// The node has no link of this name any more. Its gauge is removed: a gauge that is not updated would be read as the current
    /// state. Its counter is removed too: links that come and go under new names would add counters until the agent ends. If the
    /// name returns, Prometheus takes the lower count for a restart of the counter.
    pub(crate) fn link_gone(&self, name: &str) {
        let link = LinkLabels {
            link: name.to_owned(),
        };
        self.link_up.remove(&link);
        self.link_changes.remove(&link);
    }
}
