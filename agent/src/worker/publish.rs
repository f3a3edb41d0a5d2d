// SPDX-License-Identifier: Apache-2.0
//! Objects for addresses that this node has given from its own blocks: before a block is shared, and before an address
//! counts as reserved.

use super::Worker;
use super::address::Claimant;
use crate::agent::Failure;
use crate::cluster::create;
use crate::grid::Cell;
use crate::ground::Ground;
use ipam::agent::{AskedBy, Pod};
use ipam::interval::IntervalSet;
use ipam::range::bits;
use ipam::store::Lease;
use std::collections::BTreeMap;
use std::net::IpAddr;

impl Worker {
    /// Makes an object for each lease of `within` that has none.
    pub(super) async fn publish_leases(
        &mut self,
        ground: &Ground,
        within: &IntervalSet,
    ) -> Result<(), Failure> {
        self.suspects.wrote();
        let leases = self.agent.stores.leases(&self.pool).await?;
        let there: BTreeMap<IpAddr, String> = self.own_addresses().await?;
        for held in leases.held {
            for ip in held
                .lease
                .addresses()
                .filter(|ip| within.contains(bits(*ip)) && !there.contains_key(ip))
            {
                let asked = of_lease(&held.lease);
                let claimant = Claimant {
                    asked: &asked,
                    pod: Pod::of(&held.lease.sandbox),
                    holder: None,
                };
                let wanted = self.object(ground, ip, &claimant).map_err(Failure::Node)?;
                create(&self.agent.cluster.addresses, &wanted).await?;
            }
        }
        Ok(())
    }

    /// The addresses of this node and pool that are objects, with their names.
    async fn own_addresses(&self) -> Result<BTreeMap<IpAddr, String>, Failure> {
        let all = self.agent.cluster.addresses_of(&self.agent.config.node).await?;
        let of_pool = all
            .into_iter()
            .filter(|address| address.spec.pool == self.pool.as_str());
        Ok(of_pool
            .filter_map(|address| Some((address.spec.address.parse().ok()?, address.metadata.name?)))
            .collect())
    }

    /// How many leases of the block have no object.
    pub(super) async fn unpublished(&self, cell: Option<Cell>) -> Result<u64, Failure> {
        let Some(cell) = cell else { return Ok(0) };
        let leases = self.agent.stores.leases(&self.pool).await?;
        let there = self.own_addresses().await?;
        let inside = |ip: &IpAddr| cell.cidr().contains(*ip) && !there.contains_key(ip);
        Ok(leases
            .held
            .iter()
            .flat_map(|held| held.lease.addresses())
            .filter(inside)
            .count() as u64)
    }

    pub(super) async fn publish(&mut self, cell: Cell) -> Result<(), Failure> {
        let Some(ground) = self.target()?.ground else {
            return Ok(());
        };
        self.publish_leases(&ground, &[cell.interval()].into_iter().collect())
            .await
    }
}

fn of_lease(lease: &Lease) -> AskedBy {
    AskedBy {
        owner: lease.owner.clone(),
        network: lease.network.clone(),
    }
}
