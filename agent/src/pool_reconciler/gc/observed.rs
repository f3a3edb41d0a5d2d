// SPDX-License-Identifier: Apache-2.0
//! What earlier rounds of the garbage collector have observed.
//!
//! Invariant: an agent that creates no address objects lists them only now and then, and one that may have left some lists them
//! until it has found each.

use crate::suspects::Suspects;
use api::deadline::BACKGROUND_LIMIT;
use block::owner::NodeIdentity;
use common::cni::Attachment;
use ipam::store::NetnsFile;
use std::time::{Duration, Instant};

/// Without any suspicion, addresses are listed once in this many times [`crate::config::Config::observation_interval`].
const IDLE_INTERVALS: u32 = 20;

/// A lease with the network namespace that was inspected. If a repeated ADD moves the lease to another namespace, the suspicion
/// about the old one does not apply to it.
pub(super) type Suspect = (Attachment, u64, Option<NetnsFile>);

/// What earlier rounds have observed.
#[derive(Default)]
pub(super) struct Observed {
    pub(super) leases: Suspects<Suspect>,
    /// Address objects without a lease, by name and resource version.
    pub(super) addresses: Suspects<String>,
    /// Leases whose namespace exists although their pod has a newer sandbox.
    pub(super) lost: Suspects<Suspect>,
    pub(super) looked: Option<Instant>,
    /// When this node's addresses were last listed.
    pub(super) listed: Option<Instant>,
    /// The registration of this node when all address objects of its leases were last found correct.
    pub(super) kept_as: Option<NodeIdentity>,
    /// The registration of this node when its address objects were last listed and no leased one had to be changed. `None` once the
    /// record of a release has ended: the list left its address out.
    pub(super) collected_as: Option<NodeIdentity>,
}

impl Observed {
    /// Whether there may be address objects without a lease, or objects that the controller orphaned. Only this agent creates
    /// them. So in a large cluster an agent that creates none does not list them every few seconds. What was written before this
    /// process started, or by another process, is found later.
    pub(super) fn must_list(
        &self,
        me: &NodeIdentity,
        interval: Duration,
        last_write: Option<Instant>,
    ) -> bool {
        self.kept_as.as_ref() != Some(me)
            || self.has_suspects(me, interval, last_write)
            || !is_recent(self.listed, interval * IDLE_INTERVALS)
    }

    /// The same for a pool that is not accepted, or that the API server does not have any more. No agent creates objects of it, so
    /// they are not listed regularly.
    pub(super) fn must_list_lost(
        &self,
        me: &NodeIdentity,
        interval: Duration,
        last_write: Option<Instant>,
    ) -> bool {
        self.collected_as.as_ref() != Some(me) || self.has_suspects(me, interval, last_write)
    }

    /// Whether an object looks unused, or was written so lately that it may begin to look so. If the Node is gone, the controller
    /// may orphan an object at any time.
    fn has_suspects(&self, me: &NodeIdentity, interval: Duration, last_write: Option<Instant>) -> bool {
        matches!(me, NodeIdentity::Gone(_))
            || !self.addresses.is_empty()
            || is_recent(last_write, BACKGROUND_LIMIT + interval * 4)
    }
}

fn is_recent(at: Option<Instant>, within: Duration) -> bool {
    at.is_some_and(|at| at.elapsed() < within)
}

#[cfg(test)]
mod tests;
