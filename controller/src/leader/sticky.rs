// SPDX-License-Identifier: Apache-2.0
//! Frees addresses that are kept for pods which will not come back.

use super::Keeper;
use crate::context::Failure;
use api::cluster::{Written, delete, get};
use api::sticky::is_over;
use api::{AddressState, Holder, IpAddress, IpPool};
use k8s_openapi::api::apps::v1::StatefulSet;
use kube::ResourceExt;
use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Instant;

/// The objects that were read in one round. Each is read once, however many addresses depend on it.
#[derive(Default)]
struct Read {
    sets: HashMap<(String, String), Option<StatefulSet>>,
    pools: HashMap<String, Option<IpPool>>,
}

impl Keeper {
    /// Frees kept addresses that no pod will request, on the second observation.
    pub(super) async fn end_kept(&mut self) -> Result<(), Failure> {
        let kept: Vec<(Arc<IpAddress>, Holder)> = self
            .addresses
            .iter()
            .filter(|address| address.spec.state == AddressState::Kept)
            .filter_map(|address| Some((address.clone(), address.spec.holder.clone()?)))
            .collect();
        let mut read = Read::default();
        let mut seen = HashSet::new();
        for (address, holder) in kept {
            let Some(evidence) = self.evidence_against(&address, &holder, &mut read).await? else {
                continue;
            };
            seen.insert(address.name_any());
            self.forsake(&address, &holder, &evidence).await?;
        }
        self.forsaken.retain(|name, _| seen.contains(name));
        Ok(())
    }

    async fn evidence_against(
        &self,
        address: &IpAddress,
        holder: &Holder,
        read: &mut Read,
    ) -> Result<Option<String>, Failure> {
        let cluster = &self.context.cluster;
        let pool = &address.spec.pool;
        if !read.pools.contains_key(pool) {
            read.pools.insert(pool.clone(), get(&cluster.pools, pool).await?);
        }
        let set = (holder.namespace.clone(), holder.stateful_set.clone());
        if !read.sets.contains_key(&set) {
            let there = cluster.stateful_set(&set.0, &set.1).await?;
            read.sets.insert(set.clone(), there);
        }
        let pool = read.pools.get(pool).and_then(Option::as_ref);
        let set = read.sets.get(&set).and_then(Option::as_ref);
        Ok(is_over(holder, pool, set))
    }

    async fn forsake(&mut self, address: &IpAddress, holder: &Holder, evidence: &str) -> Result<(), Failure> {
        let name = address.name_any();
        let version = address.resource_version().unwrap_or_default();
        let since = match self.forsaken.get(&name) {
            Some((seen, since)) if *seen == version => *since,
            _ => {
                self.forsaken.insert(name, (version, Instant::now()));
                return Ok(());
            }
        };
        if since.elapsed() < self.context.config.observe {
            return Ok(());
        }
        if delete(&self.context.cluster.addresses, address).await? == Written::Done(()) {
            tracing::warn!(
                address = name,
                ip = address.spec.address,
                pool = address.spec.pool,
                pod = format!("{}/{}", holder.namespace, holder.pod),
                seconds = since.elapsed().as_secs(),
                evidence,
                "freed an address that was kept for a pod"
            );
        }
        self.forsaken.remove(&name);
        Ok(())
    }
}
