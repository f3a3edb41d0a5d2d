// SPDX-License-Identifier: Apache-2.0
//! Shared blocks: which blocks to share when nodes find no free address, how full the shared ones are, and when they are
//! freed.
//!
//! Invariant: this module decides about no address. Only its owner makes a block shared. A node that claims a block which
//! was freed here first searches for objects of its addresses.

mod batch;

use super::Leader;
use super::probes::enable_probes;
use super::usage::{free_of_shared, objects_in, saturate};
use api::accepted_pool::AcceptedPool;
use api::block_layout::BlockCidr;
use api::convert::{cidr_in, cidr_of, ip_in, now};
use api::requests::{ReconcileError, WriteResult};
use api::{BlockState, IpAddress, IpBlock, IpBlockStatus, IpPoolStatus};
use batch::{Candidate, LastBatch};
use ipam::range::Family;
use kube::ResourceExt;
use kube::runtime::reflector::ObjectRef;
use std::collections::{BTreeSet, HashMap, HashSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// An owner that was asked has this many observation periods to share its block.
const ANSWER_PERIODS: u32 = 2;

/// An owner that was asked and still reports free addresses is not asked again for this many observation periods.
const RETRY_PERIODS: u32 = 20;

/// After owners were asked, no other owners are asked for this many rounds of the controller.
const BATCH_ROUNDS: u32 = 3;

/// The blocks whose owners were asked to share them.
#[derive(Default)]
pub(super) struct ShareRequests {
    /// Blocks whose owners were asked to share them, and when.
    blocks: HashMap<String, Instant>,
    /// The last batch of blocks that were asked for, by pool and family.
    last: HashMap<(String, Family), Batch>,
}

/// Blocks whose owners were asked at the same time.
struct Batch {
    /// Each block with the free addresses that its owner had reported.
    blocks: Vec<(String, u64)>,
    at: Instant,
}

/// What the end of a shared block depends on.
#[derive(Clone, Copy)]
struct SharedPool<'a> {
    name: &'a str,
    space: &'a str,
    /// How long an empty block stays. Of a pool that is gone, the controller does not know the cooldown, and takes its quarantine.
    cooldown: Duration,
}

impl<'a> SharedPool<'a> {
    fn of(accepted: &'a AcceptedPool) -> Self {
        Self {
            name: accepted.name.as_str(),
            space: &accepted.spec.address_space,
            cooldown: accepted.spec.cooldown(),
        }
    }
}

impl ShareRequests {
    fn forget_older(&mut self, max_age: Duration) {
        self.blocks.retain(|_, since| since.elapsed() < max_age);
        self.last.retain(|_, batch| batch.at.elapsed() < max_age);
    }

    /// What is known of a block that could be shared. `before` names the blocks that an earlier leader may have asked for.
    ///
    /// An owner that reports no free address has declined. It is asked again once it reports one, because its pods may have
    /// released addresses since.
    fn candidate(&mut self, block: &IpBlock, before: &[String]) -> Candidate {
        let name = block.name_any();
        let free = block.status.as_ref().map_or(0, |status| status.free);
        let free = u64::try_from(free).unwrap_or_default();
        if free == 0 {
            self.blocks.remove(&name);
        } else if before.contains(&name) {
            self.blocks.entry(name.clone()).or_insert_with(Instant::now);
        }
        Candidate {
            asked: self.blocks.get(&name).map(Instant::elapsed),
            node: block.spec.owner.node.clone(),
            free,
            name,
        }
    }

    /// Allows these blocks to be asked for again at any time.
    fn withdraw(&mut self, candidates: &[Candidate]) {
        for one in candidates {
            self.blocks.remove(&one.name);
        }
    }
}

/// The free addresses of one family of a pool.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct FreeAddresses {
    /// Addresses that are in no block.
    pub(super) unclaimed: u128,
    /// Free addresses of shared blocks.
    pub(super) shared: u128,
}

impl Leader {
    /// `blocks` are those of the pool, `others` those of other pools over the same addresses.
    fn free_addresses(
        &self,
        accepted: &AcceptedPool,
        (blocks, others): (&[Arc<IpBlock>], &[Arc<IpBlock>]),
        family: Family,
    ) -> FreeAddresses {
        let Some(layout) = accepted.layout(family) else {
            return FreeAddresses::default();
        };
        let mut free = FreeAddresses {
            unclaimed: layout.addresses(),
            shared: 0,
        };
        for block in blocks {
            let Some(cidr) = cidr_of(block).filter(|cidr| layout.has(*cidr)) else {
                continue;
            };
            free.unclaimed = free.unclaimed.saturating_sub(layout.usable(cidr).count());
            if block.spec.state == BlockState::Shared {
                free.shared += free_of_shared(accepted, block, &self.addresses);
            }
        }
        for cidr in others.iter().filter_map(|block| cidr_of(block)) {
            free.unclaimed = free.unclaimed.saturating_sub(layout.usable(cidr).count());
        }
        free
    }

    /// Handles the requests of nodes. It asks the owners of blocks with free addresses to share them, a few at first,
    /// until shared addresses are free. An owner may take its time.
    pub(super) fn share(
        &mut self,
        accepted: &AcceptedPool,
        blocks: &[Arc<IpBlock>],
        status: &mut IpPoolStatus,
    ) {
        self.share_requests
            .forget_older(self.context.config.daemon.observation_interval * RETRY_PERIODS);
        let before = std::mem::take(&mut status.sharing);
        if !status.has_shortage() && before.is_empty() {
            return;
        }
        let others = self.blocks_of_others(accepted);
        for family in [Family::V4, Family::V6] {
            let free = self.free_addresses(accepted, (blocks, &others), family);
            let candidates = self.candidates(accepted, blocks, family, &before);
            let mut is_short = status.shortages(family).next().is_some();
            let asked = self.ask_owners(accepted, (family, free), &candidates, &mut is_short);
            if !is_short {
                status.close_requests(family);
            }
            status.sharing.extend(asked);
        }
    }

    /// The `candidates` whose owners are asked now. Clears `is_short` once the request is fulfilled or cannot be.
    fn ask_owners(
        &mut self,
        accepted: &AcceptedPool,
        (family, free): (Family, FreeAddresses),
        candidates: &[Candidate],
        is_short: &mut bool,
    ) -> Vec<String> {
        if !accepted.has_blocks() || free.unclaimed > 0 {
            self.share_requests.withdraw(candidates);
            *is_short = false;
            return Vec::new();
        }
        let timeout = self.context.config.daemon.observation_interval * ANSWER_PERIODS;
        let awaited = candidates.iter().filter(|one| one.is_awaited(timeout));
        let mut asked: Vec<String> = awaited.map(|one| one.name.clone()).collect();
        if free.shared > 0 {
            *is_short = false;
        }
        if *is_short {
            asked.extend(self.next_batch(accepted, family, candidates));
        }
        if asked.is_empty() {
            *is_short = false;
        }
        asked
    }

    /// The blocks that could be shared.
    fn candidates(
        &mut self,
        accepted: &AcceptedPool,
        blocks: &[Arc<IpBlock>],
        family: Family,
        before: &[String],
    ) -> Vec<Candidate> {
        let shareable = blocks
            .iter()
            .filter(|block| matches!(block.spec.state, BlockState::Active | BlockState::Draining))
            .filter(|block| cidr_of(block).is_some_and(|cidr| cidr.family() == family && accepted.has(cidr)))
            .filter(|block| !self.seems_gone(&block.spec.owner));
        let shareable: Vec<&Arc<IpBlock>> = shareable.collect();
        shareable
            .into_iter()
            .map(|block| self.share_requests.candidate(block, before))
            .collect()
    }

    fn next_batch(
        &mut self,
        accepted: &AcceptedPool,
        family: Family,
        candidates: &[Candidate],
    ) -> Vec<String> {
        let key = (accepted.name.to_string(), family);
        let last = self.share_requests.last.get(&key).map(|batch| LastBatch {
            blocks: &batch.blocks,
            age: batch.at.elapsed(),
        });
        let chosen = batch::next(
            candidates,
            last.as_ref(),
            self.context.config.daemon.reconcile_interval * BATCH_ROUNDS,
        );
        if chosen.is_empty() {
            return Vec::new();
        }
        for one in &chosen {
            tracing::info!(
                pool = %accepted.name, block = one.name, node = one.node, free = one.free,
                "asking the owner of a block to share it: nodes find no free address"
            );
            self.share_requests
                .blocks
                .insert(one.name.clone(), Instant::now());
        }
        let blocks = chosen.iter().map(|one| (one.name.clone(), one.free)).collect();
        let at = Instant::now();
        self.share_requests.last.insert(key, Batch { blocks, at });
        chosen.into_iter().map(|one| one.name.clone()).collect()
    }

    /// Reports how full shared blocks are, and frees those that have been empty for a while.
    pub(super) async fn reconcile_shared(
        &mut self,
        accepted: &AcceptedPool,
        blocks: &[Arc<IpBlock>],
    ) -> Result<(), ReconcileError> {
        let space = &accepted.spec.address_space;
        let shared = blocks
            .iter()
            .filter(|block| block.spec.state == BlockState::Shared)
            .filter_map(|block| Some((block, cidr_in(block, space)?)));
        for (block, cidr) in shared {
            let used = objects_in(&self.addresses, space, cidr).count();
            if used == 0 {
                self.free_if_empty(SharedPool::of(accepted), block, cidr).await?;
            } else {
                self.empty.remove(&block.name_any());
                self.report_shared_usage(accepted, block, used).await?;
            }
        }
        Ok(())
    }

    /// Frees the empty shared blocks of pools that are gone. A later pool of the same name may exist: without an accepted spec,
    /// because it conflicts with these blocks, or in another address space. They have no owner that would return them. Forgets
    /// blocks that are not shared any more.
    pub(super) async fn reconcile_lost_shared(&mut self) -> Result<(), ReconcileError> {
        let pools = self.context.pools.clone();
        let is_lost = |block: &&Arc<IpBlock>| {
            let Some(pool) = pools.get(&ObjectRef::new(&block.spec.pool)) else {
                return true;
            };
            AcceptedPool::of(&pool)
                .is_ok_and(|spec| spec.is_none_or(|pool| cidr_in(block, &pool.spec.address_space).is_none()))
        };
        let spaces: Vec<String> = self.spaces().iter().map(|space| space.name_any()).collect();
        let blocks = self.blocks();
        let shared: Vec<&Arc<IpBlock>> = blocks
            .iter()
            .filter(|block| block.spec.state == BlockState::Shared)
            .collect();
        let names: HashSet<String> = shared.iter().map(|block| block.name_any()).collect();
        self.empty.retain(|name, _| names.contains(name));
        for block in shared.into_iter().filter(is_lost) {
            let place = |space: &String| Some((cidr_in(block, space)?, space.clone()));
            let Some((cidr, space)) = spaces.iter().find_map(place) else {
                continue;
            };
            let pool = SharedPool {
                name: &block.spec.pool,
                space: &space,
                cooldown: self.context.config.daemon.quarantines.unused,
            };
            if objects_in(&self.addresses, &space, cidr).count() == 0 {
                self.free_if_empty(pool, block, cidr).await?;
            } else {
                self.empty.remove(&block.name_any());
            }
        }
        Ok(())
    }

    async fn report_shared_usage(
        &mut self,
        accepted: &AcceptedPool,
        block: &IpBlock,
        used: u128,
    ) -> Result<(), ReconcileError> {
        let name = block.name_any();
        let free = free_of_shared(accepted, block, &self.addresses);
        let (used, free) = (saturate(used), saturate(free));
        let written = block.status.as_ref().map(|status| (status.used, status.free));
        let recent = self
            .written_at
            .get(&name)
            .is_some_and(|at| at.elapsed() < self.context.config.daemon.report_interval);
        if written == Some((used, free)) || recent {
            return Ok(());
        }
        let status = IpBlockStatus {
            used,
            free,
            reported_at: Some(now()),
            ..IpBlockStatus::default()
        };
        self.context.api.patch_status::<IpBlock>(&name, &status).await?;
        self.written_at.insert(name, Instant::now());
        Ok(())
    }

    /// Frees a shared block that has been empty for the cooldown of `pool`, or for one observation period if that is longer. A
    /// gone node or a process without a lease may still use an address of it, and the next owner does not know that. So the block
    /// waits until nodes probe the blocks that they claim.
    async fn free_if_empty(
        &mut self,
        pool: SharedPool<'_>,
        block: &IpBlock,
        cidr: BlockCidr,
    ) -> Result<(), ReconcileError> {
        let name = block.name_any();
        let since = *self.empty.entry(name.clone()).or_insert_with(Instant::now);
        let observed = self.context.config.daemon.observation_interval;
        if since.elapsed() < observed.max(pool.cooldown) {
            return Ok(());
        }
        let fields = format!("spec.block={}", cidr.network());
        let addresses: Vec<IpAddress> = self.context.api.list(&fields).await?;
        if addresses
            .iter()
            .any(|address| ip_in(address, pool.space).is_some())
        {
            self.empty.remove(&name);
            return Ok(());
        }
        let pools = BTreeSet::from([pool.name]);
        let waiting = enable_probes(&self.context, &self.spaces(), &pools).await?;
        if !waiting.is_empty() {
            return Ok(());
        }
        if self.context.api.delete_block(block).await? == WriteResult::Applied(()) {
            let evidence = "two observations found no address of the block in use";
            tracing::info!(
                pool = pool.name,
                block = name,
                seconds = since.elapsed().as_secs(),
                evidence,
                "freed an empty shared block"
            );
        }
        self.empty.remove(&name);
        Ok(())
    }
}

#[cfg(test)]
mod tests;
