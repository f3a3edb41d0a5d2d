// SPDX-License-Identifier: Apache-2.0
//! Addresses that this node holds back although the pool does not reserve them. They have objects, so a pod may use them.
//!
//! There are two causes: a reservation of an address has ended, or a claimed block contains objects.
//!
//! Invariant: before this node allocates such an address by itself, it has written the generation that it observes (or has
//! claimed the block), and has then looked for objects. A node that creates an object reads the block afterwards, and rejects the
//! request if it sees the newer generation. So at least one of the two nodes sees the other.

use super::context::{PoolContext, Target};
use super::known_blocks::KnownBlocks;
use api::block_layout::BlockCidr;
use api::convert::block_record;
use api::requests::ReconcileError;
use api::{BlockState, IpBlock};
use block::Owner;
use block::owner::NodeIdentity;
use ipam::pool::{PoolFile, PoolRanges};
use ipam::range::bits;
use std::net::IpAddr;
use std::path::Path;
use std::time::Instant;

/// Tracks when the addresses that are held back were last compared with the objects.
pub(super) struct Withheld {
    context: PoolContext,
    checked_at: Option<Instant>,
}

impl Withheld {
    pub(super) fn new(context: PoolContext) -> Self {
        Self {
            context,
            checked_at: None,
        }
    }

    /// The entries of the file's `reserved` that must stay although the spec does not have them.
    pub(super) async fn entries(
        &mut self,
        known: &KnownBlocks,
        target: &Target,
    ) -> Result<Vec<String>, ReconcileError> {
        let file = self.context.file().await?;
        let (Some(file), Some(accepted)) = (file, &target.accepted) else {
            return Ok(Vec::new());
        };
        let mut more = file.reserved.clone();
        more.retain(|entry| !accepted.spec.reserved.contains(entry));
        let recent = self
            .checked_at
            .is_some_and(|at| at.elapsed() < self.context.agent.config.daemon.observation_interval);
        if more.is_empty() || recent || !self.has_noted(known, accepted.generation) {
            return Ok(more);
        }
        let kept = PoolFile {
            reserved: more,
            ..file
        };
        let ranges = PoolRanges::new(&kept, Path::new("pool.json"))?;
        let mut back = Vec::new();
        for cidr in kept.blocks.iter().filter_map(|block| BlockCidr::of(block.cidr)) {
            // An edit may have excluded such an address. Another edit may include it again.
            let kept = ranges.listed_as_reserved(cidr.family());
            if kept.within(cidr.interval()).is_empty() {
                continue;
            }
            let there = self
                .context
                .objects_in(&target.api, &accepted.spec.address_space, cidr)
                .await?;
            let inside = there.into_iter().filter(|ip| kept.contains(bits(*ip)));
            back.extend(inside.map(|ip: IpAddr| ip.to_string()));
        }
        self.checked_at = Some(Instant::now());
        Ok(back)
    }

    /// Whether each block of this node has `generation` as its observed generation.
    fn has_noted(&self, known: &KnownBlocks, generation: i64) -> bool {
        let Some(NodeIdentity::Registered(me)) = self.context.agent.identity() else {
            return false;
        };
        noted_by_all(known.all().values(), &me, generation)
    }
}

/// Whether each of `blocks` from which `me` allocates has this observed generation.
fn noted_by_all<'a>(blocks: impl IntoIterator<Item = &'a IpBlock>, me: &Owner, generation: i64) -> bool {
    let mine = blocks
        .into_iter()
        .filter(|block| block_record(block).owner == *me && block.spec.state != BlockState::Shared);
    let noted = |block: &IpBlock| block.status.as_ref()?.observed_generation;
    mine.map(noted).all(|noted| noted == Some(generation))
}

#[cfg(test)]
mod tests;
