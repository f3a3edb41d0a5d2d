// SPDX-License-Identifier: Apache-2.0
//! Metrics for Prometheus.
//!
//! Invariant: a pool has metrics only while it exists. Every replica serves them from what the API server last sent, so
//! queries take `max by (pool)`.

use api::IpPool;
use api::inputs::Source;
use api::metrics::{PoolLabels, SourceLabels};
use kube::ResourceExt;
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ConditionLabels {
    pool: String,
    condition: String,
}

/// All metrics of the controller.
#[derive(Default)]
pub struct Metrics {
    leader: Gauge,
    watch_errors: Family<SourceLabels, Counter>,
    size: Family<PoolLabels, Gauge>,
    used: Family<PoolLabels, Gauge>,
    free: Family<PoolLabels, Gauge>,
    blocks: Family<PoolLabels, Gauge>,
    conditions: Family<ConditionLabels, Gauge>,
}

impl Metrics {
    /// Registers all metrics under the names that are served.
    pub fn register(&self, all: &mut Registry) {
        all.register(
            "controller_leader",
            "Whether this replica holds the Lease",
            self.leader.clone(),
        );
        all.register(
            "controller_watch_errors",
            "Failed attempts to list or watch pools, blocks, Nodes and address spaces",
            self.watch_errors.clone(),
        );
        all.register(
            "pool_addresses",
            "Addresses that the pool can allocate, of the family with the fewest free ones",
            self.size.clone(),
        );
        all.register(
            "pool_addresses_used",
            "Addresses of the pool that attachments use, of the same family",
            self.used.clone(),
        );
        all.register(
            "pool_addresses_free",
            "Addresses of the pool that can be allocated to any pod, of the same family",
            self.free.clone(),
        );
        all.register(
            "pool_blocks",
            "Blocks of the pool, shared and orphaned ones too",
            self.blocks.clone(),
        );
        all.register(
            "pool_condition",
            "1 while the condition of the pool is True",
            self.conditions.clone(),
        );
    }

    pub(crate) fn set_leader(&self, is_leader: bool) {
        self.leader.set(i64::from(is_leader));
    }

    pub(crate) fn watch_failed(&self, source: Source) {
        self.watch_errors.get_or_create(&SourceLabels::of(source)).inc();
    }

    /// Updates the metrics of a pool from its object.
    pub(crate) fn set_pool(&self, pool: &IpPool) {
        let labels = PoolLabels::of(pool.name_any());
        let status = pool.status.clone().unwrap_or_default();
        if let Some(counters) = status.counters {
            self.size.get_or_create(&labels).set(counters.size);
            self.used.get_or_create(&labels).set(counters.used);
            self.free.get_or_create(&labels).set(counters.free);
            self.blocks.get_or_create(&labels).set(counters.blocks);
        }
        for condition in status.conditions {
            let labels = ConditionLabels {
                pool: labels.pool.clone(),
                condition: condition.type_,
            };
            let holds = i64::from(condition.status == "True");
            self.conditions.get_or_create(&labels).set(holds);
        }
    }

    /// Removes the metrics of all pools before they are listed again: some may have been deleted while the watch was
    /// interrupted.
    pub(crate) fn clear_pools(&self) {
        for gauge in [&self.size, &self.used, &self.free, &self.blocks] {
            gauge.clear();
        }
        self.conditions.clear();
    }

    /// Removes the metrics of a deleted pool.
    pub(crate) fn remove_pool(&self, pool: &IpPool) {
        let labels = PoolLabels::of(pool.name_any());
        for gauge in [&self.size, &self.used, &self.free, &self.blocks] {
            gauge.remove(&labels);
        }
        for condition in pool.status.iter().flat_map(|status| &status.conditions) {
            self.conditions.remove(&ConditionLabels {
                pool: labels.pool.clone(),
                condition: condition.type_.clone(),
            });
        }
    }
}

#[cfg(test)]
mod tests;
