// SPDX-License-Identifier: Apache-2.0
//! Addresses of ended leases of this node whose objects still exist. If nothing else is left, such an address passes to another
//! attachment before its cooldown has ended. The plugin requests that only for a main plugin that probes the address.
//!
//! Invariant: until the other attachment has a lease, the record of the ended lease stays, and with it the object. So no other node
//! can take the address before its cooldown has ended, whatever happens to this ADD.

use super::super::context::{LocalUse, RequestScope};
use super::{Addresses, Claimant, is_attachment, is_for};
use api::convert::node_ref;
use api::requests::{ReconcileError, Requests, WriteResult};
use api::{AddressState, IpAddress};
use block::owner::NodeIdentity;
use common::cni::Error;
use ipam::agent::Pod;
use ipam::store::{Lease, Released};
use std::net::IpAddr;

impl Addresses {
    /// Passes an address that `is_wanted` and that rests on this node to the claimant: one whose lease DEL has ended first, and of
    /// these one that has not passed to another attachment yet. Then the previous one of its pod comes first, then the one that has
    /// rested longest, and of several that have rested equally long the lowest. None if there is none.
    pub(in crate::pool_reconciler) async fn take_resting(
        &mut self,
        scope: RequestScope<'_>,
        is_wanted: impl Fn(IpAddr) -> bool,
        claimant: &Claimant<'_>,
    ) -> Result<Option<IpAddress>, Error> {
        let passed = self.pass_resting(&scope.target.api, is_wanted, claimant).await;
        let passed = passed.map_err(|e| self.context.unanswered("which addresses rest on this node", &e))?;
        let Some((ip, address)) = passed else {
            return Ok(None);
        };
        self.require_noted(scope, ip).await?;
        tracing::info!(pool = %self.context.pool, %ip, attachment = %claimant.asked.owner, "passed on a resting address: no other one is left");
        Ok(Some(address))
    }

    /// Deletes the objects that were bound for a request that failed, except those of resting addresses. An object that is not
    /// deleted now is found later, since no lease has it.
    pub(in crate::pool_reconciler) async fn give_up(&self, scope: RequestScope<'_>, given: &[IpAddress]) {
        let Ok(released) = self.context.agent.stores.releases(&self.context.pool).await else {
            return;
        };
        let pool = self.context.pool.as_str();
        let rests = |address: &&IpAddress| released.iter().any(|released| is_for(pool, address, released.ip));
        for address in given.iter().filter(|address| !rests(address)) {
            let _ = scope.target.api.release_address(address).await;
        }
    }

    async fn pass_resting(
        &self,
        api: &Requests,
        is_wanted: impl Fn(IpAddr) -> bool,
        claimant: &Claimant<'_>,
    ) -> Result<Option<(IpAddr, IpAddress)>, ReconcileError> {
        let mut released = self.context.agent.stores.releases(&self.context.pool).await?;
        released.retain(|released| is_wanted(released.ip));
        let Some(NodeIdentity::Registered(me)) = self.context.agent.identity() else {
            return Ok(None);
        };
        if released.is_empty() {
            return Ok(None);
        }
        let me = node_ref(&me);
        let mut there = api.addresses_of(&self.context.agent.config.node).await?;
        there.retain(|address| {
            let spec = &address.spec;
            spec.state == AddressState::Bound && spec.holder.is_none() && spec.node == me
        });
        let there = self.context.by_ip(&there);
        released.sort_by_key(|released| {
            let object = there.get(&released.ip);
            (
                released.without_del,
                object.is_some_and(|object| has_passed(released, object, claimant)),
                !is_of_pod(released, claimant),
                released.ended,
                released.ip,
            )
        });
        for ip in released.into_iter().map(|released| released.ip) {
            let Some(object) = there.get(&ip) else {
                continue;
            };
            if self.is_unused(ip, object, claimant).await?
                && let Some(passed) = pass(api, object, claimant).await?
            {
                return Ok(Some((ip, passed)));
            }
        }
        Ok(None)
    }

    /// Whether no lease of this node has `ip`. From here on, no request of another attachment becomes such a lease.
    async fn is_unused(
        &self,
        ip: IpAddr,
        object: &IpAddress,
        claimant: &Claimant<'_>,
    ) -> Result<bool, ReconcileError> {
        let before = object.spec.attachment.clone();
        if before == Some(claimant.attachment()) {
            // The claimant waits for the answer to its request.
            return Ok(self.context.local_use(ip, None).await? != LocalUse::Leased);
        }
        self.context.end_pending(ip, before).await
    }
}

/// Whether the pod of the claimant had the address.
fn is_of_pod(released: &Released, claimant: &Claimant<'_>) -> bool {
    let before = released.lease.as_ref().and_then(|lease| Pod::of(&lease.sandbox));
    let name = |pod: Pod| (pod.namespace, pod.name);
    before.is_some() && before.map(name) == claimant.pod.clone().map(name)
}

/// Whether the address has already passed from the ended lease to an attachment that is not the claimant. The ADD of that one may
/// be about to make its lease.
fn has_passed(released: &Released, object: &IpAddress, claimant: &Claimant<'_>) -> bool {
    let Some(has) = &object.spec.attachment else {
        return false;
    };
    let is_of_lease = |lease: &Lease| is_attachment(has, &lease.owner);
    *has != claimant.attachment() && !released.lease.as_ref().is_none_or(is_of_lease)
}

/// Makes the claimant the owner of `object`. None if another process has changed the object.
async fn pass(
    api: &Requests,
    object: &IpAddress,
    claimant: &Claimant<'_>,
) -> Result<Option<IpAddress>, ReconcileError> {
    let mut wanted = object.clone();
    claimant.take(&mut wanted.spec);
    Ok(match api.replace(&wanted).await? {
        WriteResult::Applied(passed) => Some(passed),
        WriteResult::Conflict => None,
    })
}

#[cfg(test)]
mod tests;
