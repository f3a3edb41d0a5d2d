// SPDX-License-Identifier: Apache-2.0
//! The orphan collector. It frees the blocks and addresses of gone nodes in a task of its own, so pools are reconciled
//! even while thousands of nodes are gone.
//!
//! Invariant: a node is read after the objects that are judged by that read, and each write carries the version of the
//! object that was read. So one read serves several objects. A write some time later is a late request, and the model in
//! `agent/block` explores every late request.

mod orphan;

use super::Caches;
use super::probes::enable_probes;
use crate::context::Context;
use api::convert::{block_record, with_record};
use api::requests::{ApiError, ReconcileError, WriteResult};
use api::{BlockState, IpAddress, IpBlock, NodeRef};
use block::Phase;
use block::orphan::{OrphanAction, OwnerState, Watched, decide};
use futures::future::join_all;
use kube::ResourceExt;
use kube::runtime::reflector::ObjectRef;
use orphan::Orphan;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Instant;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

/// The number of objects that are judged by the same reads and written at the same time. It bounds the age of a read to
/// one request.
const BATCH: usize = 16;

/// The input of the orphan collector.
#[derive(Clone)]
pub(super) struct Inputs {
    pub(super) caches: Arc<Caches>,
    /// The addresses of nodes that seem gone.
    pub(super) addresses: Vec<Arc<IpAddress>>,
}

/// Frees the blocks and addresses of gone nodes while this replica leads.
pub(super) struct OrphanCollector {
    context: Arc<Context>,
    elected: watch::Receiver<bool>,
    /// The version of an orphan, and since when this process has seen it.
    watched: HashMap<String, (String, Instant)>,
    /// For each object that this process has changed or deleted: the version before the change, until the watch shows a
    /// newer one.
    outdated: HashMap<String, String>,
    /// The last node of the batch in which the API server did not respond.
    timed_out_at: Option<String>,
    /// Whether addresses were changed since the last message to `changed_addresses`.
    has_changed: bool,
    /// Signals that addresses were changed.
    changed_addresses: watch::Sender<()>,
}

/// What was done with one orphan.
enum Outcome {
    /// Nothing was done in this round.
    Unchanged,
    /// The object is watched from now on.
    Watched,
    /// The object is marked as orphaned, and is watched in this version.
    Marked(String),
    /// The object was freed, or another client changed it first. True if this process freed it.
    Freed(bool),
}

impl OrphanCollector {
    pub(super) fn new(
        context: Arc<Context>,
        elected: watch::Receiver<bool>,
        changed_addresses: watch::Sender<()>,
    ) -> Self {
        Self {
            context,
            elected,
            watched: HashMap::new(),
            outdated: HashMap::new(),
            timed_out_at: None,
            has_changed: false,
            changed_addresses,
        }
    }

    /// Collects orphans while this replica leads, until `stop`.
    pub(super) async fn run(mut self, mut updates: watch::Receiver<Option<Inputs>>, stop: CancellationToken) {
        loop {
            let inputs = updates.borrow_and_update().clone();
            let is_leader = inputs.is_some();
            match inputs {
                None => (self.watched, self.outdated) = Default::default(),
                Some(inputs) => {
                    if let Err(error) = Box::pin(self.collect(&inputs)).await
                        && !stop.is_cancelled()
                    {
                        tracing::warn!(%error, "orphan collection failed; retrying");
                    }
                    if std::mem::take(&mut self.has_changed) {
                        self.changed_addresses.send_replace(());
                    }
                }
            }
            tokio::select! {
                () = stop.cancelled() => return,
                () = tokio::time::sleep(self.context.config.daemon.reconcile_interval), if is_leader => {}
                // Without a sender, the leader has ended, so the process stops. Only the leader's task reports that.
                Ok(()) = updates.changed(), if !is_leader => {}
            }
        }
    }

    /// Judges all objects of gone nodes once.
    async fn collect(&mut self, inputs: &Inputs) -> Result<(), ReconcileError> {
        let enabled = self.enable_probes_of_orphaned(inputs).await;
        let mut orphans = Orphan::all(inputs);
        self.forget(inputs, &orphans);
        self.renew_returned(inputs).await;
        orphans.retain(|orphan| self.is_due(orphan));
        // The next round begins after the node at which the API server did not respond, so one bad node delays the others
        // only once.
        if let Some(node) = self.timed_out_at.take() {
            let before = orphans.partition_point(|orphan| orphan.node().node <= node);
            orphans.rotate_left(before);
        }
        for batch in orphans.chunks(BATCH) {
            if !*self.elected.borrow() {
                break;
            }
            if let Err(error) = self.process(inputs, batch).await {
                self.timed_out_at = batch.last().map(|orphan| orphan.node().node.clone());
                return Err(error);
            }
            self.renew_returned(inputs).await;
        }
        Ok(enabled?)
    }

    /// Enables probes in the address spaces of blocks that are orphaned. An agent orphans the blocks of earlier registrations of
    /// its node, and deletes them after the quarantine.
    async fn enable_probes_of_orphaned(&self, inputs: &Inputs) -> Result<(), ApiError> {
        let blocks = inputs.caches.blocks.state();
        let orphaned = blocks
            .iter()
            .filter(|block| block.spec.state == BlockState::Orphaned);
        let pools: BTreeSet<&str> = orphaned.map(|block| block.spec.pool.as_str()).collect();
        let spaces = inputs.caches.spaces.state();
        enable_probes(&self.context, &spaces, &pools).await.map(drop)
    }

    /// Forgets objects that are gone, and addresses whose nodes are back.
    fn forget(&mut self, inputs: &Inputs, orphans: &[Orphan]) {
        let versions: HashMap<String, String> = orphans
            .iter()
            .map(|orphan| (orphan.name(), orphan.version()))
            .collect();
        let block = |name: &str| inputs.caches.blocks.get(&ObjectRef::new(name));
        self.watched
            .retain(|name, _| versions.contains_key(name) || block(name).is_some());
        self.outdated.retain(|name, outdated| {
            let version = versions.get(name).cloned();
            version.or_else(|| block(name)?.resource_version()).as_ref() == Some(outdated)
        });
    }

    fn watched(&self, name: &str) -> Option<Watched> {
        self.watched.get(name).map(|(version, since)| Watched {
            version: version.clone(),
            unchanged: since.elapsed(),
        })
    }

    /// Whether the object may need an action. While an orphan is in quarantine, no request is sent about it.
    fn is_due(&self, orphan: &Orphan) -> bool {
        let (name, version) = (orphan.name(), orphan.version());
        let quarantine = orphan.wait(&self.context.config);
        let waits = |watched: Watched| {
            watched.version == version && quarantine.is_none_or(|quarantine| watched.unchanged < quarantine)
        };
        match orphan.record().phase {
            Phase::Shared => false,
            Phase::Orphaned if self.watched(&name).is_some_and(waits) => false,
            _ => self.outdated.get(&name) != Some(&version),
        }
    }

    /// Renews the orphaned blocks of nodes that are back. If such a node goes again, its quarantine restarts. Another
    /// process that waits for one of the blocks may not have seen the node come back, but it sees the new version.
    async fn renew_returned(&mut self, inputs: &Inputs) {
        let cached = |name: &String| inputs.caches.blocks.get(&ObjectRef::new(name));
        let is_back = |block: &Arc<IpBlock>| !inputs.caches.seems_gone(&block.spec.owner);
        // If the watch does not show the current version yet, the block is renewed in a later round.
        let is_current =
            |block: &Arc<IpBlock>| self.outdated.get(&block.name_any()) != block.resource_version().as_ref();
        let blocks = self.watched.keys().filter_map(cached);
        let back: Vec<Arc<IpBlock>> = blocks.filter(is_back).filter(is_current).collect();
        for batch in back.chunks(BATCH) {
            let renewed = join_all(batch.iter().map(|block| self.renew(block))).await;
            let mut timed_out = false;
            for (block, renewed) in batch.iter().zip(renewed) {
                let name = block.name_any();
                match renewed {
                    Ok(true) => drop(self.watched.remove(&name)),
                    Ok(false) => {}
                    Err(error) => {
                        tracing::warn!(block = name, %error, "restarting the quarantine of a block failed; retrying");
                        timed_out |= error.is_unanswered();
                    }
                }
            }
            if timed_out {
                break;
            }
        }
    }

    /// Writes an orphan to give it a new version. Returns whether nothing remains to be done.
    async fn renew(&self, block: &IpBlock) -> Result<bool, ApiError> {
        let seen = block_record(block);
        if seen.phase != Phase::Orphaned {
            return Ok(true);
        }
        let again = with_record(block, &seen, &self.context.config.identity);
        let written = self.context.api.replace(&again).await?;
        let is_done = matches!(written, WriteResult::Applied(_));
        if is_done {
            tracing::info!(
                block = block.name_any(),
                node = block.spec.owner.node,
                "the node of an orphaned block has returned; the quarantine of the block restarts"
            );
        }
        Ok(is_done)
    }

    /// Marks or frees a batch of orphans.
    ///
    /// # Errors
    /// [`ReconcileError`] if the API server does not respond. Refused requests are only logged.
    async fn process(&mut self, inputs: &Inputs, batch: &[Orphan]) -> Result<(), ReconcileError> {
        // This is read before the nodes are.
        let known: Vec<Option<Watched>> = batch.iter().map(|orphan| self.watched(&orphan.name())).collect();
        let (nodes, mut result) = self.read_nodes(batch.iter().map(Orphan::node)).await;
        let mut judged: Vec<(&Orphan, OrphanAction)> = batch
            .iter()
            .zip(&known)
            .filter_map(|(orphan, watched)| {
                let node = nodes.get(&orphan.node().node)?;
                let quarantine = orphan.quarantine(&self.context.config);
                let (seen, in_use, version) = (orphan.record(), orphan.in_use(), orphan.version());
                let action = decide(&seen, in_use, &version, node, watched.as_ref(), quarantine);
                Some((orphan, action))
            })
            .collect();
        let is_write = |action: &OrphanAction| matches!(action, OrphanAction::Orphan | OrphanAction::Delete);
        let writes = judged.iter().filter(|(_, action)| is_write(action));
        let pools: BTreeSet<&str> = writes.map(|(orphan, _)| orphan.pool()).collect();
        let spaces = inputs.caches.spaces.state();
        let waiting = enable_probes(&self.context, &spaces, &pools).await?;
        judged.retain(|(orphan, action)| !(is_write(action) && waiting.contains(orphan.pool())));
        let writes = judged.iter().map(|(orphan, action)| self.write(orphan, *action));
        let outcomes = join_all(writes).await;
        for ((orphan, _), outcome) in judged.iter().zip(outcomes) {
            match outcome {
                Ok(outcome) => self.record(orphan, outcome),
                Err(error) => result = result.and(log_refusal(&orphan.node().node, error.into())),
            }
        }
        result
    }

    /// Reads each of these nodes once. Returns what was read, and an error if the API server did not respond about one of
    /// them.
    async fn read_nodes(
        &self,
        nodes: impl Iterator<Item = &NodeRef>,
    ) -> (HashMap<String, OwnerState>, Result<(), ReconcileError>) {
        let nodes: BTreeMap<&str, &NodeRef> = nodes.map(|node| (node.node.as_str(), node)).collect();
        let answers = join_all(nodes.values().map(|node| self.context.api.owner_state(node))).await;
        let (mut found, mut result) = (HashMap::new(), Ok(()));
        for (name, answer) in nodes.keys().zip(answers) {
            match answer {
                Ok(node) => {
                    found.insert((*name).to_owned(), node);
                }
                Err(error) => result = result.and(log_refusal(name, error.into())),
            }
        }
        (found, result)
    }

    async fn write(&self, orphan: &Orphan, action: OrphanAction) -> Result<Outcome, ApiError> {
        Ok(match action {
            OrphanAction::Leave | OrphanAction::Hold => Outcome::Unchanged,
            OrphanAction::Observe => Outcome::Watched,
            OrphanAction::Orphan => match orphan.mark(&self.context).await? {
                WriteResult::Applied(version) => Outcome::Marked(version),
                WriteResult::Conflict => Outcome::Unchanged,
            },
            OrphanAction::Delete => {
                Outcome::Freed(orphan.free(&self.context).await? == WriteResult::Applied(()))
            }
        })
    }

    fn record(&mut self, orphan: &Orphan, outcome: Outcome) {
        let (name, now) = (orphan.name(), Instant::now());
        if matches!(outcome, Outcome::Marked(_) | Outcome::Freed(true)) {
            self.outdated.insert(name.clone(), orphan.version());
            self.has_changed |= matches!(orphan, Orphan::Address(_));
        }
        match outcome {
            Outcome::Unchanged => {}
            Outcome::Watched => {
                self.watched.insert(name, (orphan.version(), now));
            }
            Outcome::Marked(version) => {
                self.watched.insert(name, (version, now));
            }
            Outcome::Freed(_) => {
                self.watched.remove(&name);
            }
        }
    }
}

/// Logs a request about an object of `node` that the API server refused. It does not delay other objects.
///
/// # Errors
/// Any other failure.
fn log_refusal(node: &str, error: ReconcileError) -> Result<(), ReconcileError> {
    match error {
        ReconcileError::Api(error) if !error.is_unanswered() => {
            tracing::warn!(node, %error, "collecting an orphan failed; retrying");
            Ok(())
        }
        error => Err(error),
    }
}

#[cfg(test)]
mod tests;
