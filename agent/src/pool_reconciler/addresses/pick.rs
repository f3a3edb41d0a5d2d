// SPDX-License-Identifier: Apache-2.0
//! Searches a free address among those that any node may take: a few tries first, then a list.

use super::super::context::RequestScope;
use super::{Addresses, Claimant};
use api::IpAddress;
use api::convert::ip_in;
use block::claim::{Order, seed};
use common::cni::{Code, Error};
use ipam::interval::IntervalSet;
use ipam::range::{Family, single};
use std::collections::HashMap;
use std::time::{Duration, Instant};

/// The number of addresses that are tried one by one before all are listed. With a slow API server, the time of a plugin ends
/// before the tries do. So the next search has fewer left, and the list comes in the end.
const TRIES: u128 = 16;

/// How many addresses a search passes over because the agent of their block has not noted yet that they are reserved, or because
/// another process has just changed them. Each costs three requests.
const UNUSABLE: usize = 8;

/// How long the result of a search that found nothing is valid, at first and at most. An address that another node releases
/// meanwhile is found that much later.
const FULL: (Duration, Duration) = (Duration::from_secs(5), Duration::from_secs(60));

/// Searches that found every address taken, by family.
#[derive(Default)]
pub(super) struct Exhausted(HashMap<Family, Full>);

struct Full {
    /// The addresses that were all taken.
    all: IntervalSet,
    until: Instant,
    pause: Duration,
}

impl Exhausted {
    /// Whether a recent search found all addresses of `all` taken.
    fn is_known(&self, family: Family, all: &IntervalSet, now: Instant) -> bool {
        let full = self.0.get(&family);
        full.is_some_and(|full| full.all == *all && now < full.until)
    }

    /// Notes that a search found all addresses of `all` taken. The result is valid twice as long as the previous one. `chance` (0
    /// to 1) spreads out the searches of the nodes.
    fn note(&mut self, family: Family, all: &IntervalSet, now: Instant, chance: f64) {
        let before = self.0.get(&family).filter(|full| full.all == *all);
        let pause = before.map_or(FULL.0, |full| (full.pause * 2).min(FULL.1));
        let full = Full {
            all: all.clone(),
            until: now + pause.mul_f64(0.75 + chance / 2.0),
            pause,
        };
        self.0.insert(family, full);
    }

    fn forget(&mut self, family: Family) {
        self.0.remove(&family);
    }

    /// Forgets all results, since this node has released addresses.
    pub(super) fn clear(&mut self) {
        self.0.clear();
    }
}

impl Addresses {
    /// Binds any free address of `all`; none if all are taken. The seed of the claimant decides where the search begins.
    pub(in crate::pool_reconciler) async fn bind_any(
        &mut self,
        scope: RequestScope<'_>,
        family: Family,
        all: &IntervalSet,
        claimant: &Claimant<'_>,
    ) -> Result<Option<IpAddress>, Error> {
        if self.exhausted.is_known(family, all, Instant::now()) {
            return Ok(None);
        }
        let found = self.search(scope, family, all, claimant).await?;
        if found.is_some() {
            self.exhausted.forget(family);
        } else {
            self.exhausted.note(family, all, Instant::now(), fastrand::f64());
            self.misses.remove(&family);
        }
        Ok(found)
    }

    /// As [`Self::bind_any`], but ignores the results of earlier searches.
    async fn search(
        &mut self,
        scope: RequestScope<'_>,
        family: Family,
        all: &IntervalSet,
        claimant: &Claimant<'_>,
    ) -> Result<Option<IpAddress>, Error> {
        let misses = self.misses.get(&family).copied().unwrap_or_default();
        let some = self.some_of(all, TRIES.saturating_sub(misses), claimant);
        if let Some(address) = self.bind_one(scope, family, some, claimant).await? {
            return Ok(Some(address));
        }
        if all.is_empty() {
            return Ok(None);
        }
        // The list includes other pools, which may have the same addresses.
        let taken: Vec<IpAddress> = scope.target.api.list("").await.map_err(|e| {
            self.context
                .unanswered("which addresses of the pool are free", &e.into())
        })?;
        let taken: IntervalSet = taken
            .iter()
            .filter_map(|address| ip_in(address, &scope.accepted.spec.address_space))
            .filter(|ip| Family::of(*ip) == family)
            .map(single)
            .collect();
        let free = all.minus(&taken);
        let first = (0..TRIES.min(free.count())).filter_map(|index| nth(&free, index));
        self.bind_one(scope, family, first.collect(), claimant).await
    }

    /// A few addresses of `all`, in the claimant's own order.
    pub(super) fn some_of(&mut self, all: &IntervalSet, tries: u128, claimant: &Claimant<'_>) -> Vec<u128> {
        let order = Order::new(all.count(), self.seed_of(claimant));
        let positions = 0..tries.min(all.count());
        positions
            .filter_map(|position| nth(all, order.at(position)?))
            .collect()
    }

    /// Binds the first free address of these.
    pub(super) async fn bind_one(
        &mut self,
        scope: RequestScope<'_>,
        family: Family,
        numbers: Vec<u128>,
        claimant: &Claimant<'_>,
    ) -> Result<Option<IpAddress>, Error> {
        let mut unusable = Vec::new();
        for number in numbers {
            match self.bind(scope, family.address(number), claimant).await {
                Err(e) if e.code == Code::ADDRESS_IN_USE => *self.misses.entry(family).or_default() += 1,
                Ok(address) => {
                    self.misses.remove(&family);
                    return Ok(Some(address));
                }
                Err(e) if e.code == Code::TRY_AGAIN && unusable.len() < UNUSABLE => unusable.push(e),
                Err(e) => return Err(e),
            }
        }
        unusable.into_iter().next().map_or(Ok(None), Err)
    }

    /// The seed of the claimant's order: a new one for each attempt. A pod that keeps its address has the same seed on every
    /// node.
    fn seed_of(&mut self, claimant: &Claimant<'_>) -> u64 {
        if let Some(holder) = &claimant.holder {
            let name = format!(
                "{}/{}/{}/{}",
                holder.namespace, holder.pod, holder.network, holder.ifname
            );
            return seed(&name, self.context.pool.as_str(), 0);
        }
        self.attempts += 1;
        let container = claimant.asked.owner.container_id.as_str();
        seed(container, self.context.pool.as_str(), self.attempts)
    }

    pub(in crate::pool_reconciler) fn all_taken(&self, all: &IntervalSet) -> Error {
        Error::new(
            Code::EXHAUSTED,
            format!(
                "pool {} is exhausted: all of its {} addresses are taken; add a range or remove pods",
                self.context.pool,
                all.count()
            ),
        )
    }
}

/// The member of `set` with this index.
fn nth(set: &IntervalSet, mut index: u128) -> Option<u128> {
    for interval in set.intervals() {
        if index < interval.count() {
            return Some(interval.first + index);
        }
        index -= interval.count();
    }
    None
}

#[cfg(test)]
mod tests;
