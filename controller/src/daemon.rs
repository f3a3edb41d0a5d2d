// SPDX-License-Identifier: Apache-2.0
//! The controller as a whole: its tasks, started and ended together.

use crate::config::Config;
use crate::context::Context;
use crate::leader::Keeper;
use api::cluster::Cluster;
use api::http;
use common::cni::error::causes;
use futures::StreamExt;
use kube::Client;
use kube::runtime::reflector::store;
use kube::runtime::{WatchStreamExt, reflector, watcher};
use std::sync::Arc;
use std::time::Duration;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

/// How long tasks have to end: a request under way has a moment left.
const LAST: Duration = Duration::from_secs(10);

/// Why the controller cannot start.
#[derive(Debug, thiserror::Error)]
pub enum Start {
    /// Metrics and health.
    #[error("cannot listen on {address}: {source}; --listen chooses another address")]
    Listen {
        /// The address.
        address: String,
        /// Why.
        source: std::io::Error,
    },
}

/// Runs a controller until `stop`, and lets it finish what it has begun.
///
/// # Errors
/// [`Start`].
pub async fn run(config: Config, client: Client, stop: CancellationToken) -> Result<(), Start> {
    let listen = |source| Start::Listen {
        address: config.listen.to_string(),
        source,
    };
    let listener = TcpListener::bind(config.listen).await.map_err(listen)?;
    if let Ok(address) = listener.local_addr() {
        tracing::info!(identity = config.identity, %address, "the controller listens");
    }
    let tasks = TaskTracker::new();
    let context = begin(config, client, &tasks, &stop);
    tasks.spawn(http::run(listener, context, stop.clone()));
    stop.cancelled().await;
    tasks.close();
    if tokio::time::timeout(LAST, tasks.wait()).await.is_err() {
        tracing::warn!("a task did not end in time; the next leader goes on with its work");
    }
    Ok(())
}

/// Starts what a controller does with the API server, without metrics and health.
pub fn begin(config: Config, client: Client, tasks: &TaskTracker, stop: &CancellationToken) -> Arc<Context> {
    let cluster = Cluster::new(client);
    let (pools, writer) = store();
    let stream = watcher(cluster.pools.clone(), watcher::Config::default()).default_backoff();
    let context = Arc::new(Context::new(config, cluster, pools));
    let heard_by = context.clone();
    let events = reflector(writer, stream).applied_objects().for_each(move |pool| {
        match pool {
            Ok(pool) => heard_by.wishes.hear(&pool),
            Err(e) => tracing::warn!(error = causes(&e), "the watch of pools failed and begins anew"),
        }
        std::future::ready(())
    });
    tasks.spawn(until(stop.clone(), events));
    tasks.spawn(until(stop.clone(), ready(context.clone())));
    tasks.spawn(Keeper::run(context.clone(), stop.clone()));
    context
}

async fn ready(context: Arc<Context>) {
    if context.pools.wait_until_ready().await.is_ok() {
        context.heard();
    }
}

async fn until(stop: CancellationToken, work: impl Future<Output = ()>) {
    tokio::select! {
        () = stop.cancelled() => {}
        () = work => {}
    }
}
