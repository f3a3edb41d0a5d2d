// SPDX-License-Identifier: Apache-2.0
//! Ends what gone nodes have left, beside the keeper's other work: where thousands of nodes are gone, pools are kept all the same.
//!
//! Holds always: a node is looked at after everything was read that the look is to judge, and what follows is written with the version
//! that was read. So one look serves several objects, and a write that comes some time after it is a request that comes late, of
//! which the model in `agent/block` has every one.

mod left;

use super::Sight;
use crate::context::{Context, Failure};
use api::cluster::{Trouble, Written, swap};
use api::object::{changed, seen};
use api::patience::until_stopped;
use api::{AddressSpace, IpAddress, IpBlock, NodeRef};
use block::Phase;
use block::orphan::{NodeSight, Verdict, Watched, judge};
use futures::future::join_all;
use kube::ResourceExt;
use kube::runtime::reflector::ObjectRef;
use left::Left;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Instant;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

/// Objects that are judged by the same looks and written at the same time. So no look is older than one request.
const AT_ONCE: usize = 16;

/// What there is to go by.
#[derive(Clone)]
pub(super) struct Scene {
    pub(super) sight: Arc<Sight>,
    /// The addresses of nodes that seem gone.
    pub(super) addresses: Vec<Arc<IpAddress>>,
}

/// Ends what gone nodes have left, while this agent is the keeper.
pub(super) struct Orphans {
    context: Arc<Context>,
    elected: watch::Receiver<bool>,
    /// The version of an orphan, and since when this process has seen it.
    watched: HashMap<String, (String, Instant)>,
    /// The version of what this process has changed or deleted since, and has not been told of yet.
    past: HashMap<String, String>,
    /// The node at which the API server was silent.
    silent_at: Option<String>,
    /// Addresses were changed since that was told.
    has_changed: bool,
    /// Tells of addresses that were changed.
    sweeps: watch::Sender<()>,
}

/// What became of one object.
enum Done {
    /// Nothing, now.
    Nothing,
    /// It is watched from now on.
    Watched,
    /// It is marked, and watched in this version.
    Marked(String),
    /// It is gone, or was changed by somebody else. True if it was this process.
    Ended(bool),
}

impl Orphans {
    pub(super) fn new(
        context: Arc<Context>,
        elected: watch::Receiver<bool>,
        sweeps: watch::Sender<()>,
    ) -> Self {
        Self {
            context,
            elected,
            watched: HashMap::new(),
            past: HashMap::new(),
            silent_at: None,
            has_changed: false,
            sweeps,
        }
    }

    /// Works whenever there is a scene, until `stop`.
    pub(super) async fn run(mut self, mut scenes: watch::Receiver<Option<Scene>>, stop: CancellationToken) {
        loop {
            let scene = scenes.borrow_and_update().clone();
            let is_keeper = scene.is_some();
            match scene {
                None => (self.watched, self.past) = Default::default(),
                Some(scene) => {
                    if let Err(failure) = until_stopped(&stop, Box::pin(self.sweep(&scene))).await
                        && !stop.is_cancelled()
                    {
                        tracing::warn!(error = %failure, "what gone nodes have left is not ended");
                    }
                    if std::mem::take(&mut self.has_changed) {
                        self.sweeps.send_replace(());
                    }
                }
            }
            tokio::select! {
                () = stop.cancelled() => return,
                () = tokio::time::sleep(self.context.config.tick), if is_keeper => {}
                told = scenes.changed(), if !is_keeper => if told.is_err() {
                    return;
                },
            }
        }
    }

    /// Looks at everything that gone nodes have left, once.
    async fn sweep(&mut self, scene: &Scene) -> Result<(), Failure> {
        let mut left = Left::all(scene);
        self.forget(scene, &left);
        self.welcome(scene).await;
        left.retain(|left| self.is_due(left));
        // Whoever comes after a node about which the API server is silent waits for that only once.
        if let Some(node) = self.silent_at.take() {
            let before = left.partition_point(|left| left.node().node <= node);
            left.rotate_left(before);
        }
        for some in left.chunks(AT_ONCE) {
            if !*self.elected.borrow() {
                break;
            }
            if let Err(silence) = self.end(scene, some).await {
                self.silent_at = some.last().map(|left| left.node().node.clone());
                return Err(silence);
            }
            self.welcome(scene).await;
        }
        Ok(())
    }

    /// Forgets what is there no more, and addresses whose nodes are back.
    fn forget(&mut self, scene: &Scene, left: &[Left]) {
        let told: HashMap<String, String> = left.iter().map(|left| (left.name(), left.version())).collect();
        let block = |name: &str| scene.sight.blocks.get(&ObjectRef::new(name));
        self.watched
            .retain(|name, _| told.contains_key(name) || block(name).is_some());
        self.past.retain(|name, past| {
            let told = told.get(name).cloned();
            told.or_else(|| block(name)?.resource_version()).as_ref() == Some(past)
        });
    }

    fn watched(&self, name: &str) -> Option<Watched> {
        self.watched.get(name).map(|(version, since)| Watched {
            version: version.clone(),
            unchanged: since.elapsed(),
        })
    }

    /// Whether something may be to be done. While an orphan is only waited for, nothing is asked.
    fn is_due(&self, left: &Left) -> bool {
        let (name, version) = (left.name(), left.version());
        let quarantine = left.waits(&self.context.config);
        let waits = |watched: Watched| {
            watched.version == version && quarantine.is_none_or(|quarantine| watched.unchanged < quarantine)
        };
        match left.seen().phase {
            Phase::Shared => false,
            Phase::Orphaned if self.watched(&name).is_some_and(waits) => false,
            _ => self.past.get(&name) != Some(&version),
        }
    }

    /// A node that comes back and goes again has a quarantine anew. Whoever waits for one of its blocks has perhaps not seen it
    /// come back, but sees a new version.
    async fn welcome(&mut self, scene: &Scene) {
        let there = |name: &String| scene.sight.blocks.get(&ObjectRef::new(name));
        let is_back = |block: &Arc<IpBlock>| !scene.sight.seems_gone(&block.spec.owner);
        // One that is not told as it is now comes next time.
        let is_told =
            |block: &Arc<IpBlock>| self.past.get(&block.name_any()) != block.resource_version().as_ref();
        let blocks = self.watched.keys().filter_map(there);
        let back: Vec<Arc<IpBlock>> = blocks.filter(is_back).filter(is_told).collect();
        for some in back.chunks(AT_ONCE) {
            let renewed = join_all(some.iter().map(|block| self.renew(block))).await;
            let mut is_silent = false;
            for (block, renewed) in some.iter().zip(renewed) {
                let name = block.name_any();
                match renewed {
                    Ok(true) => drop(self.watched.remove(&name)),
                    Ok(false) => {}
                    Err(trouble) => {
                        tracing::warn!(block = name, error = %trouble, "the quarantine of the block does not begin anew yet");
                        is_silent |= trouble.is_silence();
                    }
                }
            }
            if is_silent {
                break;
            }
        }
    }

    /// Gives an orphan a new version. Returns whether there is nothing more to be done.
    async fn renew(&self, block: &IpBlock) -> Result<bool, Trouble> {
        let seen = seen(block);
        if seen.phase != Phase::Orphaned {
            return Ok(true);
        }
        let again = changed(block, &seen, &self.context.config.identity);
        let written = swap(&self.context.cluster.blocks, &again).await?;
        let is_done = matches!(written, Written::Done(_));
        if is_done {
            tracing::info!(
                block = block.name_any(),
                node = block.spec.owner.node,
                "the node of the block is back: its quarantine begins anew if it goes again"
            );
        }
        Ok(is_done)
    }

    /// Marks and ends some of it.
    ///
    /// # Errors
    /// [`Failure`] if the API server is silent. What it refuses is logged.
    async fn end(&mut self, scene: &Scene, some: &[Left]) -> Result<(), Failure> {
        // Before the looks.
        let known: Vec<Option<Watched>> = some.iter().map(|left| self.watched(&left.name())).collect();
        let (sights, mut end) = self.look(some.iter().map(Left::node)).await;
        let mut judged: Vec<(&Left, Verdict)> = some
            .iter()
            .zip(&known)
            .filter_map(|(left, watched)| {
                let sight = sights.get(&left.node().node)?;
                let quarantine = left.quarantine(&self.context.config);
                let (seen, in_use, version) = (left.seen(), left.in_use(), left.version());
                let verdict = judge(&seen, in_use, &version, sight, watched.as_ref(), quarantine);
                Some((left, verdict))
            })
            .collect();
        let acts = |verdict: &Verdict| matches!(verdict, Verdict::Orphan | Verdict::End);
        let about = judged.iter().filter(|(_, verdict)| acts(verdict));
        let pools: BTreeSet<&str> = about.filter_map(|(left, _)| left.pool_of_block()).collect();
        if !self.ask_for_probes(scene, &pools).await? {
            // Another process writes the address spaces; the next round looks again.
            judged.retain(|(left, verdict)| left.pool_of_block().is_none() || !acts(verdict));
        }
        let writes = judged.iter().map(|(left, verdict)| self.write(left, *verdict));
        let written = join_all(writes).await;
        for ((left, _), done) in judged.iter().zip(written) {
            match done {
                Ok(done) => self.note(left, done),
                Err(trouble) => end = end.and(complain(&left.node().node, trouble.into())),
            }
        }
        end
    }

    /// Has nodes probe the addresses of blocks of `pools` that they claim from now on. Returns whether the address spaces say so.
    ///
    /// Invariant: an address space says so before a block of the pool is marked as `Orphaned` or deleted, and nodes read it after
    /// each claim.
    async fn ask_for_probes(&self, scene: &Scene, pools: &BTreeSet<&str>) -> Result<bool, Trouble> {
        for space in scene.sight.spaces.state() {
            let mut wanted = AddressSpace::clone(&space);
            let listed = wanted.spec.pools.iter_mut();
            for listed in listed.filter(|listed| pools.contains(listed.name.as_str())) {
                listed.probe = true;
            }
            if wanted != *space && swap(&self.context.cluster.spaces, &wanted).await? == Written::Late {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// What there is of these nodes, each read once and now; and whether the API server is silent about one.
    async fn look(
        &self,
        nodes: impl Iterator<Item = &NodeRef>,
    ) -> (HashMap<String, NodeSight>, Result<(), Failure>) {
        let nodes: BTreeMap<&str, &NodeRef> = nodes.map(|node| (node.node.as_str(), node)).collect();
        let looks = join_all(nodes.values().map(|node| self.context.cluster.sight_of(node))).await;
        let (mut sights, mut end) = (HashMap::new(), Ok(()));
        for (node, look) in nodes.keys().zip(looks) {
            match look {
                Ok(sight) => {
                    sights.insert((*node).to_owned(), sight);
                }
                Err(failure) => end = end.and(complain(node, failure.into())),
            }
        }
        (sights, end)
    }

    async fn write(&self, left: &Left, verdict: Verdict) -> Result<Done, Trouble> {
        Ok(match verdict {
            Verdict::Leave | Verdict::Hold => Done::Nothing,
            Verdict::Watch => Done::Watched,
            Verdict::Orphan => match left.mark(&self.context).await? {
                Written::Done(version) => Done::Marked(version),
                Written::Late => Done::Nothing,
            },
            Verdict::End => Done::Ended(left.end(&self.context).await? == Written::Done(())),
        })
    }

    fn note(&mut self, left: &Left, done: Done) {
        let (name, now) = (left.name(), Instant::now());
        if matches!(done, Done::Marked(_) | Done::Ended(true)) {
            self.past.insert(name.clone(), left.version());
            self.has_changed |= matches!(left, Left::Address(_));
        }
        match done {
            Done::Nothing => {}
            Done::Watched => {
                self.watched.insert(name, (left.version(), now));
            }
            Done::Marked(version) => {
                self.watched.insert(name, (version, now));
            }
            Done::Ended(_) => {
                self.watched.remove(&name);
            }
        }
    }
}

/// Logs what the API server has refused about what `node` has left, which holds up nobody else.
///
/// # Errors
/// Any other failure.
fn complain(node: &str, failure: Failure) -> Result<(), Failure> {
    match failure {
        Failure::Cluster(trouble) if !trouble.is_silence() => {
            tracing::warn!(node, error = %trouble, "what the node has left is not ended");
            Ok(())
        }
        failure => Err(failure),
    }
}
