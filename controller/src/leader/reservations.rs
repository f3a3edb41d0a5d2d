// SPDX-License-Identifier: Apache-2.0
//! Frees addresses that are kept for pods which will not come back.

use super::Leader;
use api::requests::{ReconcileError, WriteResult};
use api::sticky::end_of_reservation;
use api::{AddressState, Holder, IpAddress, IpPool};
use k8s_openapi::api::apps::v1::StatefulSet;
use kube::ResourceExt;
use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Instant;

/// The pools and `StatefulSet`s that were read in one round. Each is read once, however many addresses depend on it.
#[derive(Default)]
struct Owners {
    sets: HashMap<(String, String), Option<StatefulSet>>,
    pools: HashMap<String, Option<IpPool>>,
}

impl Leader {
    /// Frees kept addresses that no pod will request again. Two observations of the same version must agree.
    pub(super) async fn free_reservations(&mut self) -> Result<(), ReconcileError> {
        let kept: Vec<(Arc<IpAddress>, Holder)> = self
            .addresses
            .iter()
            .filter(|address| address.spec.state == AddressState::Kept)
            .filter_map(|address| Some((address.clone(), address.spec.holder.clone()?)))
            .collect();
        let mut owners = Owners::default();
        let mut seen = HashSet::new();
        for (address, holder) in kept {
            let Some(evidence) = self.obsolete_reason(&address, &holder, &mut owners).await? else {
                continue;
            };
            seen.insert(address.name_any());
            self.free_if_unchanged(&address, &holder, &evidence).await?;
        }
        self.obsolete.retain(|name, _| seen.contains(name));
        Ok(())
    }

    async fn obsolete_reason(
        &self,
        address: &IpAddress,
        holder: &Holder,
        owners: &mut Owners,
    ) -> Result<Option<String>, ReconcileError> {
        let api = &self.context.api;
        let pool = &address.spec.pool;
        if !owners.pools.contains_key(pool) {
            owners.pools.insert(pool.clone(), api.get(pool).await?);
        }
        let set = (holder.namespace.clone(), holder.stateful_set.clone());
        if !owners.sets.contains_key(&set) {
            let found = api.stateful_set(&set.0, &set.1).await?;
            owners.sets.insert(set.clone(), found);
        }
        let pool = owners.pools.get(pool).and_then(Option::as_ref);
        let set = owners.sets.get(&set).and_then(Option::as_ref);
        Ok(end_of_reservation(holder, pool, set))
    }

    async fn free_if_unchanged(
        &mut self,
        address: &IpAddress,
        holder: &Holder,
        evidence: &str,
    ) -> Result<(), ReconcileError> {
        let name = address.name_any();
        let version = address.resource_version().unwrap_or_default();
        let since = match self.obsolete.get(&name) {
            Some((seen, since)) if *seen == version => *since,
            _ => {
                self.obsolete.insert(name, (version, Instant::now()));
                return Ok(());
            }
        };
        if since.elapsed() < self.context.config.daemon.observation_interval {
            return Ok(());
        }
        if self.context.api.delete(address).await? == WriteResult::Applied(()) {
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
        self.obsolete.remove(&name);
        Ok(())
    }
}
