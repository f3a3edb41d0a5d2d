// SPDX-License-Identifier: Apache-2.0
//! Releases addresses of `StatefulSet` pods on request of a node. The pod has started again on that node, and the node of
//! its earlier incarnation does not respond or is gone.
//!
//! Invariant: an address is released only in the version that was watched, after the pod and the node were read. If the
//! node is Ready, the address is not released here: the node's own agent releases it after DEL.

use super::Keeper;
use crate::context::Failure;
use api::cluster::{Written, get, let_go, state_of};
use api::sticky::{Before, Verdict, Wait, verdict};
use api::{AddressState, IpAddress, IpPool, IpPoolStatus};
use kube::ResourceExt;
use std::collections::BTreeSet;
use std::time::Instant;

/// The most addresses of one pool that one round looks at.
const AT_ONCE: usize = 64;

/// Whether a request is done.
enum Answer {
    /// The request stays.
    Later,
    /// The request is fulfilled, or there is nothing to do.
    Done,
}

impl Keeper {
    /// Handles the addresses whose release nodes request in `status`, and removes the finished requests.
    pub(super) async fn release_asked(
        &mut self,
        pool: &IpPool,
        status: &mut IpPoolStatus,
    ) -> Result<(), Failure> {
        let requests = status.asked();
        let asked: BTreeSet<String> = requests.flat_map(|one| one.addresses.iter().cloned()).collect();
        for name in asked.into_iter().take(AT_ONCE) {
            match self.release_one(&pool.name_any(), &name).await {
                Ok(Answer::Done) => {
                    self.passing.remove(&name);
                    status.answer_for(&name);
                }
                Ok(Answer::Later) => {}
                Err(Failure::Cluster(trouble)) if trouble.is_silence() => return Err(trouble.into()),
                // A refused request does not delay the others.
                Err(failure) => {
                    tracing::warn!(address = name, error = %failure, "releasing an address failed");
                }
            }
        }
        Ok(())
    }

    async fn release_one(&mut self, pool: &str, name: &str) -> Result<Answer, Failure> {
        let cluster = &self.context.cluster;
        let there: Option<IpAddress> = get(&cluster.addresses, name).await?;
        let Some(address) = there.filter(|address| address.spec.pool == pool) else {
            return Ok(Answer::Done);
        };
        if address.spec.holder.is_none() || address.spec.state == AddressState::Kept {
            return Ok(Answer::Done);
        }
        let before = self.before(&address).await?;
        let config = &self.context.config;
        match verdict(before, config.observe, config.quarantine) {
            Verdict::Watch => {
                let version = address.resource_version().unwrap_or_default();
                self.passing.insert(name.to_owned(), (version, Instant::now()));
                Ok(Answer::Later)
            }
            Verdict::Wait(Wait::Observation | Wait::Quarantine) => Ok(Answer::Later),
            Verdict::Wait(_) => Ok(Answer::Done),
            Verdict::Pass => self.release(&address).await,
        }
    }

    async fn release(&self, address: &IpAddress) -> Result<Answer, Failure> {
        if let_go(&self.context.cluster.addresses, address).await? == Written::Late {
            return Ok(Answer::Later);
        }
        tracing::warn!(
            address = address.name_any(),
            ip = address.spec.address,
            node = address.spec.node.node,
            pod = address.spec.holder.as_ref().map(|holder| &holder.pod),
            "released an address of an earlier pod whose node does not answer"
        );
        Ok(Answer::Done)
    }

    /// What is known of the pod that has the address, read now.
    async fn before(&self, address: &IpAddress) -> Result<Before, Failure> {
        let cluster = &self.context.cluster;
        let spec = &address.spec;
        let now = match &spec.holder {
            Some(holder) => cluster.pod(&holder.namespace, &holder.pod).await?,
            None => None,
        };
        let theirs = spec.pod.as_ref().and_then(|pod| pod.uid.clone());
        let node = cluster.registration(&spec.node.node).await?;
        let version = address.resource_version().unwrap_or_default();
        let watched = self.passing.get(&address.name_any());
        let unchanged = watched.filter(|(seen, _)| *seen == version);
        Ok(Before::There {
            same_pod: now.is_some_and(|now| now.uid() == theirs),
            node: state_of(node.as_ref(), &spec.node),
            unchanged: unchanged.map(|(_, since)| since.elapsed()),
        })
    }
}
