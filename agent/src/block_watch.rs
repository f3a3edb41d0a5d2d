// SPDX-License-Identifier: Apache-2.0
//! The blocks with this node's name: one list, then one watch per block.
//!
//! A single watch by owner would be simpler, but was too expensive with thousands of nodes: the API server passes each change of
//! any custom object to every watch that selects by a field, and nearly all of them discard it. A watch of one name receives only
//! events of that name. So the blocks are listed by owner once, and each then gets a watch of its own. A block that this node
//! claims later is watched from the moment of its CREATE. No other process creates blocks for this node, but a request that timed
//! out may still take effect. So all blocks are listed again from time to time.
//!
//! The reported state may be old, as with any watch: a list is only as new as the newest block that is known. Code that acts upon
//! it reads again or uses a precondition (`pool_reconciler::reconcile_block`).

use crate::agent::Agent;
use api::IpBlock;
use api::client::{Clients, WatchResult};
use api::convert::version_number;
use api::deadline::Deadline;
use api::inputs::Source;
use api::requests::ApiError;
use common::cni::error::causes;
use futures::future::{Fuse, FusedFuture};
use futures::stream::{AbortHandle, BoxStream, SelectAll, abortable};
use futures::{FutureExt, StreamExt};
use kube::ResourceExt;
use kube::runtime::reflector::store::Writer;
use kube::runtime::reflector::{ObjectRef, Store};
use kube::runtime::watcher::{self, Event};
use std::collections::{BTreeMap, BTreeSet};
use std::pin::pin;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::mpsc;

/// The number of watches on the connection that requests also use.
///
/// The API server allows 100 streams on a connection (`k8s.io/apiserver`, `pkg/server/secure_serving.go`:
/// `MaxConcurrentStreams`), and each watch is a stream for minutes. If all streams are in use, hyper opens no second connection
/// and sends no request at all.
const WITH_REQUESTS: usize = 40;

/// The number of further watches, on a connection of their own that is opened for the first of them. A few streams stay free for
/// watches that restart.
const OWN_CONNECTION: usize = 90;

/// The maximum number of watches of one agent. Further blocks are listed every [`LIST_UNWATCHED`].
const MAX_WATCHES: usize = WITH_REQUESTS + OWN_CONNECTION;

/// The shortest time between two lists for blocks without a watch.
const LIST_UNWATCHED: Duration = Duration::from_secs(60);

/// How often the agent looks for watches of deleted blocks.
const SWEEP: Duration = Duration::from_secs(30);

/// The time between two lists of all blocks, in a small cluster and in a large one. For each list the API server examines every
/// block.
const LIST_ALL: (Duration, Duration) = (Duration::from_secs(600), Duration::from_secs(3600));

/// The approximate number of lists per second of all agents together, in a cluster with one block per node.
const LISTS_A_SECOND: u64 = 5;

/// How long a block may be missing before its watch ends: longer than the API server may take for a request.
const MISSING_FOR: Duration = Duration::from_secs(120);

/// Watches blocks.
pub(crate) struct BlockWatcher {
    names: mpsc::UnboundedReceiver<String>,
    writer: Writer<IpBlock>,
    store: Store<IpBlock>,
    watches: BTreeMap<String, Watch>,
    events: SelectAll<BoxStream<'static, WatchEvent>>,
}

/// One watch.
struct Watch {
    /// Since when this node owns, or may own, the block.
    since: Instant,
    /// Whether the block existed when the watch began or restarted.
    there: bool,
    /// The last event reported that the block does not exist, or that another node owns it.
    gone: bool,
    connection: Connection,
    stop: AbortHandle,
}

/// The connection of a watch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Connection {
    /// The connection of requests.
    Requests,
    /// The connection for watches alone.
    Watches,
}

/// The connection for another watch in addition to `watches`; none if this node has the maximum number of watches.
fn free_connection<'w>(watches: impl Iterator<Item = &'w Watch>) -> Option<Connection> {
    let (mut shared, mut apart) = (0, 0);
    for watch in watches {
        match watch.connection {
            Connection::Requests => shared += 1,
            Connection::Watches => apart += 1,
        }
    }
    if shared < WITH_REQUESTS {
        Some(Connection::Requests)
    } else {
        (apart < OWN_CONNECTION).then_some(Connection::Watches)
    }
}

/// An event of a watch, with the name of its block.
type WatchEvent = (String, WatchResult<IpBlock>);

/// The meaning of an event for this node.
#[derive(Debug, PartialEq)]
enum Meaning {
    Nothing,
    /// The event has the block's current state.
    Current,
    /// The block does not exist or belongs to another node.
    Gone,
}

impl Watch {
    /// Whether the watch is not needed any more. A CREATE that was sent within the last [`MISSING_FOR`] may still take effect.
    fn is_over(&self, now: Instant) -> bool {
        self.gone && now.saturating_duration_since(self.since) >= MISSING_FOR
    }

    fn meaning(&mut self, event: &Event<IpBlock>, node: &str) -> Meaning {
        let meaning = self.meaning_of(event, node);
        if meaning != Meaning::Nothing {
            self.gone = meaning == Meaning::Gone;
        }
        meaning
    }

    fn meaning_of(&mut self, event: &Event<IpBlock>, node: &str) -> Meaning {
        match event {
            Event::Init => {
                self.there = false;
                Meaning::Nothing
            }
            Event::InitDone if self.there => Meaning::Nothing,
            Event::InitDone | Event::Delete(_) => Meaning::Gone,
            Event::InitApply(block) | Event::Apply(block) => {
                self.there = true;
                if block.spec.owner.node == node {
                    Meaning::Current
                } else {
                    Meaning::Gone
                }
            }
        }
    }
}

impl BlockWatcher {
    /// A watcher without blocks, the sender of names of blocks to watch, and the store into which the watcher writes.
    pub(crate) fn new() -> (Self, mpsc::UnboundedSender<String>, Store<IpBlock>) {
        let (sender, names) = mpsc::unbounded_channel();
        let writer = Writer::default();
        let store = writer.as_reader();
        let block_watcher = Self {
            names,
            writer,
            store: store.clone(),
            watches: BTreeMap::new(),
            events: SelectAll::new(),
        };
        (block_watcher, sender, store)
    }

    /// Watches for ever, and calls `changed` with each block that has changed.
    pub(crate) async fn run(mut self, agent: Arc<Agent>, changed: impl Fn(&IpBlock)) {
        let mut due = Due::in_about(Duration::ZERO);
        let mut first = true;
        // A list may take long; events of watches are handled meanwhile.
        let mut listing = pin!(Fuse::terminated());
        let mut sweep = tokio::time::interval(SWEEP);
        loop {
            tokio::select! {
                () = tokio::time::sleep_until(self.next_list(&agent, &due)), if listing.is_terminated() => {
                    // The cluster may have grown meanwhile.
                    if self.next_list(&agent, &due) <= tokio::time::Instant::now() {
                        listing.set(list_blocks(&agent, self.store.state()).fuse());
                    }
                }
                all = &mut listing => match all {
                    Ok(all) => {
                        agent.inputs.read(Source::BlocksOfNode);
                        self.handle_list(&agent, all, first, &changed);
                        (first, due) = (false, Due::after_period());
                    }
                    Err(error) => {
                        agent.record_read_failure(Source::BlocksOfNode, &error);
                        tracing::debug!(%error, "list of blocks failed");
                        let pause = due.pause.unwrap_or_default() * 2;
                        due = Due::in_about(pause.clamp(Duration::from_secs(1), Duration::from_secs(30)));
                    }
                },
                Some(name) = self.names.recv() => self.watch(&agent, &name),
                Some((name, event)) = self.events.next(), if !self.events.is_empty() => match event {
                    Ok(event) => self.handle_event(&agent, &name, event, &changed),
                    Err(e) => {
                        agent.record_read_failure(Source::BlocksOfNode, &causes(&e));
                        tracing::debug!(block = name, error = %e, "watch of a block failed; restarting it");
                    }
                },
                _ = sweep.tick() => self.sweep(&agent, Instant::now()),
            }
        }
    }

    fn next_list(&self, agent: &Agent, due: &Due) -> tokio::time::Instant {
        due.at(self.period(agent.known_blocks()))
    }

    fn period(&self, blocks: u64) -> Duration {
        let by_size = Duration::from_secs(blocks / LISTS_A_SECOND);
        if self.store.state().len() > MAX_WATCHES {
            return by_size.clamp(LIST_UNWATCHED, LIST_ALL.1);
        }
        by_size.clamp(LIST_ALL.0, LIST_ALL.1)
    }

    /// Handles a list: watches the listed blocks, and removes those that are gone.
    fn handle_list(&mut self, agent: &Arc<Agent>, all: BlockList, first: bool, changed: &impl Fn(&IpBlock)) {
        let BlockList {
            begun,
            before,
            blocks,
        } = all;
        let names: BTreeSet<String> = blocks.iter().map(ResourceExt::name_any).collect();
        if first {
            self.writer.apply_watcher_event(&Event::Init);
            for block in &blocks {
                self.writer.apply_watcher_event(&Event::InitApply(block.clone()));
            }
            self.writer.apply_watcher_event(&Event::InitDone);
            blocks.iter().for_each(changed);
        }
        self.watches.retain(|name, watch| {
            let keep = names.contains(name) || begun.saturating_duration_since(watch.since) < MISSING_FOR;
            if !keep {
                watch.stop.abort();
            }
            keep
        });
        for block in blocks {
            let name = block.name_any();
            self.watch(agent, &name);
            if !self.watches.contains_key(&name) {
                self.apply(block, changed);
            }
        }
        for block in before {
            let name = block.name_any();
            if !names.contains(&name) && !self.watches.contains_key(&name) {
                self.remove(&name, changed);
            }
        }
    }

    fn watch(&mut self, agent: &Arc<Agent>, name: &str) {
        if let Some(watch) = self.watches.get_mut(name) {
            watch.since = Instant::now();
            return;
        }
        let Some(connection) = free_connection(self.watches.values()) else {
            return;
        };
        let (events, stop) = abortable(watch_one(&agent.clients, connection, name.to_owned()));
        self.events.push(events.boxed());
        let watch = Watch {
            since: Instant::now(),
            there: false,
            gone: false,
            connection,
            stop,
        };
        self.watches.insert(name.to_owned(), watch);
    }

    /// Ends the watches of deleted blocks, and starts watches that had no room before.
    fn sweep(&mut self, agent: &Arc<Agent>, now: Instant) {
        self.watches.retain(|_, watch| {
            let over = watch.is_over(now);
            if over {
                watch.stop.abort();
            }
            !over
        });
        for block in self.store.state() {
            self.watch_known(agent, &block.name_any());
        }
    }

    /// Starts the watch of a block that this node owns, unless there is one.
    fn watch_known(&mut self, agent: &Arc<Agent>, name: &str) {
        if !self.watches.contains_key(name) {
            self.watch(agent, name);
        }
    }

    fn handle_event(
        &mut self,
        agent: &Agent,
        name: &str,
        event: Event<IpBlock>,
        changed: &impl Fn(&IpBlock),
    ) {
        // Events that a watch sent before it was stopped may arrive afterwards.
        let Some(watch) = self.watches.get_mut(name) else {
            return;
        };
        match (watch.meaning(&event, &agent.config.node), event) {
            (Meaning::Current, Event::InitApply(block) | Event::Apply(block)) => self.apply(block, changed),
            (Meaning::Gone, _) => {
                if watch.is_over(Instant::now()) {
                    watch.stop.abort();
                    self.watches.remove(name);
                }
                self.remove(name, changed);
            }
            _ => {}
        }
    }

    fn apply(&mut self, block: IpBlock, changed: &impl Fn(&IpBlock)) {
        let event = Event::Apply(block);
        self.writer.apply_watcher_event(&event);
        if let Event::Apply(block) = event {
            changed(&block);
        }
    }

    fn remove(&mut self, name: &str, changed: &impl Fn(&IpBlock)) {
        if let Some(block) = self.store.get(&ObjectRef::new(name)) {
            self.writer.apply_watcher_event(&Event::Delete((*block).clone()));
            changed(&block);
        }
    }
}

/// Watches one block.
fn watch_one(clients: &Clients, connection: Connection, name: String) -> BoxStream<'static, WatchEvent> {
    let this = watcher::Config::default().fields(&format!("metadata.name={name}"));
    let events = match connection {
        Connection::Requests => clients.watch(this).boxed(),
        Connection::Watches => clients.watch_apart(this).boxed(),
    };
    events.map(move |event| (name.clone(), event)).boxed()
}

/// The result of a list.
struct BlockList {
    begun: Instant,
    /// The blocks that were known before.
    before: Vec<Arc<IpBlock>>,
    blocks: Vec<IpBlock>,
}

/// Lists all blocks of this node's name.
async fn list_blocks(agent: &Agent, before: Vec<Arc<IpBlock>>) -> Result<BlockList, ApiError> {
    let begun = Instant::now();
    let fields = format!("spec.owner.node={}", agent.config.node);
    // With at least this version, the list lacks a known block only if the block is gone.
    let newest = before
        .iter()
        .map(|block| version_number(&**block))
        .max()
        .unwrap_or_default();
    let api = agent.clients.requests(Deadline::background());
    Ok(BlockList {
        begun,
        before,
        blocks: api.list_cached(&fields, newest).await?,
    })
}

/// When the blocks are listed next. The random share keeps agents that started together from listing together.
struct Due {
    last: tokio::time::Instant,
    share: f64,
    /// The pause, if it is shorter than the period for the size of the cluster.
    pause: Option<Duration>,
}

impl Due {
    fn after_period() -> Self {
        Self {
            last: tokio::time::Instant::now(),
            share: 0.5 + fastrand::f64(),
            pause: None,
        }
    }

    fn in_about(pause: Duration) -> Self {
        Self {
            pause: Some(pause),
            ..Self::after_period()
        }
    }

    fn at(&self, period: Duration) -> tokio::time::Instant {
        self.last + self.pause.unwrap_or(period).mul_f64(self.share)
    }
}

#[cfg(test)]
mod tests;
