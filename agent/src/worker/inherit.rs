// SPDX-License-Identifier: Apache-2.0
//! Takes over what a gone node has left, where every block has an owner: by a swap, so that only one gets it, and whoever
//! had it sees another owner and another epoch if he comes back after all.

use super::Worker;
use super::claim::{Claimed, Wanted};
use super::settle::About;
use crate::agent::Failure;
use crate::api::IpBlock;
use crate::cluster::{Trouble, Written, list, swap};
use crate::grid::Cell;
use crate::node::held;
use crate::object::{cell, changed, in_use, seen};
use block::Mode;
use block::claim::seed;
use block::orphan::{Verdict, Watched, judge};
use kube::ResourceExt;
use std::collections::HashSet;
use std::time::{Duration, Instant};

/// Blocks that are watched at the same time, and Nodes that are looked at before that in one go: a node needs few blocks, while
/// plugins wait, and there may be thousands.
const WATCHED: usize = 16;

impl Worker {
    /// Takes over one block of the pool that was left for a whole quarantine while this process has watched it.
    pub(super) async fn inherit(&mut self, wanted: Wanted<'_>) -> Result<Claimed, Failure> {
        let fields = format!("spec.pool={},spec.state=Orphaned", self.pool);
        let mut left: Vec<IpBlock> = list(&self.agent.cluster.blocks, &fields).await?;
        let there: HashSet<String> = left.iter().map(ResourceExt::name_any).collect();
        self.left.retain(|name, _| there.contains(name));
        // From another place each time, so that all come to be watched, and nodes do not want the same ones.
        let seed = seed(&wanted.me.uid, self.pool.as_str(), self.attempts);
        let start = usize::try_from(seed).unwrap_or_default();
        left.rotate_left(start.checked_rem(there.len()).unwrap_or_default());
        let mut looks = WATCHED;
        for block in left {
            let Some(cell) = cell(&block).filter(|cell| wanted.grid.has(*cell)) else {
                continue;
            };
            // Those of this node's name are for `settle`, which knows the file.
            if block.spec.owner.node != *wanted.me.node
                && self.is_ripe(&block, &mut looks).await?
                && self.take_over(wanted, &block, cell).await?
            {
                return Ok(Claimed::Yes);
            }
        }
        Ok(Claimed::Full)
    }

    /// Whether the block has been as it is for a quarantine; begins to watch it if not, unless its node is there again. If that
    /// comes back later, the keeper gives the block another version.
    async fn is_ripe(&mut self, block: &IpBlock, looks: &mut usize) -> Result<bool, Failure> {
        let version = block.metadata.resource_version.clone().unwrap_or_default();
        if let Some((watched, since)) = self.left.get(&block.name_any())
            && *watched == version
        {
            let quarantine = self.quarantine_of(block);
            return Ok(quarantine.is_some_and(|quarantine| since.elapsed() >= quarantine));
        }
        // One that a person has deleted is for nobody to take over.
        if self.quarantine_of(block).is_none() || block.metadata.deletion_timestamp.is_some() {
            return Ok(false);
        }
        self.left.remove(&block.name_any());
        if self.left.len() >= WATCHED || *looks == 0 {
            return Ok(false);
        }
        *looks -= 1;
        let node = self.agent.cluster.registration(&block.spec.owner.node).await?;
        if node.is_none() {
            self.left.insert(block.name_any(), (version, Instant::now()));
        }
        Ok(false)
    }

    /// How long the block must stay unchanged before this node may take it; none if only a person may release it.
    fn quarantine_of(&self, block: &IpBlock) -> Option<Duration> {
        let quarantine = self.agent.config.quarantines().of(block.spec.quarantine_seconds);
        if in_use(block) {
            quarantine.in_use
        } else {
            Some(quarantine.unused)
        }
    }

    async fn take_over(&mut self, wanted: Wanted<'_>, block: &IpBlock, cell: Cell) -> Result<bool, Failure> {
        let (name, asked) = (block.name_any(), self.agent.stores.since_boot()?);
        let file = self.file().await?;
        // What the file says of it is to be settled first.
        if held(file.as_ref(), &name).is_some() {
            return Ok(false);
        }
        let before = seen(block);
        let version = block.metadata.resource_version.clone().unwrap_or_default();
        let watched = self.left.get(&name).map(|(version, since)| Watched {
            version: version.clone(),
            unchanged: since.elapsed(),
        });
        let sight = self.agent.cluster.sight_of(&block.spec.owner).await?;
        let quarantine = self.agent.config.quarantines().of(block.spec.quarantine_seconds);
        let verdict = judge(
            &before,
            in_use(block),
            &version,
            &sight,
            watched.as_ref(),
            quarantine,
        );
        if verdict != Verdict::End {
            if self.left.len() >= WATCHED {
                // Others come to be watched.
                self.left.remove(&name);
            }
            return Ok(false);
        }
        let to = before.handed_to(wanted.me);
        let object = changed(block, &to, &self.agent.config.node);
        let swapped = swap(&self.agent.cluster.blocks, &object).await;
        if let Err(Trouble::Unanswered { .. }) = swapped {
            // It may be ours: then it is settled when its watch tells.
            self.agent.names.follow(&name);
        }
        let Written::Done(after) = swapped? else {
            return Ok(false);
        };
        self.left.remove(&name);
        self.note(&name, Some(after));
        self.agent.metrics.taken_over(&self.pool);
        tracing::warn!(
            pool = %self.pool, block = name, of = block.spec.owner.node, epoch = to.epoch, seconds = quarantine.unused.as_secs(),
            evidence = "its Node is gone, no pod is bound to a node of that name, and nobody has changed it for a quarantine",
            "taken over"
        );
        // As after a claim: if this view of the pool is old, the block is settled when a newer one is here.
        if !self.listed(wanted.ground, wanted.grid, cell).await? {
            return Ok(false);
        }
        let about = About {
            name: &name,
            cell: Some(cell),
            asked,
            target: wanted.target,
            anew: true,
        };
        self.hold(about, to.held(Mode::Active)).await?;
        self.full_since = None;
        Ok(true)
    }
}
