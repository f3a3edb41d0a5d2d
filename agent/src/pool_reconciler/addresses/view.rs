// SPDX-License-Identifier: Apache-2.0
//! The shared blocks of a pool and their used addresses, as of the last list.
//!
//! Invariant: the view is only a guess. The CREATE of the address object allocates the address. So one list serves many
//! requests, whatever its age: at worst the address is already taken, and the next one is tried.

use super::Claimant;
use api::IpAddress;
use api::block_layout::{BlockCidr, BlockLayout};
use ipam::interval::IntervalSet;
use ipam::range::{Family, single};
use std::collections::BTreeSet;
use std::net::IpAddr;
use std::time::{Duration, Instant};

/// How long a list that has free addresses is used.
const LIST_MAX_AGE: Duration = Duration::from_secs(2);

/// How long a list without free addresses is used, unless the pool changes.
const EMPTY_LIST_MAX_AGE: Duration = Duration::from_millis(500);

/// The shared blocks and their used addresses.
#[derive(Clone, Debug)]
pub(super) struct View {
    at: Instant,
    /// The version of the pool at the time of the list.
    version: u64,
    cidrs: Vec<BlockCidr>,
    taken: BTreeSet<IpAddr>,
    /// The address objects of this node.
    own: Vec<IpAddress>,
}

impl View {
    /// Makes a view of the shared blocks `cidrs` and the address objects `there` of a pool, listed at the time `at`, when the
    /// pool had this `version`.
    pub(super) fn new(
        at: Instant,
        version: u64,
        cidrs: Vec<BlockCidr>,
        there: Vec<IpAddress>,
        node: &str,
    ) -> Self {
        Self {
            at,
            version,
            cidrs,
            taken: there.iter().filter_map(address).collect(),
            own: there
                .into_iter()
                .filter(|address| address.spec.node.node == node)
                .collect(),
        }
    }

    /// The time of the list.
    pub(super) fn at(&self) -> Instant {
        self.at
    }

    /// The free addresses of `layout`.
    pub(super) fn free(&self, layout: &BlockLayout) -> IntervalSet {
        let of_family = self.taken.iter().filter(|ip| Family::of(**ip) == layout.family());
        let taken: IntervalSet = of_family.map(|ip| single(*ip)).collect();
        let shared = self.cidrs.iter().filter(|cidr| layout.has(**cidr));
        shared
            .flat_map(|cidr| layout.usable(*cidr).minus(&taken).intervals().to_vec())
            .collect()
    }

    /// As [`free`](Self::free), if the list is recent enough at `now`, when the pool has this `version`.
    pub(super) fn recent_free(
        &self,
        layout: &BlockLayout,
        version: u64,
        now: Instant,
    ) -> Option<IntervalSet> {
        let free = self.free(layout);
        let age = now.saturating_duration_since(self.at);
        let is_good = if free.is_empty() {
            version == self.version && age < EMPTY_LIST_MAX_AGE
        } else {
            age < LIST_MAX_AGE
        };
        is_good.then_some(free)
    }

    /// The address that this attachment already has, from an answer that came too late for its plugin. If the attachment took
    /// another one, this one would stay unused until it is found, while free addresses are scarce.
    pub(super) fn given_before(&self, family: Family, claimant: &Claimant<'_>) -> Option<IpAddr> {
        let attachment = Some(claimant.attachment());
        let mine = |one: &&IpAddress| one.spec.attachment == attachment && one.spec.holder.is_none();
        let mut addresses = self.own.iter().filter(mine).filter_map(address);
        addresses.find(|ip| Family::of(*ip) == family)
    }

    /// Marks `ip` as taken.
    pub(super) fn take(&mut self, ip: IpAddr) {
        self.taken.insert(ip);
    }

    /// Adds an `object` that this node has created.
    pub(super) fn made(&mut self, object: &IpAddress) {
        self.taken.extend(address(object));
        self.own.push(object.clone());
    }
}

fn address(object: &IpAddress) -> Option<IpAddr> {
    object.spec.address.parse().ok()
}

#[cfg(test)]
mod tests;
