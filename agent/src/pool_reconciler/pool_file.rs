// SPDX-License-Identifier: Apache-2.0
//! The content of `pool.json` except its blocks, and when this node was last known to be registered (`confirmed`).

use super::{PoolReconciler, Target, WATCH_LAG};
use crate::agent::ReconcileError;
use api::accepted_pool::{AcceptedPool, Writer};
use block::Owner;
use block::owner::NodeIdentity;
use ipam::pool::{Confirmed, PoolFile};
use kube::core::{Selector, SelectorExt};
use std::time::{Duration, Instant};

impl PoolReconciler {
    /// Reads the file. None if this node has no part of the pool.
    pub(super) async fn file(&self) -> Result<Option<PoolFile>, ReconcileError> {
        Ok(self.agent.stores.holdings(&self.pool, Vec::new()).await?.file)
    }

    /// Writes the content of the file except its blocks. Removes the file if nothing of the pool is left on this node.
    pub(super) async fn write_file(&mut self, target: &Target) -> Result<(), ReconcileError> {
        let (Some(accepted), Some(NodeIdentity::Registered(owner))) =
            (&target.accepted, self.agent.identity())
        else {
            return self.remove_file(target).await;
        };
        if !target.open && self.file().await?.is_none() {
            return Ok(());
        }
        let writer = self.writer(owner)?;
        let namespaces = self.namespaces(accepted).await?;
        let mut base = accepted.file(&writer, namespaces, target.counters);
        base.reserved.extend(self.withheld(target).await?);
        let open = target.open;
        self.agent
            .stores
            .edit(&self.pool, move |_, before| {
                let blocks = before.map(|file| file.blocks).unwrap_or_default();
                if !open && blocks.is_empty() {
                    return Ok(None);
                }
                Ok(Some(PoolFile { blocks, ..base }))
            })
            .await?;
        if !target.open {
            self.remove_file(target).await?;
        }
        Ok(())
    }

    /// How long a block of this node stays unallocated after the node is gone: the shortest quarantine that was in force when a
    /// block was claimed. The controller waits that long or longer.
    fn own_quarantine(&self) -> Duration {
        let blocks = self.blocks().into_values();
        let claimed = blocks.filter_map(|block| u64::try_from(block.spec.quarantine_seconds?).ok());
        claimed
            .map(Duration::from_secs)
            .fold(self.agent.config.quarantine, Duration::min)
    }

    pub(super) fn writer(&self, owner: Owner) -> Result<Writer, ReconcileError> {
        Ok(Writer {
            owner,
            boot_id: self.agent.stores.boot_id()?,
            quarantine: self.own_quarantine(),
        })
    }

    /// Removes the file if the node has no part of the pool any more, and no block and no lease is left.
    async fn remove_file(&mut self, target: &Target) -> Result<(), ReconcileError> {
        if target.open {
            return Ok(());
        }
        let removed = self
            .agent
            .stores
            .with(&self.pool, |store| {
                let Some(locked) = store.enter_existing()? else {
                    return Ok(false);
                };
                let empty = locked.pool()?.is_some_and(|file| file.blocks.is_empty());
                if !empty || !store.leases()?.held.is_empty() {
                    return Ok(false);
                }
                locked.remove_pool().map(|()| true)
            })
            .await?;
        if removed {
            tracing::info!(pool = %self.pool, "removed the pool file: the node has no block and no lease of the pool");
        }
        Ok(())
    }

    /// Records that this node was registered at the time `asked`, so that a reboot soon after needs no agent.
    pub(super) async fn confirm(&self, asked: Duration) -> Result<(), ReconcileError> {
        if !matches!(self.agent.identity(), Some(NodeIdentity::Registered(_))) {
            return Ok(());
        }
        let every = self.agent.config.confirm_every();
        let age = self.agent.stores.since_boot()?.saturating_sub(asked);
        self.agent
            .stores
            .with(&self.pool, move |store| {
                let at = std::time::SystemTime::now() - age;
                let recent = |Confirmed(last)| at.duration_since(last).is_ok_and(|since| since < every / 2);
                if store.pool()?.is_none() || store.confirmed().is_some_and(recent) {
                    return Ok(());
                }
                store.confirm(Confirmed(at))
            })
            .await?;
        Ok(())
    }

    /// The namespaces that the pool selects; none if it selects all.
    pub(super) async fn namespaces(
        &mut self,
        accepted: &AcceptedPool,
    ) -> Result<Option<Vec<String>>, ReconcileError> {
        let Some(selector) = accepted.spec.namespace_selector.clone() else {
            return Ok(None);
        };
        let Ok(selector) = Selector::try_from(selector) else {
            return Ok(Some(Vec::new()));
        };
        let mut names = self.agent.namespaces.selected(&selector).await?;
        self.admitted.retain(|_, since| since.elapsed() < WATCH_LAG);
        names.extend(self.admitted.keys().cloned());
        names.sort_unstable();
        names.dedup();
        Ok(Some(names))
    }

    /// Whether the pool selects `namespace`, according to a GET: the watch may not have reported the namespace's labels yet.
    pub(super) async fn selects_now(
        &mut self,
        accepted: &AcceptedPool,
        namespace: &str,
    ) -> Result<bool, ReconcileError> {
        let Some(selector) = accepted.spec.namespace_selector.clone() else {
            return Ok(true);
        };
        let labels = self.agent.cluster.namespace_labels(namespace).await?;
        let selected = Selector::try_from(selector)
            .is_ok_and(|selector| labels.is_some_and(|labels| selector.matches(&labels)));
        if selected {
            self.admitted.insert(namespace.to_owned(), Instant::now());
        }
        Ok(selected)
    }
}
