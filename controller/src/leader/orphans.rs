// SPDX-License-Identifier: Apache-2.0
//! The orphan collector. It frees the blocks and addresses of gone nodes in a task of its own, so pools are reconciled
//! even while thousands of nodes are gone.
//!
//! Invariant: a node is read after the objects that are judged by that read, and each write carries the version of the
//! object that was read. So one read serves several objects. A write some time later is a late request, and the model in
//! `agent/block` explores every late request.

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

/// The number of objects that are judged by the same reads and written at the same time. It bounds the age of a read to
/// one request.
const AT_ONCE: usize = 16;

/// The input of the orphan collector.
#[derive(Clone)]
pub(super) struct Scene {
    pub(super) sight: Arc<Sight>,
    /// The addresses of nodes that seem gone.
    pub(super) addresses: Vec<Arc<IpAddress>>,
}

/// Frees the blocks and addresses of gone nodes while this replica leads.
pub(super) struct Orphans {
    context: Arc<Context>,
    elected: watch::Receiver<bool>,
    /// The version of an orphan, and since when this process has seen it.
    watched: HashMap<String, (String, Instant)>,
    /// For each object that this process has changed or deleted: the version before the change, until the watch shows a
    /// newer one.
    past: HashMap<String, String>,
    /// The last node of the batch in which the API server did not respond.
    silent_at: Option<String>,
    /// Whether addresses were changed since the last message to `sweeps`.
    has_changed: bool,
    /// Signals that addresses were changed.
    sweeps: watch::Sender<()>,
}

/// The result for one object.
enum Done {
    /// Nothing was done in this round.
    Nothing,
    /// The object is watched from now on.
    Watched,
    /// The object is marked as orphaned, and is watched in this version.
    Marked(String),
    /// The object was freed, or another client changed it first. True if this process freed it.
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

    /// Sweeps while there is a scene, until `stop`.
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

    /// Judges all objects of gone nodes once.
    async fn sweep(&mut self, scene: &Scene) -> Result<(), Failure> {
        let mut left = Left::all(scene);
        self.forget(scene, &left);
        self.welcome(scene).await;
        left.retain(|left| self.is_due(left));
        // The next sweep begins after the node at which the API server did not respond, so one bad node delays the others
        // only once.
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

    /// Forgets objects that are gone, and addresses whose nodes are back.
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

    /// Whether the object may need an action. While an orphan is in quarantine, no request is sent about it.
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

    /// Renews the orphaned blocks of nodes that are back. If such a node goes again, its quarantine begins anew. Another
    /// process that waits for one of the blocks may not have seen the node come back, but it sees the new version.
    async fn welcome(&mut self, scene: &Scene) {
        let there = |name: &String| scene.sight.blocks.get(&ObjectRef::new(name));
        let is_back = |block: &Arc<IpBlock>| !scene.sight.seems_gone(&block.spec.owner);
        // If the watch does not show the current version yet, the block is renewed in a later round.
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

    /// Writes an orphan to give it a new version. Returns whether nothing remains to be done.
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

    /// Marks or frees some objects.
    ///
    /// # Errors
    /// [`Failure`] if the API server does not respond. Refused requests are only logged.
    async fn end(&mut self, scene: &Scene, some: &[Left]) -> Result<(), Failure> {
        // This is read before the nodes are.
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

    /// Makes nodes probe the addresses of blocks of `pools` that they claim from now on. Returns whether all address
    /// spaces are up to date.
    ///
    /// Invariant: the address space asks for probes before a block of the pool is marked as `Orphaned` or deleted. Nodes
    /// read the address space after each claim.
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

    /// Reads each of these nodes once. Returns what was read, and an error if the API server did not respond about one of
    /// them.
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

/// Logs a request about an object of `node` that the API server refused. It does not delay other objects.
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
