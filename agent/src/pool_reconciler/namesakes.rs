// SPDX-License-Identifier: Apache-2.0
//! Blocks of earlier registrations of this node's name.

use super::context::PoolContext;
use super::known_blocks::KnownBlocks;
use api::IpBlock;
use api::convert::{block_record, in_use, with_record};
use api::requests::{ReconcileError, Requests, WriteResult};
use block::Owner;
use block::orphan::{Decider, OrphanAction, OwnerState, Watched, decide};
use kube::ResourceExt;
use std::collections::HashMap;
use std::time::Instant;

/// Ends blocks of earlier registrations of this node's name.
pub(super) struct Namesakes {
    context: PoolContext,
    /// The version of each block, and since when it has that version.
    orphans: HashMap<String, (String, Instant)>,
}

impl Namesakes {
    pub(super) fn new(context: PoolContext) -> Self {
        Self {
            context,
            orphans: HashMap::new(),
        }
    }

    /// Ends a block of an earlier registration of this node's name that is not in this node's file, by the same rules as a block
    /// of a gone node. Only this node knows that no pod here uses it.
    pub(super) async fn review(
        &mut self,
        api: &Requests,
        known: &mut KnownBlocks,
        block: &IpBlock,
        owner: &Owner,
    ) -> Result<(), ReconcileError> {
        let (name, seen) = (&block.name_any(), block_record(block));
        if seen.owner.node != owner.node || seen.owner == *owner {
            return Ok(());
        }
        let state = OwnerState {
            decider: Decider::Namesake,
            registered: Some(owner.clone()),
            has_pods: false,
        };
        let version = block.metadata.resource_version.clone().unwrap_or_default();
        let watched = self.orphans.get(name).map(|(version, since)| Watched {
            version: version.clone(),
            unchanged: since.elapsed(),
        });
        let quarantine = self
            .context
            .agent
            .config
            .daemon
            .quarantines
            .of(block.spec.quarantine_seconds);
        match decide(
            &seen,
            in_use(block),
            &version,
            &state,
            watched.as_ref(),
            quarantine,
        ) {
            OrphanAction::Leave | OrphanAction::Hold => {}
            OrphanAction::Observe => {
                self.orphans.insert(name.to_owned(), (version, Instant::now()));
            }
            OrphanAction::Orphan => {
                let to = seen.with_phase(block::Phase::Orphaned);
                if let WriteResult::Applied(after) = api
                    .replace(&with_record(block, &to, &self.context.agent.config.node))
                    .await?
                {
                    known.note(name, Some(after));
                }
            }
            OrphanAction::Delete => {
                if api.delete_block(block).await? == WriteResult::Conflict {
                    return Ok(());
                }
                known.note(name, None);
                self.orphans.remove(name);
                tracing::info!(pool = %self.context.pool, block = name, "deleted a block of an earlier registration of this node");
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
