// SPDX-License-Identifier: Apache-2.0
//! The state that all tasks of an agent share.

use crate::config::Config;
use crate::metrics::Metrics;
use crate::namespaces::Namespaces;
use crate::node::Stores;
use crate::unreconciled::Unreconciled;
use api::client::Clients;
use api::deadline::Deadline;
use api::demand::Demand;
use api::http::Health;
use api::inputs::{Inputs, Source};
use api::metrics::Served;
use api::recorder::{Events, NewEvent};
use api::requests::{ApiError, NodeCondition, ReconcileError, Registration, Requests};
use api::{IpBlock, IpPool};
use block::owner::NodeIdentity;
use ipam::clock::{Clock, KernelClock};
use k8s_openapi::api::core::v1::ObjectReference;
use kube::runtime::reflector::Store;
use std::collections::BTreeMap;
use std::fmt::Display;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::sync::Semaphore;
use tokio::sync::mpsc::UnboundedSender;

/// The number of Events that may wait for the API server at the same time. Further Events are dropped.
const EVENTS_IN_FLIGHT: usize = 64;

/// The reasons of Events that are not about pools.
pub mod event {
    /// On a Pod: the agent of its node rejected a request for an address.
    pub const NO_ADDRESS: &str = "NoAddress";
    /// On a Node: a port or bond has lost carrier.
    pub const LINK_DOWN: &str = "LinkDown";
    /// On a Node: a port or bond has carrier again.
    pub const LINK_UP: &str = "LinkUp";
    /// On a Node: a bond uses another port now.
    pub const BOND_FAILOVER: &str = "BondFailover";
}

/// An agent.
pub struct Agent {
    /// Its configuration.
    pub config: Config,
    /// The clients for the API server.
    pub clients: Clients,
    /// This node's files.
    pub stores: Stores,
    /// All pools, as the watch last reported them.
    pub pools: Store<IpPool>,
    /// The blocks with this node's name, as their watches last reported them.
    pub blocks: Store<IpBlock>,
    /// The names of blocks to watch.
    watched_blocks: UnboundedSender<String>,
    /// The open requests for addresses, as reported by watches.
    pub demand: Demand,
    /// The metrics.
    pub metrics: Metrics,
    served: Served,
    /// Whether the agent receives what it works from.
    pub inputs: Inputs,
    /// What the API server must still learn from this node.
    pub(crate) unreconciled: Unreconciled,
    /// The labels of all namespaces, while a pool needs them.
    pub namespaces: Namespaces,
    reading: Mutex<Option<NodeReading>>,
    /// Publishes Events.
    pub(crate) events: Events,
    event_slots: Arc<Semaphore>,
}

/// When the API server was last asked for this Node, and its answer.
#[derive(Clone, Debug)]
struct NodeReading {
    /// Taken before the request was sent, by the clock that plugins use.
    asked: Duration,
    registration: Option<Registration>,
}

impl NodeReading {
    /// Replaces `known` unless that is the answer to a later request: several tasks read the Node at once.
    fn replace_older(self, known: &mut Option<Self>) {
        if known.as_ref().is_none_or(|known| known.asked <= self.asked) {
            *known = Some(self);
        }
    }
}

impl Health for Agent {
    fn metrics(&self) -> String {
        self.served.text()
    }

    fn ready(&self) -> Result<(), String> {
        let mut problems = self.inputs.problems();
        problems.extend(self.unreconciled.problems());
        if problems.is_empty() {
            return Ok(());
        }
        Err(problems.join("\n"))
    }
}

impl Agent {
    /// Creates an agent that has not done anything yet.
    pub fn new(
        config: Config,
        clients: Clients,
        pools: Store<IpPool>,
        blocks: Store<IpBlock>,
        watched_blocks: UnboundedSender<String>,
    ) -> Self {
        let metrics = Metrics::default();
        Self {
            stores: Stores::new(config.data_dir.clone()),
            events: Events::new(&clients, "rdmanet-agent", &config.node),
            demand: Demand::default(),
            served: Served::new("agent", |all| metrics.register(all)),
            metrics,
            inputs: Inputs::new("agent", &[Source::Node, Source::Pools, Source::BlocksOfNode]),
            unreconciled: Unreconciled::default(),
            namespaces: Namespaces::default(),
            reading: Mutex::new(None),
            event_slots: Arc::new(Semaphore::new(EVENTS_IN_FLIGHT)),
            config,
            clients,
            pools,
            blocks,
            watched_blocks,
        }
    }

    /// Watches the block `name`, which this node owns or may own.
    pub(crate) fn watch_block(&self, name: &str) {
        // If the receiver is gone, the agent is about to end.
        let _ = self.watched_blocks.send(name.to_owned());
    }

    fn reading(&self) -> Option<NodeReading> {
        self.reading
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner)
            .clone()
    }

    /// Reads this Node from the API server, unless it was read within `at_most`. Returns the time just before that request was
    /// sent.
    ///
    /// # Errors
    /// [`ReconcileError`]: the last known state stays.
    pub async fn refresh_node(&self, api: &Requests, at_most: Duration) -> Result<Duration, ReconcileError> {
        let asked = KernelClock.since_boot()?;
        if let Some(reading) = self
            .reading()
            .filter(|reading| asked.saturating_sub(reading.asked) < at_most)
        {
            return Ok(reading.asked);
        }
        let registration = match api.registration(&self.config.node).await {
            Ok(registration) => registration,
            Err(error) => {
                if !matches!(error, ApiError::NotSent { .. }) {
                    self.record_read_failure(Source::Node, &error);
                }
                return Err(error.into());
            }
        };
        self.inputs.read(Source::Node);
        let mut known = self
            .reading
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner);
        NodeReading { asked, registration }.replace_older(&mut known);
        Ok(asked)
    }

    /// The registration of this node; none before the API server was asked.
    pub fn identity(&self) -> Option<NodeIdentity> {
        let gone = || NodeIdentity::Gone(self.config.node.as_str().into());
        let reading = self.reading()?;
        Some(
            reading
                .registration
                .map_or_else(gone, |node| NodeIdentity::Registered(node.owner)),
        )
    }

    /// The labels of this node.
    pub fn labels(&self) -> BTreeMap<String, String> {
        self.reading()
            .and_then(|reading| reading.registration)
            .map(|node| node.labels)
            .unwrap_or_default()
    }

    /// A condition of this node's Node, as it was last read or written; none before the API server was asked.
    pub(crate) fn node_condition(&self, kind: &str) -> Option<NodeCondition> {
        self.reading()?.registration?.conditions.remove(kind)
    }

    /// Writes a condition of this node's Node, or removes it.
    ///
    /// # Errors
    /// [`ReconcileError`].
    pub async fn write_node_condition(
        &self,
        api: &Requests,
        kind: &str,
        condition: Option<NodeCondition>,
    ) -> Result<(), ReconcileError> {
        let before = self.node_condition(kind);
        let turned = before.map(|before| before.status)
            != condition.as_ref().map(|condition| condition.status.clone());
        api.patch_node_condition(&self.config.node, kind, condition.as_ref(), turned)
            .await?;
        let mut reading = self
            .reading
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner);
        if let Some(node) = reading.as_mut().and_then(|reading| reading.registration.as_mut()) {
            match condition {
                Some(condition) => node.conditions.insert(kind.to_owned(), condition),
                None => node.conditions.remove(kind),
            };
        }
        Ok(())
    }

    /// The number of blocks of all pools, as the controller last reported it.
    pub(crate) fn known_blocks(&self) -> u64 {
        let of_pool = |pool: &Arc<IpPool>| pool.status.as_ref()?.counters.as_ref().map(|c| c.blocks);
        let all: i64 = self.pools.state().iter().filter_map(of_pool).sum();
        u64::try_from(all).unwrap_or_default()
    }

    /// An attempt to read `source` from the API server failed.
    pub(crate) fn record_read_failure(&self, source: Source, why: &dyn Display) {
        self.metrics.watch_failed(source);
        self.inputs.failed(source, why);
    }

    /// The approximate number of nodes of the cluster: each node that a pool selects has a block of that pool.
    pub fn known_nodes(&self) -> u64 {
        let of_pool = |pool: &Arc<IpPool>| pool.status.as_ref()?.counters.as_ref().map(|c| c.blocks);
        let most = self.pools.state().iter().filter_map(of_pool).max();
        most.and_then(|most| u64::try_from(most).ok()).unwrap_or_default()
    }

    /// Publishes an Event in the background.
    pub(crate) fn publish_event_later(self: &Arc<Self>, about: ObjectReference, event: NewEvent) {
        let Ok(place) = self.event_slots.clone().try_acquire_owned() else {
            tracing::debug!(event.reason, "Event dropped: too many wait for the API server");
            return;
        };
        let agent = self.clone();
        tokio::spawn(async move {
            agent.events.publish(&Deadline::background(), &about, event).await;
            drop(place);
        });
    }
}

#[cfg(test)]
mod tests;
