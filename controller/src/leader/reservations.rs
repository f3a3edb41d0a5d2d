// SPDX-License-Identifier: Apache-2.0
//! Frees addresses that are kept for pods which will not come back.

use super::Leader;
use api::requests::{ReconcileError, WriteResult};
use api::sticky::{end_by_pool, end_by_set};
use api::{AddressState, Holder, IpAddress, IpPool};
use k8s_openapi::api::apps::v1::StatefulSet;
use kube::ResourceExt;
use kube::runtime::reflector::ObjectRef;
use std::collections::{BTreeSet, HashMap, HashSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// The number of `StatefulSet`s that are read in one round. A cluster may have thousands that are scaled down.
const SETS_PER_ROUND: usize = 50;

/// Namespace and name of a `StatefulSet`.
type SetKey = (String, String);

/// An address that is kept, and for which pod.
type Kept = (Arc<IpAddress>, Holder);

/// What is known of the owners of kept addresses in one round. Each object is read once, however many addresses depend on it.
struct Owners {
    /// The `StatefulSet`s whose turn is in this round.
    sets: HashMap<SetKey, Option<StatefulSet>>,
    /// The pools that seem to keep no addresses.
    pools: HashMap<String, Option<IpPool>>,
}

/// The state of a reservation in this round.
#[derive(Debug, PartialEq, Eq)]
enum Finding {
    /// A pod may still request the address.
    InForce,
    /// No pod will request it: the reason.
    Obsolete(String),
    /// The turn of its `StatefulSet` is in another round.
    NotChecked,
}

fn key(holder: &Holder) -> SetKey {
    (holder.namespace.clone(), holder.stateful_set.clone())
}

/// The sets whose turn comes after that of `last`.
fn next_sets(all: &BTreeSet<SetKey>, last: Option<&SetKey>) -> Vec<SetKey> {
    let (before, after): (Vec<_>, Vec<_>) = all.iter().partition(|set| last.is_some_and(|last| *set <= last));
    let turns = after.into_iter().chain(before);
    turns.take(SETS_PER_ROUND).cloned().collect()
}

impl Leader {
    /// Frees kept addresses that no pod will request again. Two observations of the same version must agree.
    pub(super) async fn free_reservations(&mut self) -> Result<(), ReconcileError> {
        let kept = self.kept();
        let mut owners = Owners {
            sets: self.read_sets(&kept).await?,
            pools: HashMap::new(),
        };
        let mut seen = HashSet::new();
        for (address, holder) in kept {
            match self.judge(&address, &holder, &mut owners).await? {
                Finding::InForce => {}
                Finding::NotChecked => {
                    seen.insert(address.name_any());
                }
                Finding::Obsolete(evidence) => {
                    seen.insert(address.name_any());
                    self.free_if_unchanged(&address, &holder, &evidence).await?;
                }
            }
        }
        self.obsolete.retain(|name, _| seen.contains(name));
        Ok(())
    }

    fn kept(&self) -> Vec<Kept> {
        let kept = self.addresses.iter();
        kept.filter(|address| address.spec.state == AddressState::Kept)
            .filter_map(|address| Some((address.clone(), address.spec.holder.clone()?)))
            .collect()
    }

    /// Reads the `StatefulSet`s whose turn is in this round.
    async fn read_sets(
        &mut self,
        kept: &[Kept],
    ) -> Result<HashMap<SetKey, Option<StatefulSet>>, ReconcileError> {
        let mut sets = HashMap::new();
        let all = kept.iter().map(|(_, holder)| key(holder)).collect();
        for set in next_sets(&all, self.last_set.as_ref()) {
            // A set that cannot be read does not keep the others from their turns.
            self.last_set = Some(set.clone());
            let found = self.context.api.stateful_set(&set.0, &set.1).await?;
            sets.insert(set, found);
        }
        Ok(sets)
    }

    /// The watch shows whether the pool keeps addresses. If it shows that it does not, the API server is asked.
    async fn judge(
        &self,
        address: &IpAddress,
        holder: &Holder,
        owners: &mut Owners,
    ) -> Result<Finding, ReconcileError> {
        let pool = &address.spec.pool;
        let watched = self.context.pools.get(&ObjectRef::new(pool));
        if end_by_pool(watched.as_deref()).is_some() {
            if !owners.pools.contains_key(pool) {
                owners
                    .pools
                    .insert(pool.clone(), self.context.api.get(pool).await?);
            }
            let current = owners.pools.get(pool).and_then(Option::as_ref);
            if let Some(reason) = end_by_pool(current) {
                return Ok(Finding::Obsolete(reason));
            }
        }
        let Some(set) = owners.sets.get(&key(holder)) else {
            return Ok(Finding::NotChecked);
        };
        let reason = end_by_set(holder, set.as_ref());
        Ok(reason.map_or(Finding::InForce, Finding::Obsolete))
    }

    /// How long an address must be kept for no pod before it is freed: for its cooldown, since another pod may get it then. The
    /// quarantine is for a pool whose cooldown is not known. Another leader observes the address anew.
    fn observation_of(&self, address: &IpAddress) -> Duration {
        let config = &self.context.config.daemon;
        let pool = self.context.pools.get(&ObjectRef::new(&address.spec.pool));
        let accepted = pool.and_then(|pool| pool.status.clone()?.accepted);
        accepted
            .map_or(config.quarantines.unused, |spec| spec.cooldown())
            .max(config.observation_interval)
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
        if since.elapsed() < self.observation_of(address) {
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

#[cfg(test)]
mod tests;
