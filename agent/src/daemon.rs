// SPDX-License-Identifier: Apache-2.0
//! The agent as a whole: its tasks, started and ended together.

use crate::agent::Agent;
use crate::cluster::Cluster;
use crate::config::Config;
use crate::follow::Follower;
use crate::lock::NodeLock;
use crate::serve::Workers;
use crate::worker::{Message, Worker};
use crate::{http, links, serve};
use common::cni::error::causes;
use futures::StreamExt;
use ipam::pool::PoolName;
use kube::runtime::reflector::store;
use kube::runtime::{WatchStreamExt, reflector, watcher};
use kube::{Client, ResourceExt};
use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::net::TcpListener;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

/// Messages that wait for a worker before whoever sends more waits too.
const INBOX: usize = 1024;

/// Why the agent cannot start.
#[derive(Debug, thiserror::Error)]
pub enum Start {
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
    /// Metrics and health.
    #[error("cannot listen on {address}: {source}; --listen chooses another address")]
    Listen {
        /// The address.
        address: String,
        /// Why.
        source: std::io::Error,
    },
}

/// Runs an agent until `stop`, and lets it finish what it has begun.
///
/// # Errors
/// [`Start`].
pub async fn run(config: Config, client: Client, stop: CancellationToken) -> Result<(), Start> {
    let _lock = tokio::select! {
        () = stop.cancelled() => return Ok(()),
        lock = NodeLock::take(&config.data_dir) => lock.map_err(|source| Start::Lock {
            path: config.data_dir.display().to_string(),
            source,
        })?,
    };
    let socket = serve::bind(&config.socket).map_err(|source| Start::Socket {
        path: config.socket.display().to_string(),
        source,
    })?;
    let listen = |source| Start::Listen {
        address: config.listen.to_string(),
        source,
    };
    let listener = TcpListener::bind(config.listen).await.map_err(listen)?;
    if let Ok(address) = listener.local_addr() {
        tracing::info!(node = config.node, %address, socket = %config.socket.display(), "the agent listens");
    }
    let path = config.socket.clone();
    let tasks = TaskTracker::new();
    let (agent, workers) = begin(config, client, &tasks, &stop);
    tasks.spawn(serve::run(socket, agent.clone(), workers, stop.clone()));
    tasks.spawn(http::run(listener, agent.clone(), stop.clone()));
    tasks.spawn(links::run(agent, stop.clone()));
    stop.cancelled().await;
    tasks.close();
    // A request has a moment left, a plugin's question its few seconds, and every step may be the last one.
    if tokio::time::timeout(Duration::from_secs(15), tasks.wait())
        .await
        .is_err()
    {
        tracing::warn!("something does not end; whatever it was doing, the next agent goes on with it");
    }
    let _ = std::fs::remove_file(path);
    Ok(())
}

/// Starts what an agent does with the API server and the node's files. Nobody can speak to it, and that it is the node's
/// only one is for the caller to see to.
pub fn begin(
    config: Config,
    client: Client,
    tasks: &TaskTracker,
    stop: &CancellationToken,
) -> (Arc<Agent>, Workers) {
    let cluster = Cluster::new(client);
    let (pools, pool_writer) = store();
    let (follower, names, blocks) = Follower::new();
    let pool_stream = watcher(cluster.pools.clone(), watcher::Config::default()).default_backoff();
    let agent = Arc::new(Agent::new(config, cluster, pools, blocks, names));
    let workers = workers(&agent, tasks, stop);
    let (on_pool, on_block, heard_by) = (workers.clone(), workers.clone(), agent.clone());
    let pool_events = reflector(pool_writer, pool_stream)
        .applied_objects()
        .for_each(move |pool| {
            match pool {
                Ok(pool) => {
                    heard_by.wishes.hear(&pool);
                    nudge(&on_pool, PoolName::try_from(pool.name_any()).ok());
                }
                // At most as often as the watch begins anew.
                Err(e) => {
                    tracing::warn!(
                        error = causes(&e),
                        "nothing is heard of pools: the watch begins anew"
                    );
                }
            }
            std::future::ready(())
        });
    let block_events = follower.run(agent.clone(), move |block| {
        nudge(&on_block, PoolName::try_from(block.spec.pool.clone()).ok());
    });
    tasks.spawn(until(stop.clone(), pool_events));
    tasks.spawn(until(stop.clone(), block_events));
    tasks.spawn(until(stop.clone(), start_known(agent.clone(), workers.clone())));
    (agent, workers)
}

async fn until(stop: CancellationToken, work: impl Future<Output = ()>) {
    tokio::select! {
        () = stop.cancelled() => {}
        () = work => {}
    }
}

fn nudge(workers: &Workers, pool: Option<PoolName>) {
    if let Some(pool) = pool {
        // One that has more to read than fits looks soon anyway.
        let _ = workers(&pool).try_send(Message::Look);
    }
}

/// Pools that this node has files of have work to do whether or not the API server knows them still.
async fn start_known(agent: Arc<Agent>, workers: Workers) {
    for pool in agent.stores.pools() {
        let _ = workers(&pool).send(Message::Look).await;
    }
}

/// Ends when the API server has told of pools and blocks. One task waits, and wakes all that begin then: of several that wait for
/// a store of kube itself, all but the last to come sleep for ever (kube-runtime 5.0.0, `DelayedInit`: one channel, one waker).
fn told(agent: &Arc<Agent>, tasks: &TaskTracker, stop: &CancellationToken) -> CancellationToken {
    let (agent, told) = (agent.clone(), CancellationToken::new());
    let ready = told.clone();
    tasks.spawn(until(stop.clone(), async move {
        let _ = agent.pools.wait_until_ready().await;
        let _ = agent.blocks.wait_until_ready().await;
        ready.cancel();
    }));
    told
}

/// A worker for each pool, started when it is first named.
fn workers(agent: &Arc<Agent>, tasks: &TaskTracker, stop: &CancellationToken) -> Workers {
    let told = told(agent, tasks, stop);
    let (agent, tasks, stop) = (agent.clone(), tasks.clone(), stop.clone());
    let running: Mutex<HashMap<PoolName, mpsc::Sender<Message>>> = Mutex::new(HashMap::new());
    Arc::new(move |pool: &PoolName| {
        let mut running = running.lock().unwrap_or_else(PoisonError::into_inner);
        let start = || {
            let (sender, inbox) = mpsc::channel(INBOX);
            let worker = Worker::new(agent.clone(), pool.clone());
            tasks.spawn(worker.run(inbox, told.clone(), stop.clone()));
            sender
        };
        running.entry(pool.clone()).or_insert_with(start).clone()
    })
}
