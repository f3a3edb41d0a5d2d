// SPDX-License-Identifier: Apache-2.0
//! The tasks of the controller, which start and stop together.

use crate::config::Config;
use crate::context::Context;
use crate::leader::Leader;
use api::client::Clients;
use api::http::{self, ListenError};
use api::inputs::Source;
use api::supervisor::{Supervisor, TaskEnded};
use futures::StreamExt;
use kube::runtime::reflector;
use kube::runtime::reflector::store;
use kube::runtime::watcher::{self, Event};
use std::sync::Arc;
use std::time::Duration;
use tokio_util::sync::CancellationToken;

/// How long tasks may take to stop, so that pending requests can complete.
const STOP_TIMEOUT: Duration = Duration::from_secs(10);

/// Why the controller stops by itself.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// The controller cannot start.
    #[error(transparent)]
    Listen(#[from] ListenError),
    /// `--quarantine-in-use` is too short.
    #[error("{0}")]
    Quarantine(String),
    /// A task of the controller has ended.
    #[error(transparent)]
    Task(#[from] TaskEnded),
}

/// Runs a controller until `stop`, and lets it finish pending work. If a task fails, `stop` is cancelled.
///
/// # Errors
/// [`RunError`].
pub async fn run(
    config: Config,
    clients: impl Into<Clients>,
    stop: CancellationToken,
) -> Result<(), RunError> {
    let quarantines = config.daemon.quarantines;
    quarantines.require_in_use().map_err(RunError::Quarantine)?;
    let listener = http::listen(config.listen).await?;
    if let Ok(address) = listener.local_addr() {
        tracing::info!(identity = config.identity, %address, "serving metrics and health");
    }
    let supervisor = Supervisor::new(stop);
    let context = start(config, clients, &supervisor);
    let http = http::run(listener, context, supervisor.clone());
    supervisor.spawn("metrics and health", http);
    Ok(supervisor.finish(STOP_TIMEOUT).await?)
}

/// Starts the tasks of a controller that use the API server, without metrics and health.
pub fn start(config: Config, clients: impl Into<Clients>, supervisor: &Supervisor) -> Arc<Context> {
    let clients = clients.into();
    let stop = supervisor.stop();
    let (pools, writer) = store();
    let stream = clients.watch(watcher::Config::default());
    let context = Arc::new(Context::new(config, clients, pools, stop));
    let watcher_context = context.clone();
    let events = reflector(writer, stream).for_each(move |event| {
        watcher_context.record_watch(Source::Pools, &event);
        match event {
            Ok(Event::Apply(pool) | Event::InitApply(pool)) => {
                watcher_context.metrics.set_pool(&pool);
                watcher_context.demand.observe_pool(&pool);
            }
            Ok(Event::Delete(pool)) => watcher_context.metrics.remove_pool(&pool),
            Ok(Event::Init) => watcher_context.metrics.clear_pools(),
            Ok(Event::InitDone) | Err(_) => {}
        }
        std::future::ready(())
    });
    supervisor.spawn("watch of pools", supervisor.until_stopped(events));
    Leader::start(&context, supervisor);
    context
}

#[cfg(test)]
mod tests;
