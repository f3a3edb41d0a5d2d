// SPDX-License-Identifier: Apache-2.0
//! The work that one replica does for the whole cluster: it accepts pools, counts them, and collects the blocks and
//! addresses of gone nodes.
//!
//! Invariant: two replicas may do this work at once without harm. A Lease decides which of them does it, and each write
//! carries the version that was read.
//!
//! A slow pool only delays other pools. The Lease is renewed, and the orphan collector runs, in tasks of their own.

mod accept;
mod election;
mod fewer;
mod numbers;
mod orphans;
mod release;
mod share;
mod status;
mod sticky;

use crate::context::{Context, Failure};
use api::cluster::list;
use api::patience::{self, until_stopped};
use api::{AddressSpace, AddressState, BlockState, IpAddress, IpBlock, IpPool, NodeRef};
use futures::StreamExt;
use k8s_openapi::api::core::v1::Node;
use kube::core::PartialObjectMeta;
use kube::runtime::reflector::{ObjectRef, Store, store};
use kube::runtime::watcher::{self, Event, watcher};
use kube::runtime::{WatchStreamExt, reflector};
use kube::{Api, ResourceExt};
use orphans::{Orphans, Scene};
use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

/// The pause after requests of nodes were answered, before the controller handles new ones. Requests come in bursts.
const BREATH: Duration = Duration::from_millis(100);

/// The watches that only the leader has.
struct Sight {
    blocks: Store<IpBlock>,
    nodes: Store<PartialObjectMeta<Node>>,
    spaces: Store<AddressSpace>,
    _watches: JoinSet<()>,
}

impl Sight {
    /// Whether the watch has no such Node. That is only a reason to ask the API server. An empty cache is no evidence, so
    /// the result is then false.
    fn seems_gone(&self, node: &NodeRef) -> bool {
        self.nodes.get(&ObjectRef::new(&node.node)).is_none() && !self.nodes.is_empty()
    }
}

/// The leader's work.
pub(crate) struct Keeper {
    context: Arc<Context>,
    /// Whether this process has the Lease.
    elected: watch::Receiver<bool>,
    sight: Option<Arc<Sight>>,
    addresses: Vec<Arc<IpAddress>>,
    /// Input of the orphan collector.
    scene: watch::Sender<Option<Scene>>,
    /// Changes when the orphan collector has changed addresses.
    swept: watch::Receiver<()>,
    told: HashMap<String, Instant>,
    selected: fewer::Selected,
    listed: Option<Instant>,
    /// The version of an address whose reservation seems obsolete, and since when this process has known it.
    forsaken: HashMap<String, (String, Instant)>,
    /// The version of an address whose release a node requests, and since when this process has known it.
    passing: HashMap<String, (String, Instant)>,
    asked: share::Asked,
    /// Shared blocks without addresses, and since when.
    empty: HashMap<String, Instant>,
}

impl Keeper {
    fn new(context: Arc<Context>, elected: watch::Receiver<bool>, swept: watch::Receiver<()>) -> Self {
        Self {
            context,
            elected,
            swept,
            scene: watch::Sender::new(None),
            sight: None,
            addresses: Vec::new(),
            told: HashMap::new(),
            selected: fewer::Selected::default(),
            listed: None,
            forsaken: HashMap::new(),
            passing: HashMap::new(),
            asked: share::Asked::default(),
            empty: HashMap::new(),
        }
    }

    /// Works while this process holds the Lease, until `stop`.
    pub(crate) async fn run(context: Arc<Context>, stop: CancellationToken) {
        let (says, elected) = watch::channel(false);
        let (sweeps, swept) = watch::channel(());
        let orphans = Orphans::new(context.clone(), elected.clone(), sweeps);
        let keeper = Self::new(context.clone(), elected, swept);
        let scene = keeper.scene.subscribe();
        tokio::join!(
            Box::pin(election::run(&context, says, &stop)),
            Box::pin(orphans.run(scene, stop.clone())),
            Box::pin(keeper.work_until(stop.clone())),
        );
    }

    async fn work_until(mut self, stop: CancellationToken) {
        loop {
            if let Err(failure) = until_stopped(&stop, Box::pin(self.round())).await
                && !stop.is_cancelled()
            {
                tracing::warn!(error = %failure, "the keeper's work is not done");
            }
            if self.heed_wishes(&stop).await {
                break;
            }
        }
    }

    async fn round(&mut self) -> Result<(), Failure> {
        let is_keeper = *self.elected.borrow();
        self.context.metrics.leads(is_keeper);
        if is_keeper {
            return self.work().await;
        }
        self.sight = None;
        self.scene.send_replace(None);
        self.forsaken.clear();
        self.passing.clear();
        self.empty.clear();
        Ok(())
    }

    /// Waits for the next round. While this process leads, it answers requests of nodes meanwhile. Returns whether to
    /// stop.
    async fn heed_wishes(&mut self, stop: &CancellationToken) -> bool {
        let context = self.context.clone();
        let mut breath = tokio::time::Instant::now();
        let next = breath + context.config.tick;
        loop {
            let news = async {
                tokio::time::sleep_until(breath).await;
                context.wishes.news().await;
            };
            tokio::select! {
                () = stop.cancelled() => return true,
                () = tokio::time::sleep_until(next) => return false,
                () = news, if self.sight.is_some() => {}
            }
            until_stopped(stop, Box::pin(self.answer_wishes())).await;
            breath = tokio::time::Instant::now() + BREATH;
        }
    }

    async fn answer_wishes(&mut self) {
        for pool in self.wanted_pools() {
            if let Err(failure) = self.answer_wish(&pool).await {
                tracing::warn!(pool = pool.metadata.name, error = %failure, "a wish for addresses is not answered");
            }
        }
    }

    fn wanted_pools(&self) -> Vec<Arc<IpPool>> {
        let is_wanted = |pool: &Arc<IpPool>| {
            let lives = pool.metadata.deletion_timestamp.is_none();
            let status = pool.status.as_ref();
            lives && status.is_some_and(|status| status.asked().next().is_some())
        };
        self.context.pools.state().into_iter().filter(is_wanted).collect()
    }

    async fn work(&mut self) -> Result<(), Failure> {
        if self.sight.is_none() {
            self.sight = Some(Arc::new(self.watch().await));
        }
        let list_anew = self.is_list_old();
        if list_anew {
            let there: Vec<IpAddress> = list(&self.context.cluster.addresses, "").await?;
            self.addresses = there.into_iter().map(Arc::new).collect();
            self.listed = Some(Instant::now());
        } else {
            for pool in self.wanted_pools() {
                self.look_again(&pool).await?;
            }
        }
        self.set_scene();
        for pool in self.context.pools.state() {
            if let Err(failure) = self.keep(&pool).await {
                tracing::warn!(pool = pool.metadata.name, error = %failure, "the pool is not kept");
            }
        }
        let unlisted = self.unlist().await;
        if list_anew {
            self.end_kept().await?;
        }
        unlisted
    }

    /// Whether the addresses must be listed again.
    fn is_list_old(&mut self) -> bool {
        if self.swept.has_changed().unwrap_or(false) {
            self.swept.mark_unchanged();
            self.listed = None;
        }
        self.listed
            .is_none_or(|at| at.elapsed() >= self.context.config.mirror)
    }

    /// Updates the input of the orphan collector.
    fn set_scene(&self) {
        let Some(sight) = self.sight.clone() else { return };
        let all = self.addresses.iter();
        let left = all.filter(|address| {
            address.spec.state != AddressState::Kept && sight.seems_gone(&address.spec.node)
        });
        let addresses = left.cloned().collect();
        self.scene.send_replace(Some(Scene { sight, addresses }));
    }

    fn seems_gone(&self, node: &NodeRef) -> bool {
        self.sight.as_ref().is_some_and(|sight| sight.seems_gone(node))
    }

    /// Lists the addresses of a pool again if the pool has shared blocks: the list shows which of their addresses are
    /// free.
    async fn look_again(&mut self, pool: &IpPool) -> Result<(), Failure> {
        let name = pool.name_any();
        let is_shared =
            |block: &Arc<IpBlock>| block.spec.pool == name && block.spec.state == BlockState::Shared;
        if self.blocks().iter().any(is_shared) {
            let there: Vec<IpAddress> =
                list(&self.context.cluster.addresses, &format!("spec.pool={name}")).await?;
            self.addresses.retain(|address| address.spec.pool != name);
            self.addresses.extend(there.into_iter().map(Arc::new));
        }
        Ok(())
    }

    async fn watch(&self) -> Sight {
        let ((blocks, writer), (nodes, node_writer)) = (store(), store());
        let (spaces, space_writer) = store();
        let mut watches = JoinSet::new();
        let stream =
            watcher(self.context.cluster.blocks.clone(), watcher::Config::default()).default_backoff();
        let context = self.context.clone();
        watches.spawn(reflector(writer, stream).for_each(move |event| {
            if let Ok(Event::Apply(block)) = &event
                && let Some(pool) = context.pools.get(&ObjectRef::new(&block.spec.pool))
            {
                context.wishes.hear_block(block, &pool);
            }
            std::future::ready(())
        }));
        let stream = watcher(
            Api::<PartialObjectMeta<Node>>::all(self.context.cluster.client.clone()),
            watcher::Config::default(),
        )
        .default_backoff();
        watches.spawn(reflector(node_writer, stream).for_each(async |_| {}));
        let stream =
            watcher(self.context.cluster.spaces.clone(), watcher::Config::default()).default_backoff();
        watches.spawn(reflector(space_writer, stream).for_each(async |_| {}));
        let ready = async {
            let _ = blocks.wait_until_ready().await;
            let _ = nodes.wait_until_ready().await;
            let _ = spaces.wait_until_ready().await;
        };
        // If the caches are not ready in time, this round works with what they have, and the next round looks again.
        let _ = tokio::time::timeout(Duration::from_secs(10), patience::limited(ready)).await;
        Sight {
            blocks,
            nodes,
            spaces,
            _watches: watches,
        }
    }

    /// The address spaces, from the watch.
    fn spaces(&self) -> Vec<Arc<AddressSpace>> {
        self.sight
            .as_ref()
            .map(|sight| sight.spaces.state())
            .unwrap_or_default()
    }

    fn blocks(&self) -> Vec<Arc<IpBlock>> {
        self.sight
            .as_ref()
            .map(|sight| sight.blocks.state())
            .unwrap_or_default()
    }
}
