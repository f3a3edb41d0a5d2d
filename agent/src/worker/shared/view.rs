// SPDX-License-Identifier: Apache-2.0
//! The shared blocks of a pool and who has which address of them, as they were listed a moment ago.
//!
//! Holds always: it is good for a guess and nothing else. The name of the object that is made for an address decides who has it,
//! so one list serves many questions, however old it is: at worst an address is somebody's already and the next one is tried.

use super::super::address::Claimant;
use crate::api::IpAddress;
use crate::grid::{Cell, Grid};
use ipam::interval::IntervalSet;
use ipam::range::{Family, single};
use std::collections::BTreeSet;
use std::net::IpAddr;
use std::time::{Duration, Instant};

/// For how long addresses are looked for where a list has some.
const GOOD: Duration = Duration::from_secs(2);

/// For how long a list is believed that has none, unless something is told of the pool.
const NONE_LEFT: Duration = Duration::from_millis(500);

/// What the shared blocks have.
#[derive(Clone, Debug)]
pub(in crate::worker) struct View {
    at: Instant,
    /// The version of the pool at that time.
    version: u64,
    cells: Vec<Cell>,
    taken: BTreeSet<IpAddr>,
    /// The addresses that are objects of this node.
    own: Vec<IpAddress>,
}

impl View {
    /// The shared blocks `cells` and the objects `there` of a pool, listed `at` that time, when the pool had this `version`.
    pub(super) fn new(
        at: Instant,
        version: u64,
        cells: Vec<Cell>,
        there: Vec<IpAddress>,
        node: &str,
    ) -> Self {
        Self {
            at,
            version,
            cells,
            taken: there.iter().filter_map(address).collect(),
            own: there
                .into_iter()
                .filter(|address| address.spec.node.node == node)
                .collect(),
        }
    }

    /// When it was listed.
    pub(super) fn at(&self) -> Instant {
        self.at
    }

    /// The addresses of `grid` that nobody has.
    pub(super) fn free(&self, grid: &Grid) -> IntervalSet {
        let of_family = self.taken.iter().filter(|ip| Family::of(**ip) == grid.family());
        let taken: IntervalSet = of_family.map(|ip| single(*ip)).collect();
        let shared = self.cells.iter().filter(|cell| grid.has(**cell));
        shared
            .flat_map(|cell| grid.usable(*cell).minus(&taken).intervals().to_vec())
            .collect()
    }

    /// The same, if that is good for a guess at `now`, when the pool has this `version`.
    pub(super) fn guess(&self, grid: &Grid, version: u64, now: Instant) -> Option<IntervalSet> {
        let free = self.free(grid);
        let age = now.saturating_duration_since(self.at);
        let is_good = if free.is_empty() {
            version == self.version && age < NONE_LEFT
        } else {
            age < GOOD
        };
        is_good.then_some(free)
    }

    /// The address that this attachment was given already, by an answer that came too late for its plugin. Another one would
    /// leave this one to nobody until it is found unused, and there are few.
    pub(super) fn given_before(&self, family: Family, claimant: &Claimant<'_>) -> Option<IpAddr> {
        let attachment = Some(claimant.attachment());
        let mine = |one: &&IpAddress| one.spec.attachment == attachment && one.spec.holder.is_none();
        let mut addresses = self.own.iter().filter(mine).filter_map(address);
        addresses.find(|ip| Family::of(*ip) == family)
    }

    /// Somebody has `ip`.
    pub(in crate::worker) fn take(&mut self, ip: IpAddr) {
        self.taken.insert(ip);
    }

    /// This node has made `object`.
    pub(in crate::worker) fn made(&mut self, object: &IpAddress) {
        self.taken.extend(address(object));
        self.own.push(object.clone());
    }
}

fn address(object: &IpAddress) -> Option<IpAddr> {
    object.spec.address.parse().ok()
}

#[cfg(test)]
mod tests;
