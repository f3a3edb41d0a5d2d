// SPDX-License-Identifier: Apache-2.0
//! Creates objects for addresses that this node allocated from its own blocks: before a block is shared, and before an address
//! counts as reserved.

use super::addresses::Claimant;
use super::context::{PoolContext, Target};
use api::IpAddress;
use api::accepted_pool::AcceptedPool;
use api::block_layout::BlockCidr;
use api::convert::renewed;
use api::requests::{ReconcileError, Requests, WriteResult};
use common::cni::{Attachment, Error};
use ipam::agent::{AskedBy, Pod};
use ipam::interval::IntervalSet;
use ipam::range::bits;
use ipam::store::{Lease, StoredLease};
use std::collections::{HashMap, HashSet};
use std::net::IpAddr;
use std::time::Instant;

/// The number of objects that are written at the same time. Pods of other nodes wait until all objects of a block exist.
const AT_ONCE: usize = 8;

/// The leases whose objects this process has created or renewed. A pre-existing object may have a DELETE in flight, from a time
/// when no lease had the address. It must be renewed before this node relies on it.
#[derive(Default)]
pub(super) struct Published(HashMap<IpAddr, (Attachment, u64)>);

impl Published {
    /// Whether the object of `ip` belongs to the lease `stored` and can be relied on.
    fn has(&self, ip: IpAddr, stored: &StoredLease) -> bool {
        let made = self.0.get(&ip);
        stored.lease.api.contains(&ip)
            || made.is_some_and(|(owner, inode)| *owner == stored.lease.owner && *inode == stored.inode)
    }

    fn note(&mut self, ip: IpAddr, stored: &StoredLease) {
        self.0.insert(ip, (stored.lease.owner.clone(), stored.inode));
    }

    /// Forgets leases that have ended.
    fn keep(&mut self, leases: &[StoredLease]) {
        let living: HashSet<IpAddr> = leases
            .iter()
            .flat_map(|stored| stored.lease.addresses())
            .collect();
        self.0.retain(|ip, _| living.contains(ip));
    }
}

/// Creates the objects of leases.
pub(super) struct Publisher {
    context: PoolContext,
    published: Published,
    last_write: Option<Instant>,
}

impl Publisher {
    pub(super) fn new(context: PoolContext) -> Self {
        Self {
            context,
            published: Published::default(),
            last_write: None,
        }
    }

    /// When this process last wrote an address object here.
    pub(super) fn last_write(&self) -> Option<Instant> {
        self.last_write
    }

    /// Creates or renews an object for each lease in `within` that has no reliable one. Returns an address whose object could not
    /// be written, because another node has just created one or because the object changed since it was listed.
    pub(super) async fn publish_leases(
        &mut self,
        api: &Requests,
        accepted: &AcceptedPool,
        within: &IntervalSet,
    ) -> Result<Option<IpAddr>, ReconcileError> {
        self.last_write = Some(Instant::now());
        let leases = self.context.agent.stores.leases(&self.context.pool).await?;
        self.published.keep(&leases.intact);
        let there = self.context.own_addresses(api).await?;
        let ips = |stored: &'_ StoredLease| stored.lease.addresses().collect::<Vec<_>>();
        let all = leases
            .intact
            .iter()
            .flat_map(|stored| ips(stored).into_iter().map(move |ip| (ip, stored)));
        let missing: Vec<(IpAddr, &StoredLease)> = all
            .filter(|(ip, _)| within.contains(bits(*ip)))
            .filter(|(ip, stored)| !(there.contains_key(ip) && self.published.has(*ip, stored)))
            .collect();
        let mut in_the_way = None;
        for some in missing.chunks(AT_ONCE) {
            let objects = some
                .iter()
                .map(|(ip, stored)| self.object_of(accepted, *ip, &stored.lease, there.get(ip)))
                .collect::<Result<Vec<_>, _>>()?;
            let written = futures::future::join_all(objects.iter().map(|object| write(api, object))).await;
            let mut failure = None;
            for ((ip, stored), written) in some.iter().zip(written) {
                match written {
                    Ok(true) => self.published.note(*ip, stored),
                    Ok(false) => in_the_way = Some(*ip),
                    Err(e) => failure = Some(e),
                }
            }
            failure.map_or(Ok(()), Err)?;
        }
        Ok(in_the_way)
    }

    /// The object of a lease: a new version of `object`, or a new one.
    fn object_of(
        &self,
        accepted: &AcceptedPool,
        ip: IpAddr,
        lease: &Lease,
        object: Option<&IpAddress>,
    ) -> Result<IpAddress, Error> {
        let asked = of_lease(lease);
        let claimant = Claimant {
            asked: &asked,
            pod: Pod::of(&lease.sandbox),
            holder: None,
        };
        match object {
            Some(object) => Ok(claimed(object, &claimant)),
            None => claimant.new_address(&self.context, accepted, ip),
        }
    }

    /// The number of leases of the block without a reliable object.
    pub(super) async fn unpublished(
        &self,
        api: &Requests,
        cidr: Option<BlockCidr>,
    ) -> Result<u64, ReconcileError> {
        let Some(cidr) = cidr else { return Ok(0) };
        let leases = self.context.agent.stores.leases(&self.context.pool).await?;
        let there = self.context.own_addresses(api).await?;
        let all = leases
            .intact
            .iter()
            .flat_map(|stored| stored.lease.addresses().map(move |ip| (ip, stored)));
        Ok(all
            .filter(|(ip, _)| cidr.network().contains(*ip))
            .filter(|(ip, stored)| !(there.contains_key(ip) && self.published.has(*ip, stored)))
            .count() as u64)
    }

    pub(super) async fn publish(&mut self, target: &Target, cidr: BlockCidr) -> Result<(), ReconcileError> {
        let Some(accepted) = &target.accepted else {
            return Ok(());
        };
        // The block is shared only when `unpublished` finds no lease without an object.
        self.publish_leases(&target.api, accepted, &[cidr.interval()].into_iter().collect())
            .await
            .map(|_| ())
    }
}

/// Writes a new object, or a new version of one. Returns whether the object can be relied on.
async fn write(api: &Requests, object: &IpAddress) -> Result<bool, ReconcileError> {
    let written = match object.metadata.resource_version {
        Some(_) => api.replace(object).await?,
        None => api.create(object).await?,
    };
    Ok(matches!(written, WriteResult::Applied(_)))
}

fn of_lease(lease: &Lease) -> AskedBy {
    AskedBy {
        owner: lease.owner.clone(),
        network: lease.network.clone(),
    }
}

/// A new version of the object that names the claimant. A holder that keeps the address stays.
fn claimed(object: &IpAddress, claimant: &Claimant<'_>) -> IpAddress {
    let mut object = renewed(object.clone());
    object.spec.attachment = Some(claimant.attachment());
    object.spec.pod = claimant.pod_ref();
    object
}

#[cfg(test)]
mod tests;
