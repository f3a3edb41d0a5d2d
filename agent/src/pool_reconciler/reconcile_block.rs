// SPDX-License-Identifier: Apache-2.0
//! Carries out the steps of the block state machine.

use super::allocatable::Allocatable;
use super::context::{PoolContext, Target, is_listed};
use super::known_blocks::KnownBlocks;
use super::namesakes::Namesakes;
use super::pool_file::{BlockStep, Entry, PoolFileWriter, Removal};
use super::publish::Publisher;
use super::surplus::IdleBlocks;
use crate::node::local_block;
use api::IpBlock;
use api::accepted_pool::AcceptedPool;
use api::block_layout::BlockCidr;
use api::convert::{IN_USE, block_record, cidr_of, in_use, new_block, now, with_record};
use api::requests::{ApiError, ReconcileError, Requests, WriteResult};
use block::owner::{Desired, NodeIdentity, Step, next};
use block::{BlockRecord, LocalBlock, Mode, Owner, Usage};
use ipam::clock::{Clock, KernelClock};
use kube::ResourceExt;
use std::collections::{BTreeSet, HashSet};

/// Whether an administrator has deleted the block. Its object stays until its owner returns it.
fn is_being_deleted(block: &IpBlock) -> bool {
    block.metadata.deletion_timestamp.is_some()
}

/// `names` in order, beginning with the first name after `last`.
fn behind(names: BTreeSet<String>, last: Option<String>) -> Vec<String> {
    let (before, behind): (Vec<_>, Vec<_>) = match last {
        Some(last) => names.into_iter().partition(|name| *name <= last),
        None => (Vec::new(), names.into_iter().collect()),
    };
    behind.into_iter().chain(before).collect()
}

/// The maximum number of steps for one block before other blocks get their turn.
const STEPS: usize = 8;

/// Which state of a block the next step is computed from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Freshness {
    /// The known state. It is good enough for doing nothing and for requests with preconditions.
    Known,
    /// The state that the API server returns now.
    Read,
}

/// Reconciles the blocks of this node: takes the steps of the state machine, and writes the file that follows from them.
pub(super) struct BlockReconciler {
    context: PoolContext,
    known: KnownBlocks,
    file: PoolFileWriter,
    publisher: Publisher,
    idle: IdleBlocks,
    namesakes: Namesakes,
    /// This process has closed the blocks of an unproven file ([`PoolFileWriter::close_unproven`]). The file counts as unproven
    /// until it is written again, so a second call could close the blocks that have opened since.
    closed: bool,
    /// Since this process started, every block of the file has been compared with the API server.
    proven: bool,
    /// The blocks already compared, until `proven` is set.
    compared: HashSet<String>,
    /// The block at which the last round was interrupted.
    cut_at: Option<String>,
    /// A block was removed from the file although leases may have addresses of it, and [`Self::take_removed`] has not returned that
    /// yet.
    removed: bool,
}

impl BlockReconciler {
    pub(super) fn new(context: PoolContext) -> Self {
        Self {
            known: KnownBlocks::new(context.clone()),
            file: PoolFileWriter::new(context.clone()),
            publisher: Publisher::new(context.clone()),
            idle: IdleBlocks::default(),
            namesakes: Namesakes::new(context.clone()),
            closed: false,
            proven: false,
            compared: HashSet::new(),
            cut_at: None,
            removed: false,
            context,
        }
    }

    /// The newest known versions of the blocks.
    pub(super) fn known(&self) -> &KnownBlocks {
        &self.known
    }

    pub(super) fn known_mut(&mut self) -> &mut KnownBlocks {
        &mut self.known
    }

    /// The writer of the pool's file.
    pub(super) fn file_mut(&mut self) -> &mut PoolFileWriter {
        &mut self.file
    }

    /// The publisher of the leases of this node.
    pub(super) fn publisher_mut(&mut self) -> &mut Publisher {
        &mut self.publisher
    }

    /// Since this process started, every block of the file has been compared with the API server.
    pub(super) fn is_proven(&self) -> bool {
        self.proven
    }

    /// Whether the plugin may allocate from each active block of the file: this process has compared the block with the API server.
    /// If it has closed the blocks of the file, each block is closed until it is compared.
    pub(super) fn may_confirm(&self) -> bool {
        self.proven || self.closed
    }

    /// Whether a block was removed since the last call although leases may have addresses of it. These addresses need objects.
    pub(super) fn take_removed(&mut self) -> bool {
        std::mem::take(&mut self.removed)
    }

    /// Writes the content of the file except its blocks.
    pub(super) async fn write_file(&mut self, target: &Target) -> Result<(), ReconcileError> {
        let confirm = self.may_confirm();
        self.file.write(&self.known, target, confirm).await
    }

    /// Writes a block into the file, unless the answer that justifies the write is too old.
    pub(super) async fn write_block(
        &mut self,
        about: BlockStep<'_>,
        local: LocalBlock,
    ) -> Result<(), ReconcileError> {
        self.file.write_block(&self.known, about, local).await
    }

    /// Takes the pending steps of every block. Notes it if all blocks were compared with the API server.
    pub(super) async fn reconcile(&mut self, target: &Target) -> Result<(), ReconcileError> {
        // A quarantine may end before the blocks are compared.
        if !self.closed && !self.proven {
            self.closed = self.file.close_unproven().await?;
        }
        self.reconcile_blocks(target).await?;
        self.proven = true;
        self.compared.clear();
        Ok(())
    }

    /// Takes the pending steps of every block that the file or the API server names.
    async fn reconcile_blocks(&mut self, target: &Target) -> Result<(), ReconcileError> {
        let blocks = self.known.all();
        let (holdings, usage) = self.context.holdings(&blocks).await?;
        let in_file = holdings
            .file
            .iter()
            .flat_map(|file| &file.blocks)
            .map(|block| block.name.clone());
        let names: BTreeSet<String> = in_file.chain(blocks.keys().cloned()).collect();
        let rest = self.context.agent.config.idle;
        let allocatable = Allocatable::of(holdings.file.as_ref(), &usage);
        let surplus = self
            .idle
            .surplus(rest, target, holdings.file.as_ref(), &allocatable);
        let mut refused = None;
        for name in behind(names, self.cut_at.take()) {
            let cidr = holdings
                .file
                .iter()
                .flat_map(|file| &file.blocks)
                .find(|block| block.name == name);
            let cidr = blocks
                .get(&name)
                .and_then(cidr_of)
                .or_else(|| BlockCidr::of(cidr?.cidr));
            let doomed = blocks.get(&name).is_some_and(is_being_deleted);
            let desired = if doomed {
                Desired::Drain
            } else {
                let has_free = cidr.is_some_and(|cidr| allocatable.free(&name, cidr) > 0);
                let desired = desired_use(target, &name, cidr, has_free, surplus.contains(&name));
                self.keep_if_unshareable(desired, cidr).await?
            };
            match self.reconcile_block(&name, cidr, desired, target).await {
                Ok(()) if self.proven => {}
                Ok(()) => {
                    self.compared.insert(name);
                }
                Err(failure) if failure.is_unanswered() => {
                    // The next round begins with the block after this one.
                    self.cut_at = Some(name);
                    return Err(failure);
                }
                Err(failure) => {
                    tracing::warn!(pool = %self.context.pool, block = name, error = %failure, "reconciling a block failed");
                    refused.get_or_insert(failure);
                }
            }
        }
        refused.map_or(Ok(()), Err)
    }

    /// `desired`, except that a block that cannot be shared is kept. A block whose sharing has begun is never this node's again.
    async fn keep_if_unshareable(
        &mut self,
        desired: Desired,
        cidr: Option<BlockCidr>,
    ) -> Result<Desired, ReconcileError> {
        if desired == Desired::Share && !self.publisher.can_share(cidr).await? {
            return Ok(Desired::Keep);
        }
        Ok(desired)
    }

    /// Takes the steps of one block until none is left.
    pub(super) async fn reconcile_block(
        &mut self,
        name: &str,
        cidr: Option<BlockCidr>,
        desired: Desired,
        target: &Target,
    ) -> Result<(), ReconcileError> {
        let mut freshness = self.freshness(name);
        let mut unpublished = None;
        for _ in 0..STEPS {
            let asked = KernelClock.since_boot()?;
            let block = self.read(&target.api, name, freshness).await?;
            let Some(me) = self.context.agent.identity() else {
                return Ok(());
            };
            let (in_file, used) = self.local_state(&target.api, name, cidr).await?;
            let step = next(
                &me,
                block.as_ref().map(block_record).as_ref(),
                in_file,
                used,
                desired,
            );
            if step == Step::Publish && unpublished.replace(used.unpublished) == Some(used.unpublished) {
                // The rest cannot be published now.
                return Ok(());
            }
            // The watch may lag.
            let is_judged_by_object = matches!(step, Step::Remove | Step::WriteFile(_))
                || step == Step::RemoveIfIdle && block.is_none();
            if is_judged_by_object && freshness == Freshness::Known {
                freshness = Freshness::Read;
                continue;
            }
            if step == Step::None {
                let Some(block) = block else { return Ok(()) };
                return match (&me, in_file, cidr) {
                    (NodeIdentity::Gone(_), Some(_), Some(cidr)) if in_use(&block) && used.is_idle() => {
                        self.report_use(&target.api, name, &block, cidr).await
                    }
                    (NodeIdentity::Registered(owner), None, _) => {
                        let namesakes = &mut self.namesakes;
                        namesakes
                            .review(&target.api, &mut self.known, &block, owner)
                            .await
                    }
                    _ => Ok(()),
                };
            }
            let about = BlockStep {
                name,
                cidr,
                asked,
                target,
                entry: Entry::of(in_file),
            };
            tracing::debug!(pool = %self.context.pool, block = name, ?step, "taking a step for a block");
            let done = step == Step::Report;
            freshness = self.take(about, block, step).await?;
            if done {
                // The step stays due as long as pods hold addresses; once per round is enough.
                return Ok(());
            }
        }
        Ok(())
    }

    /// Whether a step may be computed from the known state of a block: not before its first comparison with the API server.
    fn freshness(&self, name: &str) -> Freshness {
        if self.proven || self.compared.contains(name) {
            Freshness::Known
        } else {
            Freshness::Read
        }
    }

    /// The state of a block, known or read now; none if there is no such object.
    async fn read(
        &mut self,
        api: &Requests,
        name: &str,
        freshness: Freshness,
    ) -> Result<Option<IpBlock>, ReconcileError> {
        if freshness == Freshness::Known {
            return Ok(self.known.all().remove(name));
        }
        let block = api.get(name).await?;
        self.known.note(name, block.clone());
        Ok(block)
    }

    /// The entry of the file for a block, and the use of the block on this node.
    async fn local_state(
        &mut self,
        api: &Requests,
        name: &str,
        cidr: Option<BlockCidr>,
    ) -> Result<(Option<LocalBlock>, Usage), ReconcileError> {
        let (in_file, used) = self.local_use(name, cidr).await?;
        let is_sharing = |local: LocalBlock| local.mode == Mode::Sharing;
        let (Some(block), true) = (cidr.map(BlockCidr::network), in_file.is_some_and(is_sharing)) else {
            return Ok((in_file, used));
        };
        let stores = &self.context.agent.stores;
        stores.hand_over_resting(&self.context.pool, block).await?;
        let (in_file, mut used) = self.local_use(name, cidr).await?;
        let unpublished = self.publisher.unpublished(api, cidr).await?;
        used.unpublished = unpublished.taken.saturating_add(unpublished.resting);
        used.resting = used.resting.saturating_add(unpublished.resting);
        Ok((in_file, used))
    }

    async fn local_use(
        &self,
        name: &str,
        cidr: Option<BlockCidr>,
    ) -> Result<(Option<LocalBlock>, Usage), ReconcileError> {
        let cidrs = cidr.map(BlockCidr::network).into_iter().collect();
        let stores = &self.context.agent.stores;
        let holdings = stores.holdings(&self.context.pool, cidrs).await?;
        let in_file = local_block(holdings.file.as_ref(), name);
        Ok((in_file, holdings.usage.first().copied().unwrap_or_default()))
    }

    /// Takes one step. Returns which state the next step is computed from.
    async fn take(
        &mut self,
        about: BlockStep<'_>,
        block: Option<IpBlock>,
        step: Step,
    ) -> Result<Freshness, ReconcileError> {
        let BlockStep {
            name, cidr, target, ..
        } = about;
        match (step, block, cidr) {
            (Step::None, ..) => {}
            (Step::Replace { to, then }, Some(block), _) => {
                let wanted = with_record(&block, &to, &self.context.agent.config.node);
                let WriteResult::Applied(after) = target.api.replace(&wanted).await? else {
                    return Ok(Freshness::Read);
                };
                self.known.note(name, Some(after));
                if let Some(local) = then {
                    // The block may have had other owners since. The view of the pool must be as fresh as for a new claim.
                    if about.entry == Entry::Closed
                        && local.mode == Mode::Active
                        && !self.admitted(target, cidr).await?
                    {
                        return Ok(Freshness::Read);
                    }
                    self.write_block(about, local).await?;
                }
            }
            (Step::Claim { to, then }, None, Some(_)) => {
                return Box::pin(self.claim_again(about, &to, then)).await;
            }
            (Step::Report, Some(block), Some(cidr)) => {
                self.report_use(&target.api, name, &block, cidr).await?;
            }
            (Step::WriteFile(local), ..) => self.write_block(about, local).await?,
            (Step::RemoveIfIdle, ..) => {
                if self.file.remove_block(name, Removal::IfIdle).await? {
                    tracing::info!(pool = %self.context.pool, block = name, "returning an idle block");
                }
            }
            (Step::Remove, ..) => {
                let leased = self.leased_in(cidr).await?;
                self.removed = true;
                self.file.remove_block(name, Removal::Always).await?;
                tracing::warn!(pool = %self.context.pool, block = name, leased, "removed a block that this node does not own any more");
            }
            (Step::Delete, Some(block), _) => {
                let WriteResult::Applied(()) = target.api.delete_block(&block).await? else {
                    return Ok(Freshness::Read);
                };
                self.known.note(name, None);
                self.context.agent.metrics.returned(&self.context.pool);
            }
            (Step::Publish, _, Some(cidr)) => self.publisher.publish(target, cidr).await?,
            _ => return Ok(Freshness::Read),
        }
        Ok(Freshness::Known)
    }

    async fn leased_in(&self, cidr: Option<BlockCidr>) -> Result<u64, ReconcileError> {
        match cidr {
            Some(cidr) => self.context.usage_of(cidr).await,
            None => Ok(0),
        }
    }

    /// Reports how many addresses of a block are in use on this node. If the Node is gone, this may be the last report that the
    /// agent can make.
    async fn report_use(
        &mut self,
        api: &Requests,
        name: &str,
        block: &IpBlock,
        cidr: BlockCidr,
    ) -> Result<(), ReconcileError> {
        let used = self.context.usage_of(cidr).await?;
        let status = serde_json::json!({ "reportedAt": now(), "used": used, "free": 0 });
        if let WriteResult::Applied(after) = api.update_status(block, status).await? {
            self.known.note(name, Some(after));
        }
        Ok(())
    }

    /// Creates the object of a block that is in the file and that the API server has lost. Returns which state
    /// the next step is computed from.
    async fn claim_again(
        &mut self,
        about: BlockStep<'_>,
        to: &BlockRecord,
        then: LocalBlock,
    ) -> Result<Freshness, ReconcileError> {
        let (name, Some(cidr)) = (about.name, about.cidr) else {
            return Ok(Freshness::Read);
        };
        let quarantine = self.context.agent.config.daemon.quarantines.unused;
        let mut object = new_block(name, self.context.pool.as_str(), cidr, &to.owner, quarantine);
        let used = (IN_USE.to_owned(), "before this claim".to_owned());
        object.metadata.annotations = Some([used].into());
        let WriteResult::Applied(block) = about.target.api.create(&object).await? else {
            return Ok(Freshness::Read);
        };
        self.known.note(name, Some(block.clone()));
        tracing::warn!(
            pool = %self.context.pool, block = name,
            "claimed a block again that the API server had lost"
        );
        // Another node may have had the block in between.
        let Some(counted) = self.count_claim(&about.target.api, &block, &to.owner).await? else {
            return Ok(Freshness::Read);
        };
        self.write_block(
            BlockStep {
                entry: Entry::Closed,
                ..about
            },
            counted.local(then.mode),
        )
        .await?;
        Ok(Freshness::Known)
    }

    /// Increments the epoch of a block that `me` has claimed just now: the plugin probes addresses of blocks whose epoch is not the
    /// first. None if another process has changed the block.
    pub(super) async fn count_claim(
        &mut self,
        api: &Requests,
        block: &IpBlock,
        me: &Owner,
    ) -> Result<Option<BlockRecord>, ReconcileError> {
        let (name, to) = (block.name_any(), block_record(block).owned_by(me));
        let wanted = with_record(block, &to, &self.context.agent.config.node);
        let swapped = api.replace(&wanted).await;
        if let Err(ApiError::NoResponse { .. }) = swapped {
            self.context.agent.watch_block(&name);
        }
        let WriteResult::Applied(after) = swapped? else {
            return Ok(None);
        };
        self.known.note(&name, Some(after));
        Ok(Some(to))
    }

    /// Whether the address space lists the pool with this block. True if the pool is gone, since nothing is allocated from it.
    async fn admitted(&self, target: &Target, cidr: Option<BlockCidr>) -> Result<bool, ReconcileError> {
        let (Some(accepted), Some(cidr)) = (&target.accepted, cidr) else {
            return Ok(true);
        };
        match accepted.layout(cidr.family()) {
            Some(layout) if layout.has(cidr) => is_listed(&target.api, accepted, (layout, cidr)).await,
            _ => Ok(true),
        }
    }
}

/// What this node should do with one block.
fn desired_use(
    target: &Target,
    name: &str,
    cidr: Option<BlockCidr>,
    has_free: bool,
    surplus: bool,
) -> Desired {
    // An earlier pool of this name may have had the block in another address space.
    let has = |accepted: &AcceptedPool| {
        let is_there =
            |cidr: BlockCidr| accepted.has(cidr) && cidr.name(&accepted.spec.address_space) == name;
        accepted.has_blocks() && cidr.is_some_and(is_there)
    };
    if !target.open || !target.accepted.as_ref().is_some_and(has) {
        Desired::Drain
    } else if has_free && target.sharing.iter().any(|asked| asked == name) {
        // A block without a free address is not shared. The report of its use shows that it has none.
        Desired::Share
    } else if surplus {
        Desired::Return
    } else {
        Desired::Keep
    }
}

#[cfg(test)]
mod tests;
