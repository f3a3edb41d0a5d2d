// SPDX-License-Identifier: Apache-2.0
//! Addresses of shared blocks.

use super::super::context::RequestScope;
use super::view::View;
use super::{Addresses, Claimant};
use api::block_layout::BlockCidr;
use api::convert::{cidr_of, version_number};
use api::requests::{ReconcileError, Requests};
use api::{IpAddress, IpBlock};
use common::cni::Error;
use ipam::interval::IntervalSet;
use ipam::range::Family;
use std::time::Instant;

/// The number of addresses of an older list that are tried before the addresses are listed again.
const TRIES: u128 = 2;

impl Addresses {
    /// Forgets the last list of shared blocks.
    pub(in crate::pool_reconciler) fn forget_shared(&mut self) {
        self.shared = None;
    }

    /// When the shared blocks were last listed.
    pub(in crate::pool_reconciler) fn listed_shared_at(&self) -> Option<Instant> {
        self.shared.as_ref().map(View::at)
    }

    pub(in crate::pool_reconciler) async fn has_shared(
        &mut self,
        scope: RequestScope<'_>,
        family: Family,
    ) -> Result<bool, Error> {
        Ok(!self.free_shared(scope, family).await?.is_empty())
    }

    /// Binds an address of a shared block, unless other nodes take them all.
    pub(in crate::pool_reconciler) async fn bind_shared(
        &mut self,
        scope: RequestScope<'_>,
        family: Family,
        claimant: &Claimant<'_>,
    ) -> Result<Option<IpAddress>, Error> {
        let free = self.free_shared(scope, family).await?;
        if let Some(address) = self.bind_again(scope, family, claimant).await? {
            return Ok(Some(address));
        }
        let some = self.some_of(&free, TRIES, claimant);
        if let Some(address) = self.bind_one(scope, family, some, claimant).await? {
            return Ok(Some(address));
        }
        // Other nodes have taken the tried addresses.
        self.shared = None;
        let free = self.free_shared(scope, family).await?;
        self.bind_any(scope, family, &free, claimant).await
    }

    /// Binds the address that the attachment already has.
    async fn bind_again(
        &mut self,
        scope: RequestScope<'_>,
        family: Family,
        claimant: &Claimant<'_>,
    ) -> Result<Option<IpAddress>, Error> {
        let view = self.shared.as_ref();
        let Some(ip) = view.and_then(|view| view.given_before(family, claimant)) else {
            return Ok(None);
        };
        self.bind(scope, ip, claimant).await.map(Some)
    }

    /// The free addresses of shared blocks, from a list that is recent enough for a guess.
    async fn free_shared(&mut self, scope: RequestScope<'_>, family: Family) -> Result<IntervalSet, Error> {
        let Some(layout) = scope.accepted.layout(family) else {
            return Ok(IntervalSet::default());
        };
        let pool_version = self
            .context
            .pool_object()
            .map_or(0, |pool| version_number(&*pool));
        let view = self.shared.as_ref();
        if let Some(free) = view.and_then(|view| view.recent_free(layout, pool_version, Instant::now())) {
            return Ok(free);
        }
        let view = self
            .list_shared(&scope.target.api, pool_version)
            .await
            .map_err(|e| self.context.failed(&e))?;
        Ok(self.shared.insert(view).free(layout))
    }

    async fn list_shared(&self, api: &Requests, pool_version: u64) -> Result<View, ReconcileError> {
        let at = Instant::now();
        let fields = format!("spec.pool={},spec.state=Shared", self.context.pool);
        let blocks: Vec<IpBlock> = api.list(&fields).await?;
        let cidrs: Vec<BlockCidr> = blocks.iter().filter_map(cidr_of).collect();
        let mut there: Vec<IpAddress> = Vec::new();
        if !cidrs.is_empty() {
            // One list serves any number of shared blocks. If another pool has an address, the CREATE fails.
            there = api.list(&format!("spec.pool={}", self.context.pool)).await?;
        }
        Ok(View::new(
            at,
            pool_version,
            cidrs,
            there,
            &self.context.agent.config.node,
        ))
    }
}
