// SPDX-License-Identifier: Apache-2.0
//! The work that one replica does for the whole cluster: it accepts pools, counts them, and collects the blocks and
//! addresses of gone nodes.
//!
//! Invariant: two replicas may do this work at once without harm. A Lease decides which of them does it. Each write
//! carries the version that was read, except the usage of a shared block.
//!
//! A slow pool only delays other pools. The Lease is renewed, and the orphan collector runs, in tasks of their own.

mod accept;
mod conflicts;
mod election;
mod few_blocks;
mod orphans;
mod probes;
mod release;
mod reservations;
mod share;
mod status;
mod usage;

use crate::context::Context;
use api::inputs::Source;
use api::requests::ReconcileError;
use api::supervisor::Supervisor;
use api::{AddressSpace, AddressState, BlockState, IpAddress, IpBlock, IpPool, NodeRef};
use futures::{FutureExt, StreamExt};
use k8s_openapi::api::core::v1::Node;
use kube::ResourceExt;
use kube::core::PartialObjectMeta;
use kube::runtime::reflector;
use kube::runtime::reflector::{ObjectRef, Store, store};
use kube::runtime::watcher::{self, Event};
use orphans::{Inputs, OrphanCollector};
use std::collections::HashMap;
use std::future::Ready;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::watch;
use tokio_util::sync::{CancellationToken, DropGuard};

/// The pause between handling requests of nodes and handling newer ones. Requests come in bursts.
const DEBOUNCE: Duration = Duration::from_millis(100);

/// What only the leader watches.
const SOURCES: [Source; 3] = [Source::Blocks, Source::Nodes, Source::Spaces];

/// The objects that only the leader watches.
struct Caches {
    blocks: Store<IpBlock>,
    nodes: Store<PartialObjectMeta<Node>>,
    spaces: Store<AddressSpace>,
    /// Ends the watches when the caches are dropped.
    _end: DropGuard,
}

impl Caches {
    /// Whether the watch has no such Node. That is only a reason to ask the API server. An empty cache is no evidence, so
    /// the result is then false.
    fn seems_gone(&self, node: &NodeRef) -> bool {
        self.nodes.get(&ObjectRef::new(&node.node)).is_none() && !self.nodes.is_empty()
    }
}

/// The leader's work.
pub(crate) struct Leader {
    context: Arc<Context>,
    supervisor: Supervisor,
    /// Whether this process has the Lease.
    elected: watch::Receiver<bool>,
    caches: Option<Arc<Caches>>,
    addresses: Vec<Arc<IpAddress>>,
    /// Input of the orphan collector.
    orphan_inputs: watch::Sender<Option<Inputs>>,
    /// Changes when the orphan collector has changed addresses.
    addresses_changed: watch::Receiver<()>,
    written_at: HashMap<String, Instant>,
    node_counts: few_blocks::NodeCounts,
    listed: Option<Instant>,
    /// The version of an address whose reservation seems obsolete, and since when this process has known it.
    obsolete: HashMap<String, (String, Instant)>,
    /// The `StatefulSet` with kept addresses that was read last: namespace and name.
    last_set: Option<(String, String)>,
    /// The addresses whose release nodes request, by name.
    releasing: HashMap<String, release::Observed>,
    share_requests: share::ShareRequests,
    /// Shared blocks without addresses, and since when.
    empty: HashMap<String, Instant>,
}

impl Leader {
    fn new(
        context: Arc<Context>,
        supervisor: Supervisor,
        elected: watch::Receiver<bool>,
        addresses_changed: watch::Receiver<()>,
    ) -> Self {
        Self {
            context,
            supervisor,
            elected,
            addresses_changed,
            orphan_inputs: watch::Sender::new(None),
            caches: None,
            addresses: Vec::new(),
            written_at: HashMap::new(),
            node_counts: few_blocks::NodeCounts::default(),
            listed: None,
            obsolete: HashMap::new(),
            last_set: None,
            releasing: HashMap::new(),
            share_requests: share::ShareRequests::default(),
            empty: HashMap::new(),
        }
    }

    /// Starts the election, the orphan collector and the leader, each as a task. They run until the supervisor stops. If one of
    /// them panics or ends before that, or if a watch ends while the process leads, the supervisor stops: otherwise the replica
    /// would keep its Lease without that work, and a leader with a stale cache would not notice.
    pub(crate) fn start(context: &Arc<Context>, supervisor: &Supervisor) {
        let stop = || supervisor.stop().clone();
        let (leads, elected) = watch::channel(false);
        let (changed_addresses, addresses_changed) = watch::channel(());
        let orphans = OrphanCollector::new(context.clone(), elected.clone(), changed_addresses);
        let leader = Self::new(context.clone(), supervisor.clone(), elected, addresses_changed);
        let inputs = leader.orphan_inputs.subscribe();
        let election = election::run(context.clone(), leads, stop());
        supervisor.spawn("leader election", election);
        supervisor.spawn("orphan collector", orphans.run(inputs, stop()));
        supervisor.spawn("leader", leader.run_loop(stop()));
    }

    async fn run_loop(mut self, stop: CancellationToken) {
        loop {
            if let Err(error) = Box::pin(self.round()).await
                && !stop.is_cancelled()
            {
                tracing::warn!(%error, "reconciling all pools failed; retrying");
            }
            if self.wait_for_round(&stop).await {
                break;
            }
        }
    }

    async fn round(&mut self) -> Result<(), ReconcileError> {
        let is_leader = *self.elected.borrow();
        self.context.metrics.set_leader(is_leader);
        if is_leader {
            return self.reconcile_all().await;
        }
        self.caches = None;
        self.context.inputs.release(&SOURCES);
        self.orphan_inputs.send_replace(None);
        self.obsolete.clear();
        self.releasing.clear();
        self.empty.clear();
        Ok(())
    }

    /// Waits for the next round. While this process leads, it answers requests of nodes meanwhile. Returns whether to
    /// stop.
    async fn wait_for_round(&mut self, stop: &CancellationToken) -> bool {
        let context = self.context.clone();
        let mut earliest = tokio::time::Instant::now();
        let next = earliest + context.config.daemon.reconcile_interval;
        loop {
            let news = async {
                tokio::time::sleep_until(earliest).await;
                context.demand.changed().await;
            };
            tokio::select! {
                () = stop.cancelled() => return true,
                () = tokio::time::sleep_until(next) => return false,
                () = news, if self.can_work() => {}
            }
            Box::pin(self.handle_requests()).await;
            earliest = tokio::time::Instant::now() + DEBOUNCE;
        }
    }

    async fn handle_requests(&mut self) {
        for pool in self.pools_with_requests() {
            if let Err(error) = self.handle_request(&pool).await {
                tracing::warn!(pool = pool.metadata.name, %error, "handling requests for addresses failed; retrying");
            }
        }
    }

    fn pools_with_requests(&self) -> Vec<Arc<IpPool>> {
        let has_requests = |pool: &Arc<IpPool>| {
            let is_live = pool.metadata.deletion_timestamp.is_none();
            let status = pool.status.as_ref();
            is_live && status.is_some_and(|status| status.open_requests().next().is_some())
        };
        self.context
            .pools
            .state()
            .into_iter()
            .filter(has_requests)
            .collect()
    }

    async fn reconcile_all(&mut self) -> Result<(), ReconcileError> {
        if self.caches.is_none() {
            self.caches = Some(Arc::new(self.watch().await));
        }
        if !self.can_work() {
            let problems = self.context.inputs.problems().join("; ");
            tracing::warn!(problems, "the leader waits until it has read its inputs");
            return Ok(());
        }
        let relist = self.is_list_old();
        if relist {
            let listed: Vec<IpAddress> = self.context.api.list("").await?;
            self.addresses = listed.into_iter().map(Arc::new).collect();
            self.listed = Some(Instant::now());
        } else {
            for pool in self.pools_with_requests() {
                self.relist_shared(&pool).await?;
            }
        }
        self.send_orphan_inputs();
        for pool in self.context.pools.state() {
            if let Err(error) = self.reconcile(&pool).await {
                tracing::warn!(pool = pool.metadata.name, %error, "reconciling a pool failed; retrying");
            }
        }
        if let Err(error) = self.reconcile_lost_shared().await {
            tracing::warn!(%error, "freeing the shared blocks of pools that are gone failed; retrying");
        }
        let unlisted = self.unlist().await;
        if relist {
            self.free_reservations().await?;
        }
        unlisted
    }

    /// Whether this process leads and has read what its decisions depend on: a missing object in an incomplete cache is no
    /// evidence that it does not exist. `/readyz` names what it has not read.
    fn can_work(&self) -> bool {
        let has_read = |source| self.context.inputs.has_read(source);
        self.caches.is_some() && has_read(Source::Pools) && SOURCES.into_iter().all(has_read)
    }

    /// Whether the addresses must be listed again.
    fn is_list_old(&mut self) -> bool {
        if self.addresses_changed.has_changed().unwrap_or(false) {
            self.addresses_changed.mark_unchanged();
            self.listed = None;
        }
        self.listed
            .is_none_or(|at| at.elapsed() >= self.context.config.daemon.report_interval)
    }

    /// Updates the input of the orphan collector.
    fn send_orphan_inputs(&self) {
        let Some(caches) = self.caches.clone() else { return };
        let all = self.addresses.iter();
        let orphaned = all.filter(|address| {
            address.spec.state != AddressState::Kept && caches.seems_gone(&address.spec.node)
        });
        let addresses = orphaned.cloned().collect();
        self.orphan_inputs
            .send_replace(Some(Inputs { caches, addresses }));
    }

    fn seems_gone(&self, node: &NodeRef) -> bool {
        self.caches.as_ref().is_some_and(|caches| caches.seems_gone(node))
    }

    /// Lists the addresses of a pool again if the pool has shared blocks: the list shows which of their addresses are
    /// free.
    async fn relist_shared(&mut self, pool: &IpPool) -> Result<(), ReconcileError> {
        let name = pool.name_any();
        let is_shared =
            |block: &Arc<IpBlock>| block.spec.pool == name && block.spec.state == BlockState::Shared;
        if self.blocks().iter().any(is_shared) {
            let listed: Vec<IpAddress> = self.context.api.list(&format!("spec.pool={name}")).await?;
            self.addresses.retain(|address| address.spec.pool != name);
            self.addresses.extend(listed.into_iter().map(Arc::new));
        }
        Ok(())
    }

    async fn watch(&self) -> Caches {
        self.context.inputs.need(&SOURCES);
        let ((blocks, writer), (nodes, node_writer)) = (store(), store());
        let (spaces, space_writer) = store();
        let term = self.supervisor.stop().child_token();
        let end = term.clone().drop_guard();
        let spawn = |task, watch| self.supervisor.spawn_until(term.clone(), task, watch);
        let clients = &self.context.clients;
        let stream = clients.watch::<IpBlock>(watcher::Config::default());
        let context = self.context.clone();
        let watch = reflector(writer, stream).for_each(move |event| {
            context.record_watch(Source::Blocks, &event);
            if let Ok(Event::Apply(block)) = &event
                && let Some(pool) = context.pools.get(&ObjectRef::new(&block.spec.pool))
            {
                context.demand.observe_block(block, &pool);
            }
            std::future::ready(())
        });
        spawn("watch of blocks", watch.boxed());
        let stream = clients.watch::<PartialObjectMeta<Node>>(watcher::Config::default());
        let watch = reflector(node_writer, stream).for_each(self.recorder(Source::Nodes));
        spawn("watch of nodes", watch.boxed());
        let stream = clients.watch::<AddressSpace>(watcher::Config::default());
        let watch = reflector(space_writer, stream).for_each(self.recorder(Source::Spaces));
        spawn("watch of address spaces", watch.boxed());
        let ready = async {
            let _ = blocks.wait_until_ready().await;
            let _ = nodes.wait_until_ready().await;
            let _ = spaces.wait_until_ready().await;
        };
        // A round does nothing until the caches are complete.
        let _ = tokio::time::timeout(Duration::from_secs(10), self.context.api.deadline().limit(ready)).await;
        Caches {
            blocks,
            nodes,
            spaces,
            _end: end,
        }
    }

    /// Returns a function that records the events of a watch.
    fn recorder<K>(&self, source: Source) -> impl FnMut(watcher::Result<Event<K>>) -> Ready<()> + use<K> {
        let context = self.context.clone();
        move |event| {
            context.record_watch(source, &event);
            std::future::ready(())
        }
    }

    /// The address spaces, from the watch.
    fn spaces(&self) -> Vec<Arc<AddressSpace>> {
        self.caches
            .as_ref()
            .map(|caches| caches.spaces.state())
            .unwrap_or_default()
    }

    fn blocks(&self) -> Vec<Arc<IpBlock>> {
        self.caches
            .as_ref()
            .map(|caches| caches.blocks.state())
            .unwrap_or_default()
    }
}

#[cfg(test)]
mod tests;
