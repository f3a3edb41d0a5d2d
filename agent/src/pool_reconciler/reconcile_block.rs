// SPDX-License-Identifier: Apache-2.0
//! Carries out the steps of the block state machine.

use super::{PoolReconciler, Target};
use crate::agent::ReconcileError;
use crate::node::{entry, local_block, usage};
use api::IpBlock;
use api::block_layout::BlockCidr;
use api::convert::{block_record, cidr_of, in_use, new_block, now, with_record};
use api::requests::{WriteResult, create, delete_block, get, replace, update_status};
use block::orphan::{Decider, OrphanAction, OwnerState, Watched, decide};
use block::owner::{Desired, NodeIdentity, Step, next};
use block::{BlockRecord, LocalBlock, Mode, Usage};
use ipam::pool::PoolFile;
use ipam::range::Family;
use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

/// A block for which a step is carried out.
#[derive(Clone, Copy)]
pub(super) struct BlockStep<'a> {
    pub(super) name: &'a str,
    pub(super) cidr: Option<BlockCidr>,
    /// When the block was last requested, by the clock that plugins use.
    pub(super) asked: Duration,
    pub(super) target: &'a Target,
    /// The block is not in the file yet, so other nodes may have created objects for its addresses.
    pub(super) anew: bool,
}

/// An active block that the node may not need.
struct Spare<'a> {
    name: &'a str,
    /// The number of its free addresses.
    free: u64,
    /// None of its addresses has been in use for a while.
    rested: bool,
}

/// The rested blocks that the node can return and still have `wanted` free addresses.
fn without<'a>(blocks: &[Spare<'a>], wanted: u64) -> Vec<&'a str> {
    let mut free = blocks
        .iter()
        .fold(0_u64, |sum, block| sum.saturating_add(block.free));
    let mut spare = Vec::new();
    for block in blocks {
        if block.rested && free.saturating_sub(block.free) >= wanted {
            free = free.saturating_sub(block.free);
            spare.push(block.name);
        }
    }
    spare
}

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

impl PoolReconciler {
    /// Takes the pending steps of every block that the file or the API server names.
    pub(super) async fn reconcile_blocks(&mut self, target: &Target) -> Result<(), ReconcileError> {
        let blocks = self.blocks();
        let (holdings, usage) = self.holdings(&blocks).await?;
        let in_file = holdings
            .file
            .iter()
            .flat_map(|file| &file.blocks)
            .map(|block| block.name.clone());
        let names: BTreeSet<String> = in_file.chain(blocks.keys().cloned()).collect();
        let surplus = self.surplus(target, holdings.file.as_ref(), &usage);
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
            let used = usage.get(&name).copied().unwrap_or_default();
            let doomed = blocks.get(&name).is_some_and(is_being_deleted);
            let wish = if doomed {
                Desired::Drain
            } else {
                Self::desired_use(target, &name, cidr, used, surplus.contains(&name))
            };
            match self.reconcile_block(&name, cidr, wish, target).await {
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
                    tracing::warn!(pool = %self.pool, block = name, error = %failure, "reconciling a block failed");
                    refused.get_or_insert(failure);
                }
            }
        }
        refused.map_or(Ok(()), Err)
    }

    /// The blocks that this node does not need: they have been idle for a while, and enough addresses are free without them.
    fn surplus(
        &mut self,
        target: &Target,
        file: Option<&PoolFile>,
        usage: &BTreeMap<String, Usage>,
    ) -> BTreeSet<String> {
        let idle_now: BTreeSet<String> = usage
            .iter()
            .filter(|(_, used)| used.is_idle())
            .map(|(name, _)| name.clone())
            .collect();
        self.idle.retain(|name, _| idle_now.contains(name));
        for name in idle_now {
            self.idle.entry(name).or_insert_with(Instant::now);
        }
        let (Some(accepted), Some(file)) = (&target.accepted, file) else {
            return BTreeSet::new();
        };
        let rested = |name: &str| {
            let since = self.idle.get(name);
            since.is_some_and(|since| since.elapsed() >= self.agent.config.idle)
        };
        let mut surplus = BTreeSet::new();
        for layout in &accepted.layouts {
            let room = |name: &str, cidr| {
                let all = u64::try_from(layout.usable(cidr).count()).unwrap_or(u64::MAX);
                let used = usage.get(name).copied().unwrap_or_default();
                all.saturating_sub(used.taken())
            };
            let blocks = file
                .active()
                .filter_map(|block| Some((block.name.as_str(), BlockCidr::of(block.cidr)?)))
                .filter(|(_, cidr)| layout.has(*cidr))
                .map(|(name, cidr)| Spare {
                    name,
                    free: room(name, cidr),
                    rested: rested(name),
                })
                .collect::<Vec<_>>();
            let names = without(&blocks, accepted.free_target(layout.family()));
            surplus.extend(names.into_iter().map(str::to_owned));
        }
        surplus
    }

    /// Takes the steps of one block until none is left.
    pub(super) async fn reconcile_block(
        &mut self,
        name: &str,
        cidr: Option<BlockCidr>,
        wish: Desired,
        target: &Target,
    ) -> Result<(), ReconcileError> {
        let mut fresh = !self.proven && !self.compared.contains(name);
        for _ in 0..STEPS {
            let asked = self.agent.stores.since_boot()?;
            let block = if fresh {
                let block = get(&self.agent.cluster.blocks, name).await?;
                self.note(name, block.clone());
                block
            } else {
                self.blocks().remove(name)
            };
            let Some(me) = self.agent.identity() else {
                return Ok(());
            };
            let cidrs: Vec<_> = cidr.map(BlockCidr::network).into_iter().collect();
            let holdings = self.agent.stores.holdings(&self.pool, cidrs).await?;
            let in_file = local_block(holdings.file.as_ref(), name);
            let mut used = holdings.usage.first().copied().unwrap_or_default();
            if in_file.is_some_and(|held| held.mode == Mode::Sharing) {
                used.unpublished = self.unpublished(cidr).await?;
            }
            let step = next(
                &me,
                block.as_ref().map(block_record).as_ref(),
                in_file,
                used,
                wish,
            );
            // The watch may lag. Its state is good enough for doing nothing and for requests with preconditions.
            if matches!(step, Step::Remove | Step::WriteFile(_)) && !fresh {
                fresh = true;
                continue;
            }
            if step == Step::None {
                if let (NodeIdentity::Gone(_), Some(block), Some(cidr), Some(_)) =
                    (&me, &block, cidr, in_file)
                    && in_use(block)
                    && used.is_idle()
                {
                    return self.report_use(name, block, cidr).await;
                }
                return self.review_namesake(name, block.as_ref(), in_file, &me).await;
            }
            let about = BlockStep {
                name,
                cidr,
                asked,
                target,
                anew: in_file.is_none(),
            };
            tracing::debug!(pool = %self.pool, block = name, ?step, "taking a step for a block");
            let done = step == Step::Report;
            fresh = !self.take(about, block, step).await?;
            if done {
                // The step stays due as long as pods hold addresses; once per round is enough.
                return Ok(());
            }
        }
        Ok(())
    }

    /// Takes one step. Returns whether the noted state of the block is up to date afterwards.
    async fn take(
        &mut self,
        about: BlockStep<'_>,
        block: Option<IpBlock>,
        step: Step,
    ) -> Result<bool, ReconcileError> {
        let BlockStep {
            name, cidr, target, ..
        } = about;
        match (step, block, cidr) {
            (Step::None, ..) => {}
            (Step::Replace { to, then }, Some(block), _) => {
                let wanted = with_record(&block, &to, &self.agent.config.node);
                let WriteResult::Applied(after) = replace(&self.agent.cluster.blocks, &wanted).await? else {
                    return Ok(false);
                };
                self.note(name, Some(after));
                if let Some(held) = then {
                    // The block may have had other owners since. The view of the pool must be as fresh as for a new claim.
                    if about.anew && held.mode == Mode::Active && !self.admitted(target, cidr).await? {
                        return Ok(false);
                    }
                    self.write_block(about, held).await?;
                }
            }
            (Step::Claim { to, then }, None, Some(_)) => return self.claim_again(about, &to, then).await,
            (Step::Report, Some(block), Some(cidr)) => {
                self.report_use(name, &block, cidr).await?;
            }
            (Step::WriteFile(held), ..) => self.write_block(about, held).await?,
            (Step::RemoveIfIdle, ..) => {
                if self.withdraw(name, true).await? {
                    tracing::info!(pool = %self.pool, block = name, "returning an idle block");
                }
            }
            (Step::Remove, ..) => {
                let leased = match cidr {
                    Some(cidr) => self.usage_of(cidr).await?,
                    None => 0,
                };
                self.withdraw(name, false).await?;
                tracing::warn!(pool = %self.pool, block = name, leased, "removed a block that this node does not own any more");
            }
            (Step::Delete, Some(block), _) => {
                let WriteResult::Applied(()) = delete_block(&self.agent.cluster.blocks, &block).await? else {
                    return Ok(false);
                };
                self.note(name, None);
                self.agent.metrics.returned(&self.pool);
            }
            (Step::Publish, _, Some(cidr)) => self.publish(cidr).await?,
            _ => return Ok(false),
        }
        Ok(true)
    }

    /// Reports how many addresses of a block are in use on this node. If the Node is gone, this may be the last report that the
    /// agent can make.
    async fn report_use(
        &mut self,
        name: &str,
        block: &IpBlock,
        cidr: BlockCidr,
    ) -> Result<(), ReconcileError> {
        let used = self.usage_of(cidr).await?;
        let status = serde_json::json!({ "mirroredAt": now(), "used": used, "free": 0 });
        if let WriteResult::Applied(after) = update_status(&self.agent.cluster.blocks, block, status).await? {
            self.note(name, Some(after));
        }
        Ok(())
    }

    /// Creates the object of a block that is in the file and that the API server has lost. Returns whether the noted state of the
    /// block is up to date afterwards.
    async fn claim_again(
        &mut self,
        about: BlockStep<'_>,
        to: &BlockRecord,
        then: LocalBlock,
    ) -> Result<bool, ReconcileError> {
        let (name, Some(cidr)) = (about.name, about.cidr) else {
            return Ok(false);
        };
        let mut object = new_block("", self.pool.as_str(), cidr, &to.owner);
        object.metadata.name = Some(name.to_owned());
        object.spec.quarantine_seconds = i64::try_from(self.agent.config.quarantine.as_secs()).ok();
        let WriteResult::Applied(block) = create(&self.agent.cluster.blocks, &object).await? else {
            return Ok(false);
        };
        self.note(name, Some(block));
        tracing::warn!(
            pool = %self.pool, block = name,
            "claimed a block again that the API server had lost"
        );
        self.write_block(BlockStep { anew: true, ..about }, then).await?;
        Ok(true)
    }

    /// The number of addresses of a block that leases of this node hold.
    async fn usage_of(&self, cidr: BlockCidr) -> Result<u64, ReconcileError> {
        let holdings = self
            .agent
            .stores
            .holdings(&self.pool, vec![cidr.network()])
            .await?;
        Ok(holdings.usage.first().map_or(0, |used| used.leased))
    }

    /// Whether the address space lists the pool with this block. True if the pool is gone, since nothing is allocated from it.
    async fn admitted(&self, target: &Target, cidr: Option<BlockCidr>) -> Result<bool, ReconcileError> {
        let (Some(accepted), Some(cidr)) = (&target.accepted, cidr) else {
            return Ok(true);
        };
        match accepted.layout(Family::of(cidr.network().ip())) {
            Some(layout) if layout.has(cidr) => self.listed(accepted, layout, cidr).await,
            _ => Ok(true),
        }
    }

    /// Writes the block into the file, unless the answer that justifies the write is too old.
    pub(super) async fn write_block(
        &mut self,
        about: BlockStep<'_>,
        held: LocalBlock,
    ) -> Result<(), ReconcileError> {
        let BlockStep {
            name,
            cidr,
            asked,
            target,
            anew,
        } = about;
        let (Some(base), Some(cidr)) = (self.base(target).await?, cidr) else {
            return Ok(());
        };
        let new = entry(name, cidr.network(), held);
        let space = target
            .accepted
            .as_ref()
            .map(|accepted| accepted.spec.address_space.clone());
        let mut back: Vec<String> = Vec::new();
        if let Some(space) = space.filter(|_| anew) {
            let there = self.objects_in(&space, cidr).await?;
            back = there.iter().map(ToString::to_string).collect();
        }
        let (age, stores) = (self.agent.config.answer_age(), self.agent.stores.clone());
        self.agent
            .stores
            .edit(&self.pool, move |_, before| {
                // Checked under the lock, since this process may have waited for the lock.
                if stores.since_boot()?.saturating_sub(asked) > age {
                    return Ok(None);
                }
                let mut file = before.unwrap_or(base);
                file.blocks.retain(|block| block.name != new.name);
                file.blocks.push(new);
                back.retain(|ip| !file.reserved.contains(ip));
                file.reserved.extend(back);
                Ok(Some(file))
            })
            .await?;
        Ok(())
    }

    /// A file without blocks, for a pool that has no file on this node yet.
    async fn base(&mut self, target: &Target) -> Result<Option<PoolFile>, ReconcileError> {
        let (Some(accepted), Some(NodeIdentity::Registered(owner))) =
            (&target.accepted, self.agent.identity())
        else {
            // The pool is gone, so the file is the only source.
            return self.file().await;
        };
        let writer = self.writer(owner)?;
        let namespaces = self.namespaces(accepted).await?;
        Ok(Some(accepted.file(&writer, namespaces, target.counters)))
    }

    /// Removes the block from the file. `if_idle`: only if no lease holds an address of it and none of its addresses rests.
    async fn withdraw(&mut self, name: &str, if_idle: bool) -> Result<bool, ReconcileError> {
        let name = name.to_owned();
        let written = self
            .agent
            .stores
            .edit(&self.pool, move |locked, before| {
                let Some(mut file) = before else { return Ok(None) };
                let Some(at) = file.blocks.iter().position(|block| block.name == name) else {
                    return Ok(None);
                };
                let block = file.blocks.remove(at);
                let idle = || {
                    Ok::<_, common::cni::Error>(
                        usage(locked, Some(&file), &[block.cidr])?
                            .iter()
                            .all(|used| used.is_idle()),
                    )
                };
                Ok((!if_idle || idle()?).then_some(file))
            })
            .await?;
        Ok(written)
    }

    /// Ends a block of an earlier registration of this node's name that is not in this node's file, by the same rules as a block
    /// of a gone node. Only this node can tell that no pod here uses it.
    async fn review_namesake(
        &mut self,
        name: &str,
        block: Option<&IpBlock>,
        in_file: Option<LocalBlock>,
        me: &NodeIdentity,
    ) -> Result<(), ReconcileError> {
        let (Some(block), None, NodeIdentity::Registered(owner)) = (block, in_file, me) else {
            return Ok(());
        };
        let seen = block_record(block);
        if seen.owner.node != owner.node || seen.owner == *owner {
            return Ok(());
        }
        let sight = OwnerState {
            decider: Decider::Namesake,
            registered: Some(owner.clone()),
            has_pods: false,
        };
        let version = block.metadata.resource_version.clone().unwrap_or_default();
        let watched = self.orphans.get(name).map(|(version, since)| Watched {
            version: version.clone(),
            unchanged: since.elapsed(),
        });
        let blocks = &self.agent.cluster.blocks;
        let quarantine = self.agent.config.quarantines().of(block.spec.quarantine_seconds);
        match decide(
            &seen,
            in_use(block),
            &version,
            &sight,
            watched.as_ref(),
            quarantine,
        ) {
            OrphanAction::Leave | OrphanAction::Hold => {}
            OrphanAction::Observe => {
                self.orphans.insert(name.to_owned(), (version, Instant::now()));
            }
            OrphanAction::Orphan => {
                let to = seen.with_phase(block::Phase::Orphaned);
                if let WriteResult::Applied(after) =
                    replace(blocks, &with_record(block, &to, &self.agent.config.node)).await?
                {
                    self.note(name, Some(after));
                }
            }
            OrphanAction::Delete => {
                delete_block(blocks, block).await?;
                self.note(name, None);
                self.orphans.remove(name);
                tracing::info!(pool = %self.pool, block = name, "deleted a block of an earlier registration of this node");
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
