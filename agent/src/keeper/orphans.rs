// SPDX-License-Identifier: Apache-2.0
//! Ends what gone nodes have left.

use super::Keeper;
use crate::agent::Failure;
use crate::api::{AddressState, IpAddress, IpBlock, NodeRef};
use crate::cluster::{Written, delete, let_go, swap};
use crate::object::{changed, seen, seen_address};
use block::Phase;
use block::orphan::{Verdict, Watched, judge};
use kube::ResourceExt;
use kube::runtime::reflector::ObjectRef;
use std::collections::HashSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

impl Keeper {
    /// Whether the watch says that there is no such node; only a reason to ask.
    pub(super) fn seems_gone(&self, node: &NodeRef) -> bool {
        let Some(sight) = &self.sight else { return false };
        sight.nodes.get(&ObjectRef::new(&node.node)).is_none()
    }

    fn watched(&self, name: &str) -> Option<Watched> {
        self.watched.get(name).map(|(version, since)| Watched {
            version: version.clone(),
            unchanged: since.elapsed(),
        })
    }

    /// How long a block must have been orphaned before it is deleted: one quarantine in which it is nobody's, and as much again
    /// in which a node whose pool is full may take it over.
    fn patience(&self) -> Duration {
        self.agent.config.quarantine.saturating_mul(2)
    }

    /// Marks blocks of gone nodes, and deletes them when nobody wants them.
    pub(super) async fn end_orphans(&mut self) -> Result<(), Failure> {
        let blocks = self.blocks();
        self.welcome(&blocks).await?;
        let of_blocks = blocks.iter().map(|block| (block.name_any(), &block.spec.owner));
        let of_addresses = self
            .addresses
            .iter()
            .map(|address| (address.name_any(), &address.spec.node));
        let keep: HashSet<String> = of_blocks
            .chain(of_addresses)
            .filter(|(_, node)| self.seems_gone(node))
            .map(|(name, _)| name)
            .collect();
        self.watched.retain(|name, _| keep.contains(name));
        for block in blocks
            .into_iter()
            .filter(|block| self.seems_gone(&block.spec.owner))
            .collect::<Vec<Arc<IpBlock>>>()
        {
            self.end_orphan(&block).await?;
        }
        Ok(())
    }

    /// A node that comes back and goes again has a quarantine anew. Whoever waits for one of its blocks has perhaps not seen it
    /// come back, but sees a new version.
    async fn welcome(&self, blocks: &[Arc<IpBlock>]) -> Result<(), Failure> {
        let back = blocks
            .iter()
            .filter(|block| self.watched.contains_key(&block.name_any()))
            .filter(|block| !self.seems_gone(&block.spec.owner));
        for block in back {
            let seen = seen(block);
            if seen.phase == Phase::Orphaned {
                let again = changed(block, &seen, &self.agent.config.node);
                swap(&self.agent.cluster.blocks, &again).await?;
                tracing::info!(
                    block = block.name_any(),
                    node = block.spec.owner.node,
                    "the node of the block is back: its quarantine begins anew if it goes again"
                );
            }
        }
        Ok(())
    }

    async fn end_orphan(&mut self, block: &IpBlock) -> Result<(), Failure> {
        let name = block.name_any();
        let version = block.metadata.resource_version.clone().unwrap_or_default();
        let (watched, seen) = (self.watched(&name), seen(block));
        let quarantine = self.patience();
        // While it is only waited for, nothing is asked.
        if seen.phase == Phase::Orphaned
            && watched
                .as_ref()
                .is_some_and(|w| w.version == version && w.unchanged < quarantine)
        {
            return Ok(());
        }
        let sight = self.agent.sight_of(&block.spec.owner).await?;
        match judge(&seen, &version, &sight, watched.as_ref(), quarantine) {
            Verdict::Leave => {}
            Verdict::Watch => {
                self.watched.insert(name, (version, Instant::now()));
            }
            Verdict::Orphan => {
                let to = seen.turned(Phase::Orphaned);
                if let Written::Done(after) = swap(
                    &self.agent.cluster.blocks,
                    &changed(block, &to, &self.agent.config.node),
                )
                .await?
                {
                    let version = after.metadata.resource_version.unwrap_or_default();
                    tracing::warn!(
                        block = name,
                        node = block.spec.owner.node,
                        "the node of the block is gone: it is given to nobody for the quarantine"
                    );
                    self.watched.insert(name, (version, Instant::now()));
                }
            }
            Verdict::End => {
                if delete(&self.agent.cluster.blocks, block).await? == Written::Done(()) {
                    let evidence = "its Node is gone, no pod is bound to a node of that name, and nobody has changed it or taken it over for two quarantines";
                    tracing::warn!(
                        block = name,
                        node = block.spec.owner.node,
                        seconds = quarantine.as_secs(),
                        evidence,
                        "the block is free"
                    );
                }
                self.watched.remove(&name);
            }
        }
        Ok(())
    }

    /// The same for addresses that are objects.
    pub(super) async fn end_addresses(&mut self) -> Result<(), Failure> {
        let addresses = std::mem::take(&mut self.addresses);
        for address in addresses
            .iter()
            .filter(|address| address.spec.state != AddressState::Kept)
        {
            if self.seems_gone(&address.spec.node) {
                self.end_address(address).await?;
            }
        }
        self.addresses = addresses;
        Ok(())
    }

    async fn end_address(&mut self, address: &IpAddress) -> Result<(), Failure> {
        let name = address.name_any();
        let version = address.metadata.resource_version.clone().unwrap_or_default();
        let seen = seen_address(address);
        let (watched, quarantine) = (self.watched(&name), self.agent.config.quarantine);
        if seen.phase == Phase::Orphaned
            && watched
                .as_ref()
                .is_some_and(|w| w.version == version && w.unchanged < quarantine)
        {
            return Ok(());
        }
        let sight = self.agent.sight_of(&address.spec.node).await?;
        match judge(&seen, &version, &sight, watched.as_ref(), quarantine) {
            Verdict::Leave => {}
            Verdict::Watch => {
                self.watched.insert(name, (version, Instant::now()));
            }
            Verdict::Orphan => {
                let mut wanted = address.clone();
                wanted.spec.state = AddressState::Orphaned;
                swap(&self.agent.cluster.addresses, &wanted).await?;
                self.listed = None;
            }
            Verdict::End => {
                if let_go(&self.agent.cluster.addresses, address).await? == Written::Done(()) {
                    tracing::warn!(
                        address = name,
                        node = address.spec.node.node,
                        kept = address.spec.holder.is_some(),
                        "the node of the address is gone for a quarantine: nobody has it"
                    );
                }
                self.watched.remove(&name);
                self.listed = None;
            }
        }
        Ok(())
    }
}
