// SPDX-License-Identifier: Apache-2.0
//! The agent process: starts and ends its tasks together.

use crate::agent::Agent;
use crate::block_watch::BlockWatcher;
use crate::config::Config;
use crate::lock::NodeLock;
use crate::pool_reconciler::{Message, PoolReconciler};
use crate::serve::Reconcilers;
use crate::{garbage, links, serve};
use api::IpPool;
use api::client::Clients;
use api::inputs::Source;
use api::supervisor::{Supervisor, TaskEnded};
use common::cni::error::causes;
use futures::StreamExt;
use ipam::pool::PoolName;
use kube::ResourceExt;
use kube::runtime::reflector;
use kube::runtime::reflector::store;
use kube::runtime::watcher::{self, Event};
use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::net::TcpListener;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

/// The number of messages that may wait for a reconciler before senders wait too.
const MAILBOX: usize = 1024;

/// How long tasks may take to stop. A request then has a moment left and a plugin's request a few seconds. The next agent continues
/// the work of a task that is stopped after any step.
const STOP_TIMEOUT: Duration = Duration::from_secs(15);

/// The shortest and the longest pause between two attempts to open the port for metrics and health.
const LISTEN_PAUSES: [Duration; 2] = [Duration::from_secs(1), Duration::from_secs(30)];

/// Why the agent cannot start, or ends by itself.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// The data directory.
    #[error("cannot lock the data directory {path}: {source}")]
    Lock {
        /// The directory.
        path: String,
        /// Why.
        source: std::io::Error,
    },
    /// The plugins' socket.
    #[error("cannot make the socket {path}: {source}")]
    Socket {
        /// Its path.
        path: String,
        /// Why.
        source: std::io::Error,
    },
    /// One of its tasks has ended.
    #[error(transparent)]
    Task(#[from] TaskEnded),
}

/// Runs an agent until `stop`, then lets its tasks finish. If one of its tasks fails, it cancels `stop`.
///
/// # Errors
/// [`RunError`].
pub async fn run(
    config: Config,
    clients: impl Into<Clients>,
    stop: CancellationToken,
) -> Result<(), RunError> {
    let _lock = tokio::select! {
        () = stop.cancelled() => return Ok(()),
        lock = NodeLock::take(&config.data_dir) => lock.map_err(|source| RunError::Lock {
            path: config.data_dir.display().to_string(),
            source,
        })?,
    };
    let socket = serve::bind(&config.socket).map_err(|source| RunError::Socket {
        path: config.socket.display().to_string(),
        source,
    })?;
    let path = config.socket.clone();
    let supervisor = Supervisor::new(stop);
    let (agent, reconcilers) = start(config, clients, &supervisor);
    let socket = serve::run(socket, agent.clone(), reconcilers, supervisor.clone());
    supervisor.spawn("plugin socket", socket);
    let http = serve_health(agent.clone(), supervisor.clone());
    supervisor.spawn("metrics and health", http);
    let collection = supervisor.until_stopped(garbage::run(agent.clone()));
    supervisor.spawn("collection of garbage", collection);
    supervisor.spawn("links", supervisor.until_stopped(links::run(agent)));
    let ended = supervisor.finish(STOP_TIMEOUT).await;
    let _ = std::fs::remove_file(path);
    Ok(ended?)
}

/// Serves metrics and health until the supervisor stops. Plugins need no port, so the agent serves them while the port is taken.
async fn serve_health(agent: Arc<Agent>, supervisor: Supervisor) {
    let listener = supervisor.stop().run_until_cancelled(listen(&agent.config));
    if let Some(listener) = listener.await {
        api::http::run(listener, agent, supervisor.clone()).await;
    }
}

/// Opens the port for metrics and health, and retries while that fails.
async fn listen(config: &Config) -> TcpListener {
    let [mut pause, longest] = LISTEN_PAUSES;
    loop {
        match api::http::listen(config.listen).await {
            Ok(listener) => {
                if let Ok(address) = listener.local_addr() {
                    tracing::info!(node = config.node, %address, socket = %config.socket.display(), "the agent listens");
                }
                return listener;
            }
            Err(error) => {
                tracing::error!(%error, seconds = pause.as_secs(), "serving metrics and health failed; retrying");
            }
        }
        tokio::time::sleep(pause).await;
        pause = (2 * pause).min(longest);
    }
}

/// Starts the tasks that work with the API server and the node's files, without a socket for plugins. The caller must make sure
/// that this is the node's only agent.
pub fn start(
    config: Config,
    clients: impl Into<Clients>,
    supervisor: &Supervisor,
) -> (Arc<Agent>, Reconcilers) {
    let clients = clients.into();
    let (pools, pool_writer) = store();
    let (block_watcher, watched_blocks, blocks) = BlockWatcher::new();
    let pool_stream = clients.watch(watcher::Config::default());
    let agent = Arc::new(Agent::new(config, clients, pools, blocks, watched_blocks));
    let reconcilers = reconcilers(&agent, supervisor);
    let (on_pool, on_block, observer) = (reconcilers.clone(), reconcilers.clone(), agent.clone());
    let pool_events = reflector(pool_writer, pool_stream).for_each(move |event| {
        handle_pool_event(&observer, &on_pool, event);
        std::future::ready(())
    });
    let block_events = block_watcher.run(agent.clone(), move |block| {
        trigger(&on_block, PoolName::try_from(block.spec.pool.clone()).ok());
    });
    let (observer, on_labels) = (agent.clone(), reconcilers.clone());
    let namespace_events = async move {
        let namespaces = &observer.namespaces;
        let changed = |pool: &IpPool| trigger(&on_labels, PoolName::try_from(pool.name_any()).ok());
        namespaces.run(&observer.clients, &observer.pools, changed).await;
    };
    supervisor.spawn("watch of pools", supervisor.until_stopped(pool_events));
    supervisor.spawn("watches of blocks", supervisor.until_stopped(block_events));
    supervisor.spawn("watch of namespaces", supervisor.until_stopped(namespace_events));
    let known = start_local_pools(agent.clone(), reconcilers.clone());
    supervisor.spawn_brief("pools of this node's files", supervisor.until_stopped(known));
    (agent, reconcilers)
}

/// Handles an event of the watch of pools.
fn handle_pool_event(agent: &Agent, reconcilers: &Reconcilers, event: watcher::Result<Event<IpPool>>) {
    match event {
        Ok(Event::Apply(pool) | Event::InitApply(pool)) => {
            agent.demand.observe_pool(&pool);
            trigger(reconcilers, PoolName::try_from(pool.name_any()).ok());
        }
        Ok(Event::InitDone) => agent.inputs.read(Source::Pools),
        Ok(Event::Init | Event::Delete(_)) => {}
        // Logged at most once for each restart of the watch.
        Err(e) => {
            let why = causes(&e);
            tracing::warn!(error = why, "watch of pools failed; restarting it");
            agent.record_read_failure(Source::Pools, &why);
        }
    }
}

fn trigger(reconcilers: &Reconcilers, pool: Option<PoolName>) {
    if let Some(pool) = pool {
        // A reconciler whose mailbox is full begins a round soon anyway.
        let _ = reconcilers(&pool).try_send(Message::Reconcile);
    }
}

/// Pools with files on this node have work to do even if the API server no longer has them.
async fn start_local_pools(agent: Arc<Agent>, reconcilers: Reconcilers) {
    for pool in agent.stores.pools() {
        let problem = "its files have not been compared with the API server since the agent started";
        agent.unreconciled.set(&pool, Some(problem.to_owned()));
        let _ = reconcilers(&pool).send(Message::Reconcile).await;
    }
}

/// Returns a token that is cancelled once the API server has listed pools and blocks. One task waits, and wakes all tasks that
/// begin then: if several tasks wait for a store of kube itself, all but the last to come sleep for ever (kube-runtime 5.0.0,
/// `DelayedInit`: one channel, one waker).
fn after_first_lists(agent: &Arc<Agent>, supervisor: &Supervisor) -> CancellationToken {
    let (agent, listed) = (agent.clone(), CancellationToken::new());
    let ready = listed.clone();
    let wait = supervisor.until_stopped(async move {
        let _ = agent.pools.wait_until_ready().await;
        let _ = agent.blocks.wait_until_ready().await;
        ready.cancel();
    });
    supervisor.spawn_brief("first lists", wait);
    listed
}

/// Returns a function that finds the reconciler of a pool. A reconciler is started when its pool is first named.
fn reconcilers(agent: &Arc<Agent>, supervisor: &Supervisor) -> Reconcilers {
    let listed = after_first_lists(agent, supervisor);
    let (agent, supervisor) = (agent.clone(), supervisor.clone());
    let running: Mutex<HashMap<PoolName, mpsc::Sender<Message>>> = Mutex::new(HashMap::new());
    Arc::new(move |pool: &PoolName| {
        let mut running = running.lock().unwrap_or_else(PoisonError::into_inner);
        let start = || {
            let (sender, inbox) = mpsc::channel(MAILBOX);
            let reconciler = PoolReconciler::new(agent.clone(), pool.clone());
            let work = reconciler.run(inbox, listed.clone(), supervisor.stop().clone());
            supervisor.spawn("reconciler of a pool", work);
            sender
        };
        running.entry(pool.clone()).or_insert_with(start).clone()
    })
}

#[cfg(test)]
mod tests;
