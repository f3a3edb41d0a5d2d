// SPDX-License-Identifier: Apache-2.0
//! Writes `pool.json`, and when this node was last known to be registered (`confirmed`).

use super::context::{PoolContext, Target};
use super::known_blocks::{KnownBlocks, WATCH_LAG};
use super::withheld::Withheld;
use crate::node::{entry, usage};
use api::accepted_pool::{AcceptedPool, Writer};
use api::block_layout::BlockCidr;
use api::requests::{ReconcileError, Requests};
use block::owner::NodeIdentity;
use block::{LocalBlock, Mode, Owner};
use ipam::clock::{Clock, KernelClock};
use ipam::pool::{BlockState, PoolFile, Standing};
use kube::core::{Selector, SelectorExt};
use std::collections::HashMap;
use std::time::{Duration, Instant};

/// Whether the node allocates from a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Entry {
    /// The file does not have the block, or the block drains. So other nodes may have created objects for its addresses: before a
    /// claim, or after a restore of etcd.
    Closed,
    /// The node allocates from the block, or shares it.
    Open,
}

impl Entry {
    /// The case of a block that the file has as `local`.
    pub(super) fn of(local: Option<LocalBlock>) -> Self {
        match local.map(|local| local.mode) {
            None | Some(Mode::Draining) => Self::Closed,
            Some(Mode::Active | Mode::Sharing | Mode::Shared) => Self::Open,
        }
    }
}

/// A block for which a step is carried out.
#[derive(Clone, Copy)]
pub(super) struct BlockStep<'a> {
    pub(super) name: &'a str,
    pub(super) cidr: Option<BlockCidr>,
    /// When the block was last requested, by the clock that plugins use.
    pub(super) asked: Duration,
    pub(super) target: &'a Target,
    pub(super) entry: Entry,
}

/// When a block is removed from the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Removal {
    /// Only if no lease has an address of it and none of its addresses rests.
    IfIdle,
    /// Even if leases have addresses of it.
    Always,
}

/// Writes the file of the pool.
pub(super) struct PoolFileWriter {
    context: PoolContext,
    withheld: Withheld,
    /// Namespaces that the pool selects according to a GET, and since when. The watch may not have reported them yet.
    admitted: HashMap<String, Instant>,
}

impl PoolFileWriter {
    pub(super) fn new(context: PoolContext) -> Self {
        Self {
            withheld: Withheld::new(context.clone()),
            admitted: HashMap::new(),
            context,
        }
    }

    /// Writes the content of the file except its blocks. Removes the file if nothing of the pool is left on this node.
    ///
    /// Invariant: the file gets the id of this boot, or a longer quarantine, only if this process has compared each active block of
    /// it with the API server (`confirm`). Both let the plugin allocate from the active blocks.
    pub(super) async fn write(
        &mut self,
        known: &KnownBlocks,
        target: &Target,
        confirm: bool,
    ) -> Result<(), ReconcileError> {
        let (Some(accepted), Some(NodeIdentity::Registered(owner))) =
            (&target.accepted, self.context.agent.identity())
        else {
            return self.remove_file(target).await;
        };
        if !target.open && self.context.file().await?.is_none() {
            return Ok(());
        }
        let writer = Self::writer(known, owner)?;
        let namespaces = self.namespaces(&target.api, accepted).await?;
        let mut base = accepted.file(&writer, namespaces, target.counters);
        base.reserved.extend(self.withheld.entries(known, target).await?);
        let open = target.open;
        self.context
            .agent
            .stores
            .edit(&self.context.pool, move |_, before| {
                if !open && before.is_none() {
                    return Ok(None);
                }
                let mut file = base;
                if let Some(before) = before {
                    file.blocks = before.blocks;
                    if !confirm {
                        file.boot_id = before.boot_id;
                        file.quarantine_seconds = file.quarantine_seconds.min(before.quarantine_seconds);
                    }
                }
                Ok(Some(file))
            })
            .await?;
        self.remove_file(target).await
    }

    fn writer(known: &KnownBlocks, owner: Owner) -> Result<Writer, ReconcileError> {
        Ok(Writer {
            owner,
            boot_id: KernelClock.boot_id()?,
            quarantine: known.quarantine(),
        })
    }

    /// Removes the file if the node has no part of the pool any more, and no block, no lease and no record of a release is left.
    /// A release needs the cooldown, which is in the file.
    async fn remove_file(&mut self, target: &Target) -> Result<(), ReconcileError> {
        if target.open {
            return Ok(());
        }
        let removed = self
            .context
            .agent
            .stores
            .with(&self.context.pool, |store| {
                let is_empty = |file: Option<PoolFile>| file.is_some_and(|file| file.blocks.is_empty());
                if !is_empty(store.pool()?) {
                    return Ok(false);
                }
                // After a reboot no ADD may have begun the store of this boot.
                let locked = store.enter()?;
                let empty = is_empty(locked.pool()?);
                let leases = store.leases()?;
                let has_leases = !leases.intact.is_empty() || !leases.damaged.is_empty();
                if !empty || has_leases || !store.releases()?.is_empty() {
                    return Ok(false);
                }
                locked.remove_pool().map(|()| true)
            })
            .await?;
        if removed {
            tracing::info!(pool = %self.context.pool, "removed the pool file: the node has no block, no lease and no resting address of the pool");
        }
        Ok(())
    }

    /// Records that this node was registered at the time `asked`, so that a reboot soon after needs no agent.
    pub(super) async fn confirm(&self, asked: Duration) -> Result<(), ReconcileError> {
        if !matches!(self.context.agent.identity(), Some(NodeIdentity::Registered(_))) {
            return Ok(());
        }
        let recent = self.context.agent.config.confirm_every() / 2;
        self.context
            .agent
            .stores
            .with(&self.context.pool, move |store| match store.pool()? {
                Some(_) => store.confirm(asked, recent),
                None => Ok(()),
            })
            .await?;
        Ok(())
    }

    /// The namespaces that the pool selects; none if it selects all.
    pub(super) async fn namespaces(
        &mut self,
        api: &Requests,
        accepted: &AcceptedPool,
    ) -> Result<Option<Vec<String>>, ReconcileError> {
        let Some(selector) = accepted.spec.namespace_selector.clone() else {
            return Ok(None);
        };
        let Ok(selector) = Selector::try_from(selector) else {
            return Ok(Some(Vec::new()));
        };
        let mut names = self
            .context
            .agent
            .namespaces
            .selected(api.deadline(), &selector)
            .await?;
        self.admitted.retain(|_, since| since.elapsed() < WATCH_LAG);
        names.extend(self.admitted.keys().cloned());
        names.sort_unstable();
        names.dedup();
        Ok(Some(names))
    }

    /// Whether the pool selects `namespace`, according to a GET: the watch may not have reported the namespace's labels yet.
    pub(super) async fn selects_now(
        &mut self,
        api: &Requests,
        accepted: &AcceptedPool,
        namespace: &str,
    ) -> Result<bool, ReconcileError> {
        let Some(selector) = accepted.spec.namespace_selector.clone() else {
            return Ok(true);
        };
        let labels = api.namespace_labels(namespace).await?;
        let selected = Selector::try_from(selector)
            .is_ok_and(|selector| labels.is_some_and(|labels| selector.matches(&labels)));
        if selected {
            self.admitted.insert(namespace.to_owned(), Instant::now());
        }
        Ok(selected)
    }

    /// Writes the block into the file, unless the answer that justifies the write is too old.
    pub(super) async fn write_block(
        &mut self,
        known: &KnownBlocks,
        about: BlockStep<'_>,
        local: LocalBlock,
    ) -> Result<(), ReconcileError> {
        let BlockStep {
            name,
            cidr,
            asked,
            target,
            ..
        } = about;
        let (Some(base), Some(cidr)) = (self.base(known, target).await?, cidr) else {
            return Ok(());
        };
        let new = entry(name, cidr.network(), local);
        let space = target
            .accepted
            .as_ref()
            .map(|accepted| accepted.spec.address_space.clone());
        let mut back: Vec<String> = Vec::new();
        if let Some(space) = space.filter(|_| about.entry == Entry::Closed) {
            let there = self.context.objects_in(&target.api, &space, cidr).await?;
            back = there.iter().map(ToString::to_string).collect();
        }
        let age = self.context.agent.config.answer_age();
        self.context
            .agent
            .stores
            .edit(&self.context.pool, move |locked, before| {
                // Checked under the lock, since this process may have waited for the lock.
                if KernelClock.since_boot()?.saturating_sub(asked) > age {
                    return Ok(None);
                }
                // From this write on, a DEL hands the address over itself. One that came before left the address resting in the
                // node's own block.
                if new.state == BlockState::Shared {
                    locked.hand_over_resting(new.cidr)?;
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
    async fn base(
        &mut self,
        known: &KnownBlocks,
        target: &Target,
    ) -> Result<Option<PoolFile>, ReconcileError> {
        let (Some(accepted), Some(NodeIdentity::Registered(owner))) =
            (&target.accepted, self.context.agent.identity())
        else {
            // The pool is gone, so the file is the only source.
            return self.context.file().await;
        };
        let writer = Self::writer(known, owner)?;
        let namespaces = self.namespaces(&target.api, accepted).await?;
        Ok(Some(accepted.file(&writer, namespaces, target.counters)))
    }

    /// Lets the blocks drain if another boot wrote the file so long ago that another node may have had them since. Returns whether
    /// that is the case. The API server may still name this node as their owner: a restore of etcd brings the deleted Node and the
    /// block back. So before the node allocates from such a block again, it lists the objects in it.
    pub(super) async fn close_unproven(&self) -> Result<bool, ReconcileError> {
        let Some(file) = self.context.file().await? else {
            // An edit would create the directory of a pool that does not select this node.
            return Ok(false);
        };
        let stores = &self.context.agent.stores;
        let standing = stores.with(&self.context.pool, move |store| Ok(store.standing(&file)));
        if standing.await? == Standing::Good {
            return Ok(false);
        }
        let closed = stores
            .edit(&self.context.pool, |_, before| {
                let Some(mut file) = before else { return Ok(None) };
                for block in &mut file.blocks {
                    if block.state == BlockState::Active {
                        block.state = BlockState::Draining;
                    }
                }
                Ok(Some(file))
            })
            .await?;
        if closed {
            tracing::info!(pool = %self.context.pool, "closed the blocks: no agent has compared them with the API server for longer than a quarantine");
        }
        Ok(true)
    }

    /// Removes the block from the file. Returns whether the file was changed.
    pub(super) async fn remove_block(&self, name: &str, removal: Removal) -> Result<bool, ReconcileError> {
        let name = name.to_owned();
        let written = self
            .context
            .agent
            .stores
            .edit(&self.context.pool, move |locked, before| {
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
                Ok((removal == Removal::Always || idle()?).then_some(file))
            })
            .await?;
        Ok(written)
    }
}

#[cfg(test)]
mod tests;
