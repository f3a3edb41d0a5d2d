// SPDX-License-Identifier: Apache-2.0
//! Wishes for addresses of pools without a block to claim (`status.requests`), as the API server tells of them: they end waits on
//! this node, the keeper's before it looks at them and that of plugins for what comes of them.
//!
//! Holds always: it only says when to look. Who looks earlier or later finds the same.

use crate::{BlockState, IpBlock, IpPool, IpPoolStatus};
use kube::ResourceExt;
use std::collections::HashSet;
use std::sync::{Mutex, PoisonError};
use tokio::sync::Notify;
use tokio::sync::futures::Notified;

/// What is known of wishes.
#[derive(Debug, Default)]
pub struct Wishes {
    /// The pools with a wish.
    standing: Mutex<HashSet<String>>,
    news: Notify,
    ends: Notify,
}

impl Wishes {
    /// A pool is as told.
    pub fn hear(&self, pool: &IpPool) {
        let name = pool.name_any();
        let stands = pool.status.as_ref().is_some_and(IpPoolStatus::is_wanted);
        let status = pool.status.as_ref();
        if status.is_some_and(|status| status.asked().next().is_some()) {
            self.news.notify_one();
        }
        let mut standing = self.standing.lock().unwrap_or_else(PoisonError::into_inner);
        if stands {
            standing.insert(name);
        } else if standing.remove(&name) {
            self.ends.notify_waiters();
        }
    }

    /// A block of `pool` is as told: one that is shared, or was asked for, is news where there is a wish.
    pub fn hear_block(&self, block: &IpBlock, pool: &IpPool) {
        let Some(status) = &pool.status else { return };
        let asked = || status.sharing.contains(&block.name_any());
        if status.is_wanted() && (block.spec.state == BlockState::Shared || asked()) {
            self.news.notify_one();
        }
    }

    /// Until there is news of a wish that stands; for one who waits.
    pub async fn news(&self) {
        self.news.notified().await;
    }

    /// Until a wish has ended: something is shared, or nothing can be.
    pub fn ends(&self) -> Notified<'_> {
        self.ends.notified()
    }
}

#[cfg(test)]
mod tests;
