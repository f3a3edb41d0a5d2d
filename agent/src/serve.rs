// SPDX-License-Identifier: Apache-2.0
//! The unix socket for plugins: one line of JSON as request, one as reply.
//!
//! Invariant: a client that is slow, silent or sends invalid data does not delay other clients. A client that sends invalid data
//! gets an error.

use crate::agent::Agent;
use crate::pool_reconciler::{Message, PluginRequest, Response, unknown_pool};
use api::convert::version_number;
use api::deadline::PLUGIN_LIMIT;
use api::inputs::Source;
use api::supervisor::Supervisor;
use common::cni::{Code, Error};
use ipam::agent::{LIMIT, MESSAGE_MAX, Reply, Request, Verb};
use ipam::pool::PoolName;
use kube::runtime::reflector::ObjectRef;
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::{Semaphore, mpsc, oneshot};
use tokio::time::{Instant, MissedTickBehavior};

/// The number of requests that are handled at the same time. Others wait in the socket's queue.
const MAX_REQUESTS: usize = 1024;

/// How long a connection may last. After [`LIMIT`] the plugin still gets an answer: a connection that the agent closes without one
/// looks like an agent that has died.
const CONNECTION_LIMIT: Duration = LIMIT.saturating_mul(2);

/// The part of a plugin's time that may pass while waiting for other nodes. The rest is enough for the plugin's next request.
const SHARING_WAIT: f64 = 0.6;

/// How often the agent checks for the pool while the first list of pools is not complete.
const POLL: Duration = Duration::from_millis(50);

/// How often a plugin request is repeated if no request for shared addresses ends meanwhile.
const RETRY_AFTER: Duration = Duration::from_secs(1);

/// Finds the reconciler of a pool, and starts one for a pool that has none.
pub(crate) type Reconcilers = Arc<dyn Fn(&PoolName) -> mpsc::Sender<Message> + Send + Sync>;

/// Creates the socket, for root alone. Replaces the socket of a dead agent. The node's lock ensures that no other agent is
/// running.
///
/// # Errors
/// Errors of the file system.
pub(crate) fn bind(path: &Path) -> io::Result<UnixListener> {
    if let Some(directory) = path.parent() {
        std::fs::create_dir_all(directory)?;
    }
    match std::fs::remove_file(path) {
        Err(e) if e.kind() != io::ErrorKind::NotFound => return Err(e),
        _ => {}
    }
    let listener = UnixListener::bind(path)?;
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o600))?;
    Ok(listener)
}

/// Accepts connections until `stop`. If the socket was removed meanwhile, for example by a tool that cleans `/run`, creates it
/// again: an agent that runs without its socket looks healthy to everything but plugins.
pub(crate) async fn run(
    mut listener: UnixListener,
    agent: Arc<Agent>,
    reconcilers: Reconcilers,
    supervisor: Supervisor,
) {
    let room = Arc::new(Semaphore::new(MAX_REQUESTS));
    let path = agent.config.socket.clone();
    let mut look = tokio::time::interval(agent.config.daemon.reconcile_interval);
    look.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        let Ok(permit) = room.clone().acquire_owned().await else {
            return;
        };
        let stream = tokio::select! {
            () = supervisor.stop().cancelled() => return,
            _ = look.tick() => {
                listener = recreate_if_removed(&path).unwrap_or(listener);
                continue;
            }
            accepted = listener.accept() => match accepted {
                Ok((stream, _)) => stream,
                Err(e) => {
                    tracing::warn!(error = %e, "accept on the plugin socket failed");
                    tokio::time::sleep(Duration::from_millis(100)).await;
                    continue;
                }
            },
        };
        let (agent, reconcilers) = (agent.clone(), reconcilers.clone());
        supervisor.spawn_brief("plugin request", async move {
            let _permit = permit;
            let connection = handle_connection(stream, &agent, &reconcilers);
            if let Err(e) = tokio::time::timeout(CONNECTION_LIMIT, connection).await {
                tracing::debug!(error = %e, "plugin connection timed out");
            }
        });
    }
}

/// Creates a new socket if the old one was removed.
fn recreate_if_removed(path: &Path) -> Option<UnixListener> {
    if path.exists() {
        return None;
    }
    let socket = path.display();
    match bind(path) {
        Ok(listener) => {
            tracing::warn!(%socket, "plugin socket was removed; created it again");
            Some(listener)
        }
        Err(e) => {
            tracing::warn!(%socket, error = %e, "creating the removed plugin socket failed");
            None
        }
    }
}

async fn handle_connection(stream: UnixStream, agent: &Agent, reconcilers: &Reconcilers) {
    let asked = Instant::now();
    let (reader, mut writer) = stream.into_split();
    let mut line = Vec::new();
    let limit = u64::try_from(MESSAGE_MAX).unwrap_or(u64::MAX);
    let read = BufReader::new(reader.take(limit))
        .read_until(b'\n', &mut line)
        .await;
    let reply = match read {
        Ok(0) | Err(_) => return,
        Ok(_) => match serde_json::from_slice::<Request>(&line) {
            Err(e) => {
                let msg =
                    format!("the agent cannot decode the request: {e}; are plugin and agent of one version?");
                Reply::refused(Error::new(Code::DECODE, msg))
            }
            Ok(request) => {
                let reply = in_time(asked, ask_reconciler(&request, asked, agent, reconcilers)).await;
                agent.metrics.answered_in(request.verb, asked.elapsed());
                reply
            }
        },
    };
    if let Ok(mut text) = serde_json::to_vec(&reply) {
        text.push(b'\n');
        // A client that does not wait for the reply is gone by now.
        let _ = writer.write_all(&text).await;
    }
}

/// The reply, or a refusal once [`LIMIT`] has passed since the request was `asked`. The reconciler then skips the request.
async fn in_time(asked: Instant, reply: impl Future<Output = Reply>) -> Reply {
    let reply = tokio::time::timeout_at(asked + LIMIT, reply).await;
    reply.unwrap_or_else(|_| {
        let msg = format!(
            "no answer within {} ms: the agent was busy with earlier requests; try again",
            LIMIT.as_millis()
        );
        Reply::refused(Error::new(Code::TRY_AGAIN, msg))
    })
}

/// Rejects a pool that neither the API server nor this node's files have. The name comes from a network, which tenants may write.
/// Each reconciler and each label of a metric lives as long as the process.
async fn reject_unknown(request: &Request, asked: Instant, agent: &Agent) -> Option<Reply> {
    let pool = &request.pool;
    // Releases that a DEL left may be all that this node has of a pool.
    let releases = request.verb == Verb::Release && agent.stores.pools().contains(pool);
    let is_known = || {
        let is_watched = agent.pools.get(&ObjectRef::new(pool.as_str())).is_some();
        releases || is_watched || agent.stores.has_file(pool)
    };
    let are_listed = || agent.inputs.has_read(Source::Pools);
    let error = match exists(is_known, are_listed, asked + PLUGIN_LIMIT).await {
        Some(true) => return None,
        Some(false) => unknown_pool(pool),
        None => {
            let why = agent.inputs.problems().join("; ");
            Error::new(Code::API_UNREACHABLE, format!("pool {pool}: {why}"))
        }
    };
    let reply = Reply::refused(error);
    agent.metrics.answered_unknown(request.verb, &reply);
    Some(reply)
}

/// Whether a pool exists. Waits for the first list of pools, until `limit` at most. `None`: there is no list yet.
async fn exists(is_known: impl Fn() -> bool, are_listed: impl Fn() -> bool, limit: Instant) -> Option<bool> {
    loop {
        // Read first: the list may be completed while the pool is looked up.
        let listed = are_listed();
        if is_known() {
            return Some(true);
        }
        if listed {
            return Some(false);
        }
        if Instant::now() >= limit {
            return None;
        }
        tokio::time::sleep(POLL).await;
    }
}

/// Gets the answer of the pool's reconciler. Repeats the request while the reconciler answers [`Response::RetryAfter`]. The reconciler itself does
/// not wait.
async fn ask_reconciler(
    request: &Request,
    asked: Instant,
    agent: &Agent,
    reconcilers: &Reconcilers,
) -> Reply {
    if let Some(refusal) = reject_unknown(request, asked, agent).await {
        return refusal;
    }
    let reconciler = reconcilers(&request.pool);
    let pool = agent.pools.get(&ObjectRef::new(request.pool.as_str()));
    let pool_version = pool.map_or(0, |pool| version_number(&*pool));
    let last = asked + request.within().mul_f64(SHARING_WAIT);
    loop {
        // Subscribed before the request is sent, so that the end of no such request is missed.
        let ends = agent.demand.ended();
        let (answer, receiver) = oneshot::channel();
        let question = PluginRequest {
            request: request.clone(),
            answer,
            asked,
            pool_version,
            waits: Instant::now() < last,
        };
        let sent = reconciler
            .send(Message::Request(Box::new(question)))
            .await
            .is_ok();
        match receiver.await {
            Ok(Response::Reply(reply)) if sent => return reply,
            Ok(Response::RetryAfter(pause)) if sent => {
                let news = async {
                    let _ = tokio::time::timeout(RETRY_AFTER, ends).await;
                    tokio::time::sleep(pause).await;
                };
                let _ = tokio::time::timeout_at(last, news).await;
            }
            _ => return Reply::refused(Error::new(Code::TRY_AGAIN, "the agent is stopping; try again")),
        }
    }
}

#[cfg(test)]
mod tests;
