// SPDX-License-Identifier: Apache-2.0
//! The state that all tasks of a controller share.

use crate::config::Config;
use crate::metrics::Metrics;
use api::IpPool;
use api::client::Clients;
use api::deadline::Deadline;
use api::demand::Demand;
use api::http::Health;
use api::inputs::{Inputs, Source};
use api::metrics::Served;
use api::recorder::{Events, NewEvent};
use api::requests::Requests;
use common::cni::error::causes;
use k8s_openapi::api::core::v1::ObjectReference;
use kube::runtime::reflector::Store;
use kube::runtime::watcher::{self, Event};
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
    /// What this replica has read from the API server. Only the leader reads more than pools.
    pub inputs: Inputs,
}

impl Health for Context {
    fn metrics(&self) -> String {
        self.served.text()
    }

    fn ready(&self) -> Result<(), String> {
        let problems = self.inputs.problems();
        if problems.is_empty() {
            return Ok(());
        }
        Err(problems.join("\n"))
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
            inputs: Inputs::new("controller", &[Source::Pools]),
            config,
            api: clients.requests(Deadline::until_stopped(stop.clone())),
            clients,
            pools,
        }
    }

    /// Records an event of the watch of `source`, for `/readyz`.
    pub(crate) fn record_watch<K>(&self, source: Source, event: &watcher::Result<Event<K>>) {
        match event {
            Ok(Event::InitDone) => self.inputs.read(source),
            Ok(_) => {}
            Err(e) => {
                let error = causes(e);
                tracing::warn!(source = source.label(), %error, "a watch failed; retrying");
                self.metrics.watch_failed(source);
                self.inputs.failed(source, &error);
            }
        }
    }

    /// Publishes an Event about a pool.
    pub(crate) async fn publish_event(&self, about: &ObjectReference, event: NewEvent) {
        self.events.publish(self.api.deadline(), about, event).await;
    }
}
