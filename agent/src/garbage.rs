// SPDX-License-Identifier: Apache-2.0
//! Collects what a lost DEL leaves on this node outside of pools: links, RDMA devices and journal entries of
//! `cni-ipoib`, and leases of `ranges` (`docs/design/garbage.md`).
//!
//! Invariant: two sources of evidence prove each removal, in two observations. The kernel shows that the network namespace
//! of the attachment is gone. The API server, past every cache, has no pod of its UID, or this pod has ended or has a
//! newer sandbox. Without an answer of the API server nothing is removed. An attachment without a pod is never removed.

mod attachments;
mod client;
mod evidence;
mod leases;

use crate::agent::Agent;
use api::requests::ReconcileError;
use attachments::Attachments;
use leases::RangeLeases;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::MissedTickBehavior;

/// The shortest pause between two rounds.
const PAUSE: Duration = Duration::from_millis(200);

/// Collects until the caller drops the future, which may happen at any point. A removal that has begun continues in the collector.
pub(crate) async fn run(agent: Arc<Agent>) {
    let mut garbage = Garbage::new(agent.clone());
    let mut look = tokio::time::interval((agent.config.daemon.observation_interval / 3).max(PAUSE));
    look.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        look.tick().await;
        garbage.round().await;
    }
}

/// What the agent suspects, by kind.
struct Garbage {
    attachments: Attachments,
    leases: RangeLeases,
}

impl Garbage {
    fn new(agent: Arc<Agent>) -> Self {
        Self {
            attachments: Attachments::new(agent.clone()),
            leases: RangeLeases::new(agent),
        }
    }

    /// Looks at everything once, and removes what is proven unused.
    async fn round(&mut self) {
        self.attachments.collect().await;
        if let Err(e) = self.leases.collect().await {
            report(&e, "leases");
        }
    }
}

/// An API server that does not answer is in the log already.
fn report(error: &ReconcileError, garbage: &'static str) {
    if error.is_unanswered() {
        tracing::debug!(garbage, error = %error, "garbage collection failed");
    } else {
        tracing::warn!(garbage, error = %error, "garbage collection failed");
    }
}

#[cfg(test)]
mod tests;
