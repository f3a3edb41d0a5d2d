// SPDX-License-Identifier: Apache-2.0
//! The state that all tasks of a controller share.

use crate::config::Config;
use crate::metrics::Metrics;
use api::IpPool;
use api::client::Clients;
use api::deadline::Deadline;
use api::demand::Demand;
use api::http::Health;
use api::metrics::Served;
use api::recorder::{Events, NewEvent};
use api::requests::Requests;
use k8s_openapi::api::core::v1::ObjectReference;
use kube::runtime::reflector::Store;
use std::sync::atomic::{AtomicBool, Ordering};
use tokio_util::sync::CancellationToken;

/// The state of a controller.
pub struct Context {
    /// The configuration.
    pub config: Config,
    /// The clients for the API server, for watches.
    pub clients: Clients,
    /// Requests to the API server. They are background work until the controller stops.
    pub api: Requests,
    /// All pools, from the watch.
    pub pools: Store<IpPool>,
    /// The open requests for addresses, from the watches.
    pub demand: Demand,
    /// Metrics for Prometheus.
    pub metrics: Metrics,
    served: Served,
    events: Events,
    /// Whether the watch has delivered all pools once.
    is_ready: AtomicBool,
}

impl Health for Context {
    fn metrics(&self) -> String {
        self.served.text()
    }

    fn ready(&self) -> Result<(), String> {
        if self.is_ready.load(Ordering::Relaxed) {
            return Ok(());
        }
        Err("the controller has not read the pools (ippools.rdmanet.io) from the API server yet".to_owned())
    }
}

impl Context {
    /// A controller that has not started.
    pub fn new(config: Config, clients: Clients, pools: Store<IpPool>, stop: &CancellationToken) -> Self {
        let metrics = Metrics::default();
        Self {
            events: Events::new(&clients, "rdmanet-controller", &config.identity),
            demand: Demand::default(),
            served: Served::new("controller", |all| metrics.register(all)),
            metrics,
            is_ready: AtomicBool::new(false),
            config,
            api: clients.requests(Deadline::until_stopped(stop.clone())),
            clients,
            pools,
        }
    }

    /// Records that the watch has delivered all pools.
    pub(crate) fn set_ready(&self) {
        self.is_ready.store(true, Ordering::Relaxed);
    }

    /// Publishes an Event about a pool.
    pub(crate) async fn publish_event(&self, about: &ObjectReference, event: NewEvent) {
        self.events.publish(self.api.deadline(), about, event).await;
    }
}
