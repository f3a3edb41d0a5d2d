// SPDX-License-Identifier: Apache-2.0
//! Numbers for Prometheus.

use prometheus_client::encoding::text::encode;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;
use std::sync::{Mutex, PoisonError};

/// All of them.
#[derive(Default)]
pub struct Metrics {
    leader: Gauge,
    registry: Mutex<Registry>,
}

impl Metrics {
    /// Registers everything under the names that are served.
    #[must_use]
    pub fn registered(self) -> Self {
        {
            let mut registry = self.registry.lock().unwrap_or_else(PoisonError::into_inner);
            let all = registry.sub_registry_with_prefix("rdmanet_controller");
            all.register(
                "leader",
                "Whether this replica holds the Lease",
                self.leader.clone(),
            );
        }
        self
    }

    /// The text that Prometheus reads.
    pub fn text(&self) -> String {
        let registry = self.registry.lock().unwrap_or_else(PoisonError::into_inner);
        let mut text = String::new();
        // Writing to a string does not fail.
        let _ = encode(&mut text, &registry);
        text
    }

    pub(crate) fn leads(&self, is_leader: bool) {
        self.leader.set(i64::from(is_leader));
    }
}
