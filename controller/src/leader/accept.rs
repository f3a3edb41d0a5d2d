// SPDX-License-Identifier: Apache-2.0
//! Accepts pools. A spec takes effect if it is usable and its address space has room for it.

use super::Leader;
use super::conflicts::AddedAddresses;
use api::accepted_pool::AcceptedPool;
use api::block_layout::BlockCidr;
use api::convert::cidr_in;
use api::listing::{Listing, check, entry, with_intervals_of};
use api::pool::number_after;
use api::requests::{ApiError, ReconcileError, WriteResult};
use api::{AddressSpace, AddressSpaceSpec, IpAddress, IpBlock, IpPool};
use common::cni::Error;
use kube::ResourceExt;
use std::net::IpAddr;
use std::sync::Arc;

/// The finalizer that keeps a pool while nodes have blocks or addresses of it.
pub(super) const FINALIZER: &str = "rdmanet.io/addresses-in-use";

/// The greatest number in the report of a block that counts. Greater ones are false: with them, a stolen token of a node could use up
/// the numbers of a pool.
const MAX_NOTED: i64 = i64::MAX / 2;

/// Whether a spec was accepted.
pub(super) enum Accepted {
    /// The spec is in force. It has addresses in common with these pools.
    Yes(Box<AcceptedPool>, Vec<String>),
    /// The spec is unusable.
    Invalid(Error),
    /// Another pool has some of its addresses and cuts them into other blocks.
    Conflict(String),
    /// The API server refuses to list the pool in its address space.
    Refused(String),
    /// Another client has changed the address space meanwhile. The next round tries again.
    Later,
}

impl Leader {
    /// Reconciles one pool.
    pub(super) async fn reconcile(&mut self, pool: &IpPool) -> Result<(), ReconcileError> {
        if pool.metadata.deletion_timestamp.is_some() {
            return self.finalize(pool).await;
        }
        let number = self.number_of(pool).await?;
        let accepted = match AcceptedPool::new(pool, &pool.spec, number) {
            Err(error) => return self.reject(pool, Accepted::Invalid(error)).await,
            Ok(accepted) => accepted,
        };
        if !pool.finalizers().iter().any(|name| name == FINALIZER) {
            let mut wanted = pool.clone();
            wanted.finalizers_mut().push(FINALIZER.to_owned());
            self.context.api.replace_metadata(&wanted).await?;
            return Ok(());
        }
        match self.accept(pool, accepted).await? {
            accepted @ (Accepted::Yes(..) | Accepted::Later) => self.write_status(pool, accepted).await,
            rejected => self.reject(pool, rejected).await,
        }
    }

    /// The number that the spec of `pool` has when it is accepted.
    ///
    /// Invariant: the first number of a pool is greater than each number of an earlier pool of its name. Nodes compare their reports
    /// by the name of the pool. If a person has removed the finalizer of the earlier pool, blocks of it are left. Their owners have
    /// reported its numbers, and may still report the last one, which the address space has.
    async fn number_of(&self, pool: &IpPool) -> Result<i64, ReconcileError> {
        let generation = pool.metadata.generation.unwrap_or_default();
        let status = pool.status.clone().unwrap_or_default();
        if status.accepted.is_some() {
            return Ok(status.number_of(&pool.spec, generation));
        }
        let name = pool.name_any();
        let blocks: Vec<IpBlock> = self.context.api.list(&format!("spec.pool={name}")).await?;
        let noted = blocks
            .iter()
            .filter_map(|block| block.status.as_ref()?.observed_generation);
        let noted = noted.filter(|noted| *noted <= MAX_NOTED);
        let spaces: Vec<AddressSpace> = self.context.api.list("").await?;
        let entries = spaces.iter().flat_map(|space| &space.spec.pools);
        // If the pool itself is listed already, it may keep that number.
        let listed = entries
            .filter(|listed| listed.name == name)
            .map(|listed| listed.generation - i64::from(pool.uid().as_ref() == Some(&listed.uid)));
        let reported = noted.chain(listed).max().unwrap_or_default();
        Ok(number_after(reported, generation))
    }

    /// Writes that the spec is not accepted, and keeps the earlier spec listed. A spec between the two may have been listed
    /// although its status was never written. Nodes would then reject every claim, because the list names a newer spec than the
    /// one in force.
    ///
    /// Safety: the number in the list becomes smaller. Nodes claim only by the spec in force, so no node has claimed by the number
    /// that is removed. Addresses that the spec in force adds to the list are searched for blocks and objects like those of an edit.
    async fn reject(&mut self, pool: &IpPool, rejected: Accepted) -> Result<(), ReconcileError> {
        if let Some(in_force) = AcceptedPool::of(pool)?
            && let Accepted::Conflict(why) | Accepted::Refused(why) = self.accept(pool, in_force).await?
        {
            tracing::warn!(
                pool = pool.name_any(),
                why,
                "listing the spec in force again failed; retrying"
            );
        }
        self.write_status(pool, rejected).await
    }

    /// Whether the watch shows the pool listed exactly as its spec requires. Then no request is needed. A late watch does
    /// no harm, because a node reads the address space after each claim.
    fn is_listed(&self, accepted: &AcceptedPool) -> Option<Vec<String>> {
        let spaces = self.spaces();
        let space = spaces
            .iter()
            .find(|space| space.name_any() == accepted.spec.address_space)?;
        let kept = self.blocks_of(accepted.name.as_str(), &space.name_any());
        let mut pools = space.spec.pools.iter();
        let before = pools.find(|pool| pool.name == accepted.name.as_str())?;
        let mut listed = with_intervals_of(entry(accepted), Some(before), &kept);
        listed.carry_over(&space.spec);
        match check(&space.spec, &listed) {
            Listing::Accepted(others) if *before == listed => Some(others),
            _ => None,
        }
    }

    async fn accept(&self, pool: &IpPool, accepted: AcceptedPool) -> Result<Accepted, ReconcileError> {
        if let Some(others) = self.is_listed(&accepted) {
            return Ok(Accepted::Yes(Box::new(accepted), others));
        }
        let name = accepted.spec.address_space.clone();
        let space: Option<AddressSpace> = self.context.api.get(&name).await?;
        let mut wanted = space
            .clone()
            .unwrap_or_else(|| AddressSpace::new(&name, AddressSpaceSpec::default()));
        let kept = self.blocks_of(accepted.name.as_str(), &name);
        let mut pools = wanted.spec.pools.iter();
        let before = pools.position(|pool| pool.name == accepted.name.as_str());
        let entry = entry(&accepted);
        let mut listed = with_intervals_of(entry, before.map(|at| &wanted.spec.pools[at]), &kept);
        let others = match check(&wanted.spec, &listed) {
            Listing::Accepted(others) => others,
            Listing::Conflict { pool, ip } => {
                return Ok(Accepted::Conflict(conflict(accepted.name.as_str(), &pool, ip)));
            }
        };
        if let Some(conflict) = self.split_conflict(pool, &accepted, &wanted.spec) {
            return Ok(Accepted::Conflict(conflict));
        }
        listed.carry_over(&wanted.spec);
        if before.is_some_and(|at| wanted.spec.pools[at] == listed) {
            return Ok(Accepted::Yes(Box::new(accepted), others));
        }
        let old = before.map(|at| wanted.spec.pools.remove(at));
        let old = old.filter(|old| old.is_of(&listed));
        let added = AddedAddresses::new(&name, &listed, old.as_ref());
        if let Some(conflict) = self.find_conflict(added).await? {
            return Ok(Accepted::Conflict(conflict));
        }
        wanted.spec.pools.push(listed);
        wanted.spec.pools.sort_by(|a, b| a.name.cmp(&b.name));
        let written = match space {
            None => self.context.api.create(&wanted).await,
            Some(_) => self.context.api.replace(&wanted).await,
        };
        match written {
            Ok(WriteResult::Applied(_)) => Ok(Accepted::Yes(Box::new(accepted), others)),
            Ok(WriteResult::Conflict) => Ok(Accepted::Later),
            Err(error @ ApiError::Rejected { .. }) => Ok(Accepted::Refused(error.to_string())),
            Err(error) => Err(error.into()),
        }
    }

    /// The blocks of a pool in an address space.
    fn blocks_of(&self, pool: &str, space: &str) -> Vec<BlockCidr> {
        let blocks = self.blocks();
        let of_pool = blocks.iter().filter(|block| block.spec.pool == pool);
        of_pool.filter_map(|block| cidr_in(block, space)).collect()
    }

    /// Finalizes a pool that is being deleted: its finalizer is removed once no block and no address of the pool is left.
    async fn finalize(&mut self, pool: &IpPool) -> Result<(), ReconcileError> {
        let name = pool.name_any();
        // A pod may keep the pool for days. What the watch and the last list of addresses show needs no list in each round.
        let known = self.of_pool(&name);
        let all = self.addresses.iter();
        let addresses: Vec<Arc<IpAddress>> =
            all.filter(|address| address.spec.pool == name).cloned().collect();
        if !known.is_empty() || !addresses.is_empty() {
            return self.report_deletion(pool, &known, &addresses).await;
        }
        let fields = format!("spec.pool={name}");
        let blocks = self.context.api.list::<IpBlock>(&fields).await?;
        let blocks: Vec<Arc<IpBlock>> = blocks.into_iter().map(Arc::new).collect();
        let addresses: Vec<IpAddress> = self.context.api.list(&fields).await?;
        if !blocks.is_empty() || !addresses.is_empty() {
            return self.report_deletion(pool, &blocks, &addresses).await;
        }
        if pool.finalizers().iter().any(|name| name == FINALIZER) {
            let mut wanted = pool.clone();
            wanted.finalizers_mut().retain(|name| name != FINALIZER);
            self.context.api.replace_metadata(&wanted).await?;
            tracing::info!(
                pool = pool.name_any(),
                "removed the finalizer of a deleted pool: no block and no address of it is left"
            );
        }
        Ok(())
    }

    /// Removes deleted pools without blocks from the address spaces.
    pub(super) async fn unlist(&self) -> Result<(), ReconcileError> {
        for space in self.spaces() {
            let mut wanted = AddressSpace::clone(&space);
            let mut deleted = Vec::new();
            for listed in &space.spec.pools {
                let known = self
                    .context
                    .pools
                    .find(|pool| pool.uid().as_deref() == Some(&listed.uid));
                if known.is_some() || !self.blocks_of(&listed.name, &space.name_any()).is_empty() {
                    continue;
                }
                let found: Option<IpPool> = self.context.api.get(&listed.name).await?;
                if found.is_none_or(|pool| pool.uid().as_deref() != Some(&listed.uid)) {
                    deleted.push(listed.name.clone());
                }
            }
            // A later pool may have the addresses of this one.
            wanted.spec.probe |= !deleted.is_empty() && space.spec.requests_probes();
            wanted.spec.pools.retain(|listed| !deleted.contains(&listed.name));
            if wanted != *space {
                self.context.api.replace(&wanted).await?;
            }
        }
        Ok(())
    }
}

/// Why a pool is not accepted: the pool called `other` has `ip` in blocks of another size.
fn conflict(pool: &str, other: &str, ip: IpAddr) -> String {
    if other == pool {
        return format!(
            "an earlier pool of this name has {ip} in blocks of another size, and pods have addresses of it; the conflict ends when these pods are deleted"
        );
    }
    format!(
        "pool {other} also has {ip}, in blocks of another size; give both pools the same blockSize and allocation, or put one into another addressSpace"
    )
}
