// SPDX-License-Identifier: Apache-2.0
//! A pool without a free block: requests that another node shares one.

use super::context::{PendingRequest, PoolContext, RequestScope, Target};
use api::block_layout::BlockLayout;
use api::convert::{now, version_number};
use api::pool::condition::EXHAUSTED;
use api::requests::WriteResult;
use common::cni::{Code, Error};
use ipam::range::Family;
use k8s_openapi::jiff::Timestamp;
use std::collections::{HashMap, HashSet};
use std::time::{Duration, Instant};

/// How long a request stands before it is written again.
const REQUEST_STANDS: Duration = Duration::from_secs(20);

/// Requests that other nodes share a block.
pub(super) struct Sharing {
    context: PoolContext,
    /// The version of the pool that contains this node's last request, and when it was written.
    requested: Option<(u64, Instant)>,
    /// When this process first saw each open request. The time in a request is that of another machine's clock.
    seen: HashMap<(Family, String, Timestamp), Instant>,
}

impl Sharing {
    pub(super) fn new(context: PoolContext) -> Self {
        Self {
            context,
            requested: None,
            seen: HashMap::new(),
        }
    }

    /// Requests that another node shares a block. Does nothing if a recent request stands, if the pool has a fallback pool,
    /// or if the controller has found the pool exhausted.
    pub(super) async fn request(&mut self, scope: RequestScope<'_>, family: Family) {
        if self.is_requested(family) || !may_share(scope.target) || self.is_exhausted(scope.pending) {
            return;
        }
        let key = match family {
            Family::V4 => "v4",
            Family::V6 => "v6",
        };
        let request = serde_json::json!({ key: now() });
        match self.context.request(&scope.target.api, request).await {
            Ok(WriteResult::Applied(pool)) => {
                self.requested = Some((version_number(&pool), Instant::now()));
                tracing::info!(pool = %self.context.pool, "requested a shared block: no address is free on this node");
            }
            // The next request writes again.
            Ok(WriteResult::Conflict) => {}
            Err(e) => {
                tracing::warn!(pool = %self.context.pool, error = %e, "requesting a shared block failed");
            }
        }
    }

    /// Whether a recent request for an address of `family` stands, of any node, and has not been answered.
    pub(super) fn is_requested(&mut self, family: Family) -> bool {
        let Some(pool) = self.context.pool_object() else {
            return false;
        };
        // The watch may not have reported this node's own request yet.
        let news =
            |(version, at): (u64, Instant)| version > version_number(&*pool) && at.elapsed() < REQUEST_STANDS;
        let open = pool.status.iter().flat_map(|status| status.shortages(family));
        let open: HashSet<_> = open
            .map(|(node, since)| (family, node.to_owned(), since.0))
            .collect();
        self.seen
            .retain(|request, _| request.0 != family || open.contains(request));
        for request in open {
            self.seen.entry(request).or_insert_with(Instant::now);
        }
        let is_recent =
            |(request, at): (&(Family, _, _), &Instant)| request.0 == family && at.elapsed() < REQUEST_STANDS;
        self.seen.iter().any(is_recent) || self.requested.is_some_and(news)
    }

    /// Whether other nodes may have addresses to share when every block has an owner. The pool's counters do not help: they may
    /// be older than the moment when the pool became full.
    pub(super) fn others_may_share(&self, scope: RequestScope<'_>, own_blocks: usize) -> bool {
        let own = u128::try_from(own_blocks).unwrap_or(u128::MAX);
        let layouts = scope
            .target
            .accepted
            .iter()
            .flat_map(|accepted| &accepted.layouts);
        let all = layouts.map(BlockLayout::blocks).fold(0, u128::saturating_add);
        may_share(scope.target) && all > own && !self.is_exhausted(scope.pending)
    }

    pub(super) fn asked_to_share(&self) -> Error {
        Error::new(
            Code::TRY_AGAIN,
            format!(
                "pool {}: every block has an owner and no address is free in this node's; another node is asked to share one; try again in some seconds",
                self.context.pool
            ),
        )
    }

    /// Whether the controller has found that no node has an address to share. While a plugin waits, only a pool version that is
    /// newer than its request counts: a node may have claimed a block or released addresses meanwhile.
    fn is_exhausted(&self, pending: Option<PendingRequest>) -> bool {
        let Some(pool) = self.context.pool_object() else {
            return false;
        };
        let is_news = pending.is_none_or(|pending| version_number(&*pool) > pending.pool_version);
        let status = pool.status.clone().unwrap_or_default();
        let mut conditions = status.conditions.iter();
        let holds = conditions.any(|condition| condition.type_ == EXHAUSTED && condition.status == "True");
        is_news && holds && !status.has_shortage()
    }
}

/// If the pool has a fallback pool, pods do not need the last addresses of this one.
fn may_share(target: &Target) -> bool {
    target
        .accepted
        .as_ref()
        .is_some_and(|accepted| accepted.spec.fallback.is_empty())
}

#[cfg(test)]
mod tests;
