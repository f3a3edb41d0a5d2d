// SPDX-License-Identifier: Apache-2.0
//! The blocks of this node in the newest version that is known: from the watch, or from an answer that the watch has not
//! reported yet.

use super::context::PoolContext;
use api::convert::{block_record, version_number};
use api::{BlockState, IpBlock};
use block::owner::NodeIdentity;
use kube::ResourceExt;
use kube::runtime::reflector::ObjectRef;
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// The state of a block according to an answer of the API server.
struct KnownBlock {
    version: u64,
    /// None if the block was deleted.
    block: Option<IpBlock>,
    at: Instant,
}

/// How long the watch may take to report a block that was written.
pub(super) const WATCH_LAG: Duration = Duration::from_secs(10);

impl KnownBlock {
    /// Whether this state may be newer than that of the watch, which has reported the version `watched`. If the watch does not have the
    /// block, either the block was written a moment ago or it has been deleted since. An entry that is forgotten too early only
    /// costs another request.
    fn is_news(&self, watched: Option<u64>, age: Duration) -> bool {
        match (watched, &self.block) {
            (Some(watched), Some(_)) => watched < self.version,
            (Some(watched), None) => watched <= self.version,
            (None, Some(_)) => age < WATCH_LAG,
            (None, None) => false,
        }
    }
}

/// The newest known versions of the blocks of this pool and node.
pub(super) struct KnownBlocks {
    context: PoolContext,
    /// Blocks that this reconciler wrote or read itself and that the watch may not have reported yet.
    written: HashMap<String, KnownBlock>,
}

impl KnownBlocks {
    pub(super) fn new(context: PoolContext) -> Self {
        Self {
            context,
            written: HashMap::new(),
        }
    }

    /// The blocks of this pool with this node's name, each in the newest version that is known.
    pub(super) fn all(&self) -> BTreeMap<String, IpBlock> {
        let of_pool = |block: &Arc<IpBlock>| block.spec.pool == self.context.pool.as_str();
        let watched = self.context.agent.blocks.state().into_iter().filter(of_pool);
        let mut blocks: BTreeMap<String, IpBlock> = watched
            .map(|block| (block.name_any(), (*block).clone()))
            .collect();
        for (name, noted) in &self.written {
            if blocks
                .get(name)
                .is_some_and(|watched| version_number(watched) > noted.version)
            {
                continue;
            }
            match &noted.block {
                Some(block) => blocks.insert(name.clone(), block.clone()),
                None => blocks.remove(name),
            };
        }
        blocks
    }

    /// Forgets the noted blocks that the watch has reported by now.
    pub(super) fn forget_reported(&mut self) {
        let watched: HashMap<String, u64> = self
            .context
            .agent
            .blocks
            .state()
            .iter()
            .map(|block| (block.name_any(), version_number(&**block)))
            .collect();
        self.written
            .retain(|name, noted| noted.is_news(watched.get(name).copied(), noted.at.elapsed()));
    }

    pub(super) fn note(&mut self, name: &str, block: Option<IpBlock>) {
        if block.is_some() {
            self.context.agent.watch_block(name);
        }
        let before = self.written.get(name).map_or(0, |noted| noted.version);
        let watched = self
            .context
            .agent
            .blocks
            .get(&ObjectRef::new(name))
            .map_or(0, |block| version_number(&*block));
        let noted = KnownBlock {
            version: block.as_ref().map_or_else(|| watched.max(before), version_number),
            block,
            at: Instant::now(),
        };
        self.written.insert(name.to_owned(), noted);
    }

    /// The maximum age of this node's registration as the agent knows it. If another process has orphaned a block, the Node is
    /// probably gone. Then the agent has seconds until the pod garbage collector deletes its Pod, and must report its pods before
    /// that.
    pub(super) fn node_max_age(&self) -> Duration {
        let of_me = |block: &IpBlock| {
            self.context.agent.identity() == Some(NodeIdentity::Registered(block_record(block).owner))
        };
        let mut orphans = self.all().into_values();
        if orphans.any(|block| block.spec.state == BlockState::Orphaned && of_me(&block)) {
            return self.context.agent.config.daemon.reconcile_interval;
        }
        self.context.agent.config.confirm_every()
    }

    /// How long a block of this node stays unallocated after the node is gone: the shortest quarantine that was in force when a
    /// block was claimed. The controller waits that long or longer.
    pub(super) fn quarantine(&self) -> Duration {
        let blocks = self.all().into_values();
        let claimed = blocks.filter_map(|block| u64::try_from(block.spec.quarantine_seconds?).ok());
        claimed
            .map(Duration::from_secs)
            .fold(self.context.agent.config.daemon.quarantines.unused, Duration::min)
    }
}

#[cfg(test)]
mod tests;
