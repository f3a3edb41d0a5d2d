// SPDX-License-Identifier: Apache-2.0
//! The reconciler of a pool: one task per pool. Everything that this node does about the pool happens in this task, one thing after another.
//!
//! Invariant: only this task writes the pool's file, and the node runs one agent (`crate::lock`). So no other writer comes
//! between a successful request and the file write that follows from it.

mod addresses;
mod allocatable;
mod allocate;
mod backoff;
mod claim;
mod context;
mod gc;
mod known_blocks;
mod mailbox;
mod namesakes;
mod pool_file;
mod publish;
mod rebind;
mod reconcile_block;
mod report_usage;
mod requests;
mod round;
mod run_loop;
mod sharing;
mod sticky;
mod surplus;
#[cfg(test)]
mod testing;
mod withheld;

use crate::agent::Agent;
use addresses::Addresses;
use api::requests::{ReconcileError, Requests};
use claim::Claims;
use context::{PoolContext, Target};
use gc::GarbageCollector;
use ipam::agent::{Reply, Request};
use ipam::pool::PoolName;
use reconcile_block::BlockReconciler;
use report_usage::UsageReporter;
pub(crate) use requests::unknown_pool;
use round::Part;
use sharing::Sharing;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::oneshot;

/// A message to a reconciler.
#[derive(Debug)]
pub enum Message {
    /// Something may have changed: start a round.
    Reconcile,
    /// A plugin's request.
    Request(Box<PluginRequest>),
}

/// A plugin's request and where its answer goes.
#[derive(Debug)]
pub struct PluginRequest {
    /// The request.
    pub request: Request,
    /// The channel for the answer. It is closed once the plugin no longer waits.
    pub answer: oneshot::Sender<Response>,
    /// When the request arrived.
    pub asked: tokio::time::Instant,
    /// The version of the pool that the watch had reported when the request arrived.
    pub pool_version: u64,
    /// The plugin has time left to wait until another node shares a block.
    pub waits: bool,
}

/// The reconciler's answer to a plugin's request.
#[derive(Debug)]
pub enum Response {
    /// The final answer.
    Reply(Reply),
    /// Other nodes were asked to share addresses. The caller repeats the request this long after the request to them has ended.
    RetryAfter(Duration),
}

/// The reconciler of a pool. Each component owns its fields.
pub(crate) struct PoolReconciler {
    context: PoolContext,
    blocks: BlockReconciler,
    claims: Claims,
    addresses: Addresses,
    sharing: Sharing,
    garbage: GarbageCollector,
    usage: UsageReporter,
    /// The part with which the next round begins.
    next_part: Part,
}

impl PoolReconciler {
    /// Creates a reconciler that has not done anything yet.
    pub(crate) fn new(agent: Arc<Agent>, pool: PoolName) -> Self {
        let context = PoolContext { agent, pool };
        Self {
            blocks: BlockReconciler::new(context.clone()),
            claims: Claims::new(context.clone()),
            addresses: Addresses::new(context.clone()),
            sharing: Sharing::new(context.clone()),
            garbage: GarbageCollector::new(context.clone()),
            usage: UsageReporter::new(context.clone()),
            next_part: Part::Blocks,
            context,
        }
    }

    /// Reconciles the node's part of the pool by one step or several.
    async fn reconcile(&mut self, api: &Requests) -> Result<(), ReconcileError> {
        let asked = self
            .context
            .agent
            .refresh_node(api, self.blocks.known().node_max_age())
            .await?;
        // This comes first because the next steps may fail.
        self.blocks.known_mut().forget_reported();
        let target = self.context.target(api)?;
        let has_no_block = || self.blocks.known().all().is_empty();
        if target.accepted.is_none() && has_no_block() && self.context.file().await?.is_none() {
            let collected = self.collect_lost(&target, asked).await;
            self.context.agent.metrics.holds_nothing(&self.context.pool);
            self.context.agent.unreconciled.set(&self.context.pool, None);
            return collected;
        }
        let first = if self.blocks.is_proven() {
            self.next_part
        } else {
            Part::Blocks
        };
        self.next_part = Part::Blocks;
        let mut refused = None;
        for part in first.and_others() {
            let Err(failure) = self.do_part(part, &target, asked).await else {
                continue;
            };
            if failure.is_unanswered() {
                // The time is over. The next round begins with the part after this one.
                self.next_part = part.next();
                return Err(failure);
            }
            // If the API server rejects one object, the rest of the pool is still reconciled.
            refused.get_or_insert(failure);
        }
        let problem = if self.blocks.is_proven() {
            self.garbage.problem()
        } else {
            Some("its blocks have not been compared with the API server since the agent started")
        };
        let unreconciled = &self.context.agent.unreconciled;
        unreconciled.set(&self.context.pool, problem.map(str::to_owned));
        refused.map_or(Ok(()), Err)
    }

    /// Deletes what this node has left in a pool that is not accepted, or that the API server does not have any more: an ADD may
    /// have died after its object was made.
    async fn collect_lost(&mut self, target: &Target, asked: Duration) -> Result<(), ReconcileError> {
        // Without a directory, no ADD of this node has requested an address of the pool.
        if self.context.agent.stores.pools().contains(&self.context.pool) {
            self.do_part(Part::Collect, target, asked).await
        } else {
            Ok(())
        }
    }

    async fn do_part(&mut self, part: Part, target: &Target, asked: Duration) -> Result<(), ReconcileError> {
        match part {
            Part::Blocks => {
                let reconciled = self.blocks.reconcile(target).await;
                if matches!(&reconciled, Err(failure) if failure.is_unanswered()) {
                    return reconciled;
                }
                self.blocks.write_file(target).await?;
                if self.blocks.may_confirm() {
                    self.blocks.file_mut().confirm(asked).await?;
                }
                reconciled
            }
            Part::Claim if target.open => self.claims.claim_ahead(&mut self.blocks, target).await,
            Part::Claim => Ok(()),
            Part::Collect => {
                if self.blocks.take_removed() {
                    self.garbage.expect_missing_objects();
                }
                let proven = self.blocks.is_proven();
                let publisher = self.blocks.publisher_mut();
                self.garbage
                    .collect(target, &mut self.addresses, publisher, proven)
                    .await
            }
            Part::Report => self.usage.report(&mut self.blocks, target).await,
        }
    }

    /// The work of one round. After a release by a plugin, released addresses come first.
    async fn work(&mut self, api: &Requests, after_release: bool) -> Result<(), ReconcileError> {
        let released = if after_release {
            // A pool that cannot be read is reported by the round.
            let target = self.context.target(api).ok();
            let accepted = target.and_then(|target| target.accepted);
            self.garbage
                .release_ended(api, accepted.as_ref(), &mut self.addresses)
                .await
        } else {
            Ok(())
        };
        Box::pin(self.reconcile(api)).await.and(released)
    }
}
