// SPDX-License-Identifier: Apache-2.0
//! An orphan: a block or an address of a gone node. Both are marked, wait for the quarantine, and are freed.

use super::Inputs;
use crate::config::Config;
use crate::context::Context;
use api::convert::{address_record, block_record, in_use, with_record};
use api::requests::{ApiError, WriteResult};
use api::{AddressState, IpAddress, IpBlock, NodeRef};
use block::orphan::Quarantine;
use block::{BlockRecord, Phase};
use kube::ResourceExt;
use std::sync::Arc;
use std::time::Duration;

/// A block or an address of a gone node.
pub(super) enum Orphan {
    Block(Arc<IpBlock>),
    Address(Arc<IpAddress>),
}

impl Orphan {
    /// All blocks and addresses of nodes that seem gone, sorted by the name of the node.
    pub(super) fn all(inputs: &Inputs) -> Vec<Self> {
        let blocks = inputs.caches.blocks.state().into_iter().map(Self::Block);
        let addresses = inputs.addresses.iter().cloned().map(Self::Address);
        let mut all: Vec<Self> = blocks
            .chain(addresses)
            .filter(|orphan| inputs.caches.seems_gone(orphan.node()))
            .collect();
        all.sort_by(|a, b| a.node().node.cmp(&b.node().node));
        all
    }

    pub(super) fn name(&self) -> String {
        match self {
            Self::Block(block) => block.name_any(),
            Self::Address(address) => address.name_any(),
        }
    }

    pub(super) fn pool(&self) -> &str {
        match self {
            Self::Block(block) => &block.spec.pool,
            Self::Address(address) => &address.spec.pool,
        }
    }

    /// The gone node.
    pub(super) fn node(&self) -> &NodeRef {
        match self {
            Self::Block(block) => &block.spec.owner,
            Self::Address(address) => &address.spec.node,
        }
    }

    pub(super) fn version(&self) -> String {
        let version = match self {
            Self::Block(block) => block.resource_version(),
            Self::Address(address) => address.resource_version(),
        };
        version.unwrap_or_default()
    }

    pub(super) fn record(&self) -> BlockRecord {
        match self {
            Self::Block(block) => block_record(block),
            Self::Address(address) => address_record(address),
        }
    }

    /// How long the object must have been orphaned before it is freed.
    pub(super) fn quarantine(&self, config: &Config) -> Quarantine {
        let recorded = match self {
            Self::Block(block) => block.spec.quarantine_seconds,
            Self::Address(address) => address.spec.quarantine_seconds,
        };
        config.daemon.quarantines.of(recorded)
    }

    /// Whether the object was in use in the last report of the node.
    pub(super) fn in_use(&self) -> bool {
        match self {
            Self::Block(block) => in_use(block),
            Self::Address(address) => address.spec.state != AddressState::Kept,
        }
    }

    /// How long the object must be unchanged before it may be freed; `None` if only an administrator may free it.
    pub(super) fn wait(&self, config: &Config) -> Option<Duration> {
        let quarantine = self.quarantine(config);
        if self.in_use() {
            quarantine.in_use
        } else {
            Some(quarantine.unused)
        }
    }

    /// Marks the object as orphaned, if the API server still has the version that was read. Returns the new version.
    pub(super) async fn mark(&self, context: &Context) -> Result<WriteResult<String>, ApiError> {
        let node = &self.node().node;
        let version = match self {
            Self::Block(block) => {
                let orphaned = with_record(
                    block,
                    &block_record(block).with_phase(Phase::Orphaned),
                    &context.config.identity,
                );
                let WriteResult::Applied(after) = context.api.replace(&orphaned).await? else {
                    return Ok(WriteResult::Conflict);
                };
                tracing::warn!(
                    block = after.name_any(),
                    node,
                    "a block is orphaned: its node is gone; the quarantine begins"
                );
                after.resource_version()
            }
            Self::Address(address) => {
                let mut orphaned = IpAddress::clone(address);
                orphaned.spec.state = AddressState::Orphaned;
                // For `rdmanet release`, and for a later controller with other flags. An older value is of an earlier owner.
                let quarantine = context.config.daemon.quarantines.unused;
                orphaned.spec.quarantine_seconds = i64::try_from(quarantine.as_secs()).ok();
                let WriteResult::Applied(after) = context.api.replace(&orphaned).await? else {
                    return Ok(WriteResult::Conflict);
                };
                tracing::warn!(
                    address = after.name_any(),
                    node,
                    "an address is orphaned: its node is gone; the quarantine begins"
                );
                after.resource_version()
            }
        };
        Ok(WriteResult::Applied(version.unwrap_or_default()))
    }

    /// Deletes the object, if the API server still has the version that was read. An address with a holder becomes `Kept`
    /// instead.
    pub(super) async fn free(&self, context: &Context) -> Result<WriteResult<()>, ApiError> {
        let node = &self.node().node;
        match self {
            Self::Block(block) => {
                let written = context.api.delete_block(block).await?;
                if written == WriteResult::Applied(()) {
                    let evidence = "its Node is gone, no pod is bound to a node of that name, and no client has changed it for a quarantine";
                    let seconds = self.wait(&context.config).map(|time| time.as_secs());
                    tracing::warn!(
                        block = block.name_any(),
                        node,
                        seconds,
                        evidence,
                        "freed an orphaned block"
                    );
                }
                Ok(written)
            }
            Self::Address(address) => {
                let written = context.api.release_address(address).await?;
                if written == WriteResult::Applied(()) {
                    let kept = address.spec.holder.is_some();
                    tracing::warn!(
                        address = address.name_any(),
                        node,
                        kept,
                        "freed an orphaned address"
                    );
                }
                Ok(written)
            }
        }
    }
}
