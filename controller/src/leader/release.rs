// SPDX-License-Identifier: Apache-2.0
//! Releases addresses of `StatefulSet` pods on request of a node. The pod has started again on that node, and the node of
//! its earlier incarnation does not respond or is gone.
//!
//! Invariant: an address is released only in the version that was watched, after the pod and the node were read. If the
//! node is Ready, the address is not released here: the node's own agent releases it after DEL.

use super::Leader;
use api::requests::{ReconcileError, WriteResult, registration_state};
use api::sticky::{AddressUse, Handover, Wait, handover};
use api::{AddressState, IpAddress, IpPool, IpPoolStatus};
use kube::ResourceExt;
use std::collections::{BTreeSet, HashMap};
use std::time::{Duration, Instant};

/// The most addresses of one pool that one round handles.
const BATCH: usize = 64;

/// An address whose release a node requests.
pub(super) struct Observed {
    version: String,
    /// When this process first saw the address in this version.
    since: Instant,
    /// The quarantine of the address, if its Node object is gone. The node cannot come back: a Node that is registered again has
    /// another UID.
    quarantine: Option<Duration>,
}

impl Observed {
    /// Whether it is too early to release the address.
    fn is_waiting(&self, observation: Duration, now: Instant) -> bool {
        let delay = observation.max(self.quarantine.unwrap_or_default());
        now.saturating_duration_since(self.since) < delay
    }
}

/// The addresses of `names` that one round reads. Addresses that wait are left out: they cost no requests, and the observation
/// of the other ones begins. If another process releases a waiting address, its request stays until the end of the wait.
fn next_batch(
    names: BTreeSet<String>,
    observed: &HashMap<String, Observed>,
    observation: Duration,
    now: Instant,
) -> Vec<String> {
    let waits = |name: &String| {
        observed
            .get(name)
            .is_some_and(|one| one.is_waiting(observation, now))
    };
    names
        .into_iter()
        .filter(|name| !waits(name))
        .take(BATCH)
        .collect()
}

/// Whether a request can be removed.
enum Progress {
    /// The request stays.
    Pending,
    /// The request is fulfilled, or there is nothing to do.
    Done,
}

impl Leader {
    /// Handles the addresses whose release nodes request in `status`, and removes the finished requests.
    pub(super) async fn release_requested(
        &mut self,
        pool: &IpPool,
        status: &mut IpPoolStatus,
    ) -> Result<(), ReconcileError> {
        let requests = status.open_requests();
        let names: BTreeSet<String> = requests.flat_map(|one| one.addresses.iter().cloned()).collect();
        let observation = self.context.config.daemon.observation_interval;
        for name in next_batch(names, &self.releasing, observation, Instant::now()) {
            match self.release_one(&pool.name_any(), &name).await {
                Ok(Progress::Done) => {
                    self.releasing.remove(&name);
                    status.close_address_request(&name);
                }
                Ok(Progress::Pending) => {}
                Err(error) if error.is_unanswered() => return Err(error),
                // A refused request does not delay the others.
                Err(error) => {
                    tracing::warn!(address = name, %error, "releasing an address failed");
                }
            }
        }
        Ok(())
    }

    async fn release_one(&mut self, pool: &str, name: &str) -> Result<Progress, ReconcileError> {
        let found: Option<IpAddress> = self.context.api.get(name).await?;
        let Some(address) = found.filter(|address| address.spec.pool == pool) else {
            return Ok(Progress::Done);
        };
        if address.spec.holder.is_none() || address.spec.state == AddressState::Kept {
            return Ok(Progress::Done);
        }
        let before = self.before(&address).await?;
        let config = &self.context.config.daemon;
        let quarantine = config.quarantines.of(address.spec.quarantine_seconds).unused;
        match handover(before, config.observation_interval, quarantine) {
            Handover::Watch => {
                let observed = Observed {
                    version: address.resource_version().unwrap_or_default(),
                    since: Instant::now(),
                    quarantine: None,
                };
                self.releasing.insert(name.to_owned(), observed);
                Ok(Progress::Pending)
            }
            Handover::Wait(Wait::Observation) => Ok(Progress::Pending),
            Handover::Wait(Wait::Quarantine) => {
                if let Some(observed) = self.releasing.get_mut(name) {
                    observed.quarantine = Some(quarantine);
                }
                Ok(Progress::Pending)
            }
            Handover::Wait(_) => Ok(Progress::Done),
            Handover::Pass => self.release(&address).await,
        }
    }

    async fn release(&self, address: &IpAddress) -> Result<Progress, ReconcileError> {
        if self.context.api.release_address(address).await? == WriteResult::Conflict {
            return Ok(Progress::Pending);
        }
        tracing::warn!(
            address = address.name_any(),
            ip = address.spec.address,
            node = address.spec.node.node,
            pod = address.spec.holder.as_ref().map(|holder| &holder.pod),
            "released the address of an earlier pod: its node is not Ready or is gone"
        );
        Ok(Progress::Done)
    }

    /// What is known of the pod that has the address, read now.
    async fn before(&self, address: &IpAddress) -> Result<AddressUse, ReconcileError> {
        let api = &self.context.api;
        let spec = &address.spec;
        let now = match &spec.holder {
            Some(holder) => api.pod(&holder.namespace, &holder.pod).await?,
            None => None,
        };
        let theirs = spec.pod.as_ref().and_then(|pod| pod.uid.clone());
        let node = api.registration(&spec.node.node).await?;
        let version = address.resource_version().unwrap_or_default();
        let observed = self.releasing.get(&address.name_any());
        let unchanged = observed.filter(|observed| observed.version == version);
        Ok(AddressUse::Remote {
            same_pod: now.is_some_and(|now| now.uid() == theirs),
            node: registration_state(node.as_ref(), &spec.node),
            unchanged: unchanged.map(|observed| observed.since.elapsed()),
        })
    }
}

#[cfg(test)]
mod tests;
