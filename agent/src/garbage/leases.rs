// SPDX-License-Identifier: Apache-2.0
//! Leases of networks with `ranges`, in the store of `rdma-ipam`. Those of pools belong to the pool's reconciler.

use super::evidence::evidence;
use crate::agent::Agent;
use crate::suspects::Suspects;
use api::requests::ReconcileError;
use common::cni::{Attachment, Error, IfName};
use common::collector::PodId;
use ipam::store::{NetnsFile, Store, StoredLease};
use std::collections::HashSet;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Instant;

/// The label of the metrics.
const KIND: &str = "lease";

/// A lease with the namespace that was inspected. If a repeated ADD moves the lease to another namespace, the
/// suspicion about the old one does not apply to it.
type Suspect = (String, Attachment, u64, Option<NetnsFile>);

/// The leases whose DEL seems to be lost.
pub(super) struct RangeLeases {
    agent: Arc<Agent>,
    suspects: Suspects<Suspect>,
}

/// A lease whose namespace is gone.
struct Dead {
    stored: StoredLease,
    pod: PodId,
    /// Whether a living sandbox of the pod has a lease for the same interface.
    replaced: bool,
}

impl RangeLeases {
    pub(super) fn new(agent: Arc<Agent>) -> Self {
        Self {
            agent,
            suspects: Suspects::default(),
        }
    }

    /// Ends the leases that are proven unused, and remembers what is suspect. A store that cannot be read delays
    /// no other.
    ///
    /// # Errors
    /// The API server does not answer, or a store cannot be read or written.
    pub(super) async fn collect(&mut self) -> Result<(), ReconcileError> {
        self.suspects.begin_round();
        let mut failed = None;
        for network in self.agent.stores.networks() {
            match self.collect_in(&network).await {
                Ok(()) => {}
                Err(e @ ReconcileError::Api(_)) => return Err(e),
                Err(e) => failed = Some(e),
            }
        }
        failed.map_or(Ok(()), Err)
    }

    async fn collect_in(&mut self, network: &str) -> Result<(), ReconcileError> {
        let dead = self.agent.stores.with_ranges(network, dead_leases).await?;
        for dead in dead {
            let Some(evidence) = evidence(&self.agent, &dead.pod, dead.replaced).await? else {
                continue;
            };
            let lease = &dead.stored.lease;
            let key = (
                network.to_owned(),
                lease.owner.clone(),
                dead.stored.inode,
                lease.sandbox.netns.clone(),
            );
            let suspected = self.suspects.observe(&key, Instant::now());
            if suspected >= self.agent.config.daemon.observation_interval {
                self.release(network, dead.stored, suspected.as_secs(), &evidence)
                    .await?;
            }
        }
        Ok(())
    }

    async fn release(
        &self,
        network: &str,
        stored: StoredLease,
        seconds: u64,
        evidence: &str,
    ) -> Result<(), ReconcileError> {
        let (lease, gone) = (stored.lease.describe(), stored.lease.owner.clone());
        let addresses: Vec<IpAddr> = stored.lease.addresses().collect();
        let release = move |store: &Store<'_>| match store.enter_existing()? {
            Some(locked) => locked.release_unchanged(&stored),
            None => Ok(false),
        };
        if self.agent.stores.with_ranges(network, release).await? {
            tracing::warn!(network, attachment = %gone, ?addresses, seconds, lease, evidence, "released a lease of ranges without a pod");
            self.agent.metrics.collected(KIND);
        }
        Ok(())
    }
}

/// The leases of pods whose namespaces are gone. A lease that the runtime gave no pod or no namespace is not among
/// them.
///
/// # Errors
/// The store cannot be listed.
fn dead_leases(store: &Store<'_>) -> Result<Vec<Dead>, Error> {
    let (dead, others): (Vec<StoredLease>, Vec<StoredLease>) =
        store.leases()?.intact.into_iter().partition(is_dead);
    let living: HashSet<(String, IfName)> = others
        .into_iter()
        .filter_map(|stored| Some((stored.lease.sandbox.uid?, stored.lease.owner.ifname)))
        .collect();
    let of_pod = |stored: StoredLease| {
        let pod = pod_of(&stored)?;
        let interface = (pod.uid.clone(), stored.lease.owner.ifname.clone());
        Some(Dead {
            replaced: living.contains(&interface),
            stored,
            pod,
        })
    };
    Ok(dead.into_iter().filter_map(of_pod).collect())
}

fn pod_of(stored: &StoredLease) -> Option<PodId> {
    let sandbox = &stored.lease.sandbox;
    let (namespace, name) = sandbox.pod.as_ref()?.split_once('/')?;
    Some(PodId {
        namespace: namespace.to_owned(),
        name: name.to_owned(),
        uid: sandbox.uid.clone()?,
    })
}

/// Whether the namespace is proven gone.
fn is_dead(stored: &StoredLease) -> bool {
    let netns = &stored.lease.sandbox.netns;
    netns.as_ref().is_some_and(|netns| netns.fate().is_proven_gone())
}
