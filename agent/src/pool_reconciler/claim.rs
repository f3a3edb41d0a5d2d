// SPDX-License-Identifier: Apache-2.0
//! Claims blocks: one CREATE each, without a list as long as a few tries find a free block.

use super::allocatable::free_local;
use super::context::{PoolContext, Target, address_space};
use super::pool_file::{BlockStep, Entry};
use super::reconcile_block::BlockReconciler;
use crate::node::local_block;
use api::accepted_pool::AcceptedPool;
use api::block_layout::{BlockCidr, BlockLayout};
use api::convert::{block_record, cidr_of, new_block};
use api::listing::admits;
use api::requests::{ApiError, ReconcileError, WriteResult};
use api::{BlockState, IpBlock};
use block::claim::{Order, TRIES, seed, tries};
use block::owner::{Desired, NodeIdentity};
use block::{Mode, Owner, Phase};
use ipam::clock::{Clock, KernelClock};
use ipam::interval::IntervalSet;
use ipam::pool::PoolFile;
use ipam::range::Family;
use kube::ResourceExt;
use std::collections::HashMap;
use std::time::{Duration, Instant};

/// How long a pool that was found full once is not listed again, unless a plugin waits.
pub(super) const FULL_PAUSE: Duration = Duration::from_secs(10);

/// How often that pause doubles for claims ahead of need, while each list finds the pool full. The cost of a
/// list grows with the number of blocks, and each node of a full pool would repeat it for ever.
const DOUBLINGS: u32 = 4;

/// The result of an attempt to claim a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Claimed {
    /// This node has claimed one.
    Yes,
    /// Every block has an owner.
    Full,
    /// This node has as many blocks of the family as it may have.
    Limit,
    /// The address space does not list the pool with these blocks (yet).
    Unlisted,
}

/// The pool from which a block is claimed, and the claiming node.
#[derive(Clone, Copy)]
pub(super) struct ClaimTarget<'w> {
    pub(super) target: &'w Target,
    pub(super) accepted: &'w AcceptedPool,
    pub(super) layout: &'w BlockLayout,
    pub(super) me: &'w Owner,
}

/// Claims blocks for this node.
pub(super) struct Claims {
    context: PoolContext,
    /// The number of claim attempts. Each attempt goes through the blocks in an order of its own.
    attempts: u64,
    /// The claims of each family: one family may be full while the other has free blocks.
    families: HashMap<Family, FamilyClaims>,
}

/// The claims of one family.
#[derive(Default)]
struct FamilyClaims {
    /// The block of the last claim that ended without an answer from the API server.
    unanswered: Option<BlockCidr>,
    /// The number of tries that found a taken block since the last claim that succeeded. With a slow API server, the time
    /// of a plugin ends before the tries do. So the next attempt has fewer left, and the list comes in the end.
    misses: u128,
    /// When the last list of all blocks found the family full, if no claim has succeeded since.
    full_since: Option<Instant>,
    /// The number of lists that found the family full since the last claim that succeeded, and since the last edit of the pool.
    full_lists: u32,
    /// The spec of these lists.
    generation: i64,
}

impl FamilyClaims {
    /// How long no list is made for a claim ahead of need.
    fn pause_ahead(&self) -> Duration {
        FULL_PAUSE * (1 << self.full_lists.saturating_sub(1).min(DOUBLINGS))
    }
}

impl Claims {
    pub(super) fn new(context: PoolContext) -> Self {
        Self {
            context,
            attempts: 0,
            families: HashMap::new(),
        }
    }

    /// When the last list of all blocks found no free block of `family`, if no claim has succeeded since.
    pub(super) fn full_since(&self, family: Family) -> Option<Instant> {
        self.families.get(&family).and_then(|claims| claims.full_since)
    }

    fn of_family(&mut self, family: Family) -> &mut FamilyClaims {
        self.families.entry(family).or_default()
    }

    /// Claims blocks until enough addresses are free on this node.
    pub(super) async fn claim_ahead(
        &mut self,
        blocks: &mut BlockReconciler,
        target: &Target,
    ) -> Result<(), ReconcileError> {
        let Some(accepted) = target.accepted.clone().filter(AcceptedPool::has_blocks) else {
            return Ok(());
        };
        for family in accepted.ranges.families() {
            let claims = self.of_family(family);
            if claims.generation != accepted.generation {
                claims.generation = accepted.generation;
                claims.full_lists = 0;
            }
            if self.is_known_full(family) {
                continue;
            }
            // One block at a time, so that plugin requests are answered in between.
            let (holdings, usage) = self.context.holdings(&blocks.known().all()).await?;
            if free_local(&accepted, family, holdings.file.as_ref(), &usage) < accepted.free_target(family) {
                self.claim(blocks, target, &accepted, family).await?;
            }
        }
        Ok(())
    }

    /// Claims one block of `family`.
    pub(super) async fn claim(
        &mut self,
        blocks: &mut BlockReconciler,
        target: &Target,
        accepted: &AcceptedPool,
        family: Family,
    ) -> Result<Claimed, ReconcileError> {
        let (Some(layout), Some(NodeIdentity::Registered(me))) =
            (accepted.layout(family), self.context.agent.identity())
        else {
            return Ok(Claimed::Full);
        };
        if layout.blocks() == 0 {
            // Every address of the family is reserved. No list shows a free block.
            return Ok(Claimed::Full);
        }
        let wanted = ClaimTarget {
            target,
            accepted,
            layout,
            me: &me,
        };
        let unanswered = self.unanswered(family, layout).await?;
        let name = unanswered.map(|cidr| cidr.name(&accepted.spec.address_space));
        if is_at_limit(blocks, wanted, name.as_deref()) {
            return Ok(Claimed::Limit);
        }
        if let Some(cidr) = unanswered
            && let Some(claimed) = self.try_claim(blocks, wanted, cidr).await?
        {
            return Ok(claimed);
        }
        self.attempts += 1;
        let order = Order::new(
            layout.blocks(),
            seed(&me.uid, self.context.pool.as_str(), self.attempts),
        );
        // If the pool was full a while ago, one list is faster than a dozen rejected CREATEs.
        let FamilyClaims {
            full_since, misses, ..
        } = *self.of_family(family);
        let tries = if full_since.is_some() {
            0
        } else {
            // The number counts the blocks of all families, and nodes have about as many blocks of each.
            let claimed = u128::try_from(target.blocks).unwrap_or_default();
            let families = accepted.ranges.families().len().max(1) as u128;
            let all = u128::from(self.context.agent.known_blocks());
            tries(layout.blocks(), claimed / families, all).saturating_sub(misses)
        };
        for position in 0..tries.min(layout.blocks()) {
            let Some(cidr) = order.at(position).and_then(|index| layout.block(index)) else {
                continue;
            };
            if let Some(claimed) = self.try_claim(blocks, wanted, cidr).await? {
                return Ok(claimed);
            }
        }
        self.claim_listed(blocks, wanted).await
    }

    /// Whether the last list found `family` full, and the next one for a claim ahead of need is not due.
    pub(super) fn is_known_full(&self, family: Family) -> bool {
        let claims = self.families.get(&family);
        claims.is_some_and(|claims| self.is_full(family, claims.pause_ahead()))
    }

    /// Whether `family` was found full within this time, or within half a quarantine if that is shorter: after that the
    /// controller may have released blocks of gone nodes.
    pub(super) fn is_full(&self, family: Family, within: Duration) -> bool {
        let within = within.min(self.context.agent.config.daemon.quarantines.unused / 2);
        self.full_since(family).is_some_and(|at| at.elapsed() < within)
    }

    /// Lists the names of all blocks, and claims one that is missing.
    async fn claim_listed(
        &mut self,
        blocks: &mut BlockReconciler,
        wanted: ClaimTarget<'_>,
    ) -> Result<Claimed, ReconcileError> {
        let ClaimTarget {
            target,
            accepted,
            layout,
            me,
        } = wanted;
        let prefix = format!("{}-", accepted.spec.address_space);
        let looked = Instant::now();
        let names = target.api.list_names::<IpBlock>().await?;
        self.context.agent.metrics.listed(&self.context.pool);
        let mut taken: IntervalSet = names
            .iter()
            .filter_map(|name| BlockCidr::from_name(name.strip_prefix(&prefix)?))
            .map(BlockCidr::interval)
            .collect();
        for _ in 0..TRIES {
            let Some(cidr) = self.missing(layout, &taken, me) else {
                break;
            };
            if let Some(claimed) = self.try_claim(blocks, wanted, cidr).await? {
                return Ok(claimed);
            }
            taken = taken
                .intervals()
                .iter()
                .copied()
                .chain([cidr.interval()])
                .collect();
        }
        let claims = self.of_family(layout.family());
        claims.full_since = Some(looked);
        claims.full_lists = claims.full_lists.saturating_add(1);
        Ok(Claimed::Full)
    }

    /// A block without an owner. Each node starts its search at a place of its own, so that many nodes do not try the same block.
    fn missing(&self, layout: &BlockLayout, taken: &IntervalSet, me: &Owner) -> Option<BlockCidr> {
        let order = Order::new(
            layout.blocks(),
            seed(&me.uid, self.context.pool.as_str(), self.attempts),
        );
        let start = order
            .at(0)
            .and_then(|index| layout.block(index))?
            .interval()
            .first;
        layout
            .first_missing_from(taken, start)
            .or_else(|| layout.first_missing(taken))
    }

    /// Claims this block, unless the node has as many blocks as it may have.
    pub(super) async fn claim_block(
        &mut self,
        blocks: &mut BlockReconciler,
        wanted: ClaimTarget<'_>,
        cidr: BlockCidr,
    ) -> Result<Claimed, ReconcileError> {
        if is_at_limit(
            blocks,
            wanted,
            Some(&cidr.name(&wanted.accepted.spec.address_space)),
        ) {
            return Ok(Claimed::Limit);
        }
        let claimed = self.try_claim(blocks, wanted, cidr).await?;
        Ok(claimed.unwrap_or(Claimed::Full))
    }

    /// The block of the last claim, if that claim has no answer yet. The block may already be this node's, or become so while
    /// another one is tried.
    async fn unanswered(
        &mut self,
        family: Family,
        layout: &BlockLayout,
    ) -> Result<Option<BlockCidr>, ReconcileError> {
        let Some(cidr) = self.of_family(family).unanswered else {
            return Ok(None);
        };
        let file = self.context.file().await?;
        let is_in_file = |file: PoolFile| file.blocks.iter().any(|block| block.cidr == cidr.network());
        if layout.has(cidr) && !file.is_some_and(is_in_file) {
            return Ok(Some(cidr));
        }
        self.of_family(family).unanswered = None;
        Ok(None)
    }

    /// Tries to claim this block. `None`: another node has it.
    async fn try_claim(
        &mut self,
        blocks: &mut BlockReconciler,
        wanted: ClaimTarget<'_>,
        cidr: BlockCidr,
    ) -> Result<Option<Claimed>, ReconcileError> {
        let family = wanted.layout.family();
        self.of_family(family).unanswered = Some(cidr);
        let tried = self.try_create(blocks, wanted, cidr).await;
        let claims = self.of_family(family);
        if tried.as_ref().err().is_none_or(ReconcileError::is_refusal) {
            claims.unanswered = None;
        }
        if matches!(tried, Ok(None)) {
            claims.misses += 1;
        }
        tried
    }

    async fn try_create(
        &mut self,
        blocks: &mut BlockReconciler,
        wanted: ClaimTarget<'_>,
        cidr: BlockCidr,
    ) -> Result<Option<Claimed>, ReconcileError> {
        let ClaimTarget {
            target, accepted, me, ..
        } = wanted;
        let asked = KernelClock.since_boot()?;
        let name = cidr.name(&accepted.spec.address_space);
        let quarantine = self.context.agent.config.daemon.quarantines.unused;
        let object = new_block(&name, self.context.pool.as_str(), cidr, me, quarantine);
        self.context.agent.metrics.tried(&self.context.pool);
        let created = target.api.create(&object).await;
        if let Err(ApiError::NoResponse { .. }) = created {
            // The CREATE may have taken effect, or may still do so.
            self.context.agent.watch_block(&name);
        }
        let WriteResult::Applied(block) = created? else {
            return self.find_taken(blocks, wanted, &name, cidr).await;
        };
        blocks.known_mut().note(&name, Some(block.clone()));
        let space = address_space(&target.api, accepted).await?;
        let space = space.filter(|space| admits(space, accepted, wanted.layout, cidr));
        let Some(space) = space else {
            target.api.delete_block(&block).await?;
            blocks.known_mut().note(&name, None);
            return Ok(Some(Claimed::Unlisted));
        };
        let mut claimed = block_record(&block);
        if space.requests_probes() {
            match blocks.count_claim(&target.api, &block, me).await? {
                Some(again) => claimed = again,
                None => return Ok(None),
            }
        }
        let about = BlockStep {
            name: &name,
            cidr: Some(cidr),
            asked,
            target,
            entry: Entry::Closed,
        };
        blocks.write_block(about, claimed.local(Mode::Active)).await?;
        self.note_claim(&name, cidr);
        Ok(Some(Claimed::Yes))
    }

    fn note_claim(&mut self, name: &str, cidr: BlockCidr) {
        let claims = self.of_family(cidr.family());
        claims.full_since = None;
        claims.full_lists = 0;
        claims.misses = 0;
        self.context.agent.metrics.claimed(&self.context.pool);
        tracing::info!(pool = %self.context.pool, block = name, cidr = %cidr, "claimed a block");
    }

    /// If the name of a block is taken, the block may be this node's own, from a CREATE whose response was lost. The node then
    /// takes it up as if the watch had reported it: by a swap, with the same checks as after a claim.
    async fn find_taken(
        &mut self,
        blocks: &mut BlockReconciler,
        wanted: ClaimTarget<'_>,
        name: &str,
        cidr: BlockCidr,
    ) -> Result<Option<Claimed>, ReconcileError> {
        let ClaimTarget { target, me, .. } = wanted;
        let there: Option<IpBlock> = target.api.get(name).await?;
        let Some(block) = there.filter(|block| {
            block.spec.owner.node == *me.node && block.spec.pool == self.context.pool.as_str()
        }) else {
            return Ok(None);
        };
        let now = block_record(&block);
        blocks.known_mut().note(name, Some(block));
        let mode = |file: Option<PoolFile>| local_block(file.as_ref(), name).map(|local| local.mode);
        let before = self.context.file().await?;
        if now.owner != *me || now.phase != Phase::Active || mode(before).is_some() {
            return Ok(None);
        }
        blocks
            .reconcile_block(name, Some(cidr), Desired::Keep, target)
            .await?;
        let after = self.context.file().await?;
        if mode(after) == Some(Mode::Active) {
            self.note_claim(name, cidr);
            return Ok(Some(Claimed::Yes));
        }
        Ok(Some(Claimed::Unlisted))
    }
}

/// Whether the node has as many blocks of the family as `maxBlocksPerNode` allows, not counting the block named `but`. A shared
/// block names its last owner, but all nodes use it.
fn is_at_limit(blocks: &BlockReconciler, wanted: ClaimTarget<'_>, but: Option<&str>) -> bool {
    let limit = usize::try_from(wanted.accepted.spec.max_blocks_per_node).unwrap_or_default();
    let family = wanted.layout.family();
    let counts = |block: &&IpBlock| {
        cidr_of(block).is_some_and(|cidr| cidr.family() == family)
            && block.spec.owner.node == *wanted.me.node
            && block.spec.state != BlockState::Shared
            && Some(block.name_any().as_str()) != but
    };
    let own = blocks.known().all().values().filter(counts).count();
    limit > 0 && own >= limit
}

#[cfg(test)]
mod tests;
