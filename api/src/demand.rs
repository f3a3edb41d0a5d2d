// SPDX-License-Identifier: Apache-2.0
//! Tracks open requests for addresses of pools without a block to claim (`status.requests`), from watch events. A change
//! wakes the controller, which handles the requests, and the plugin requests on this node that wait for an address.
//!
//! Invariant: this module only decides when a task looks at the objects. A task that looks earlier or later finds the
//! same.

use crate::block::{BlockState, IpBlock};
use crate::pool::{IpPool, IpPoolStatus};
use kube::ResourceExt;
use std::collections::HashSet;
use std::sync::{Mutex, PoisonError};
use tokio::sync::Notify;
use tokio::sync::futures::Notified;

/// The open requests, and the notifications about them.
#[derive(Debug, Default)]
pub struct Demand {
    /// The names of pools with an open request.
    open: Mutex<HashSet<String>>,
    changed: Notify,
    ended: Notify,
}

impl Demand {
    /// Records the state of a pool from a watch event.
    pub fn observe_pool(&self, pool: &IpPool) {
        let name = pool.name_any();
        let is_open = pool.status.as_ref().is_some_and(IpPoolStatus::has_shortage);
        let status = pool.status.as_ref();
        if status.is_some_and(|status| status.open_requests().next().is_some()) {
            self.changed.notify_one();
        }
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        if is_open {
            open.insert(name);
        } else if open.remove(&name) {
            self.ended.notify_waiters();
        }
    }

    /// Records the state of a block of `pool` from a watch event. If the pool has an open request, the controller is
    /// woken for a block that is shared or that the controller asked the owner to share.
    pub fn observe_block(&self, block: &IpBlock, pool: &IpPool) {
        let Some(status) = &pool.status else { return };
        let asked = || status.sharing.contains(&block.name_any());
        if status.has_shortage() && (block.spec.state == BlockState::Shared || asked()) {
            self.changed.notify_one();
        }
    }

    /// Waits until an open request needs attention. For a single waiter.
    pub async fn changed(&self) {
        self.changed.notified().await;
    }

    /// Waits until the requests of a pool have ended: a block is shared, or no block can be.
    pub fn ended(&self) -> Notified<'_> {
        self.ended.notified()
    }
}

#[cfg(test)]
mod tests;
