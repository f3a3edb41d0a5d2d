// SPDX-License-Identifier: Apache-2.0
//! How many blocks are asked for at once.
//!
//! An owner that has shared a block gives none of it by itself any more: each address costs every node requests from then on. So
//! a wish is answered with one block, and those that follow with what lasts for [`LASTS`] at the rate at which the last ones
//! went, and at most twice as much. Each wish says that all that was shared before is used up, so what is shared for nothing is
//! about as much as was needed. What owners have not shared, since they had nothing to share or take their time, is no measure.

use std::cmp::Reverse;
use std::time::Duration;

/// How long what is asked for is to last: about as long as kubelet waits before it tries a pod again.
const LASTS: Duration = Duration::from_secs(10);

/// A block that its owner can share.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Candidate {
    pub(super) name: String,
    /// The node that has it.
    pub(super) node: String,
    /// The addresses of it that nobody has, as its owner told last.
    pub(super) free: u64,
    /// For how long its owner has been asked to share it.
    pub(super) asked: Option<Duration>,
}

impl Candidate {
    /// Whether its owner may be about to share it: it has been asked for no longer than `patience`, and has not said since that
    /// there is nothing to share.
    pub(super) fn is_awaited(&self, patience: Duration) -> bool {
        self.free > 0 && self.asked.is_some_and(|asked| asked < patience)
    }
}

/// What was asked for last, and how long ago.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Last<'a> {
    /// The blocks, with the addresses to spare that they were said to have.
    pub(super) blocks: &'a [(String, u64)],
    pub(super) age: Duration,
}

/// What has become of it, in addresses.
#[derive(Clone, Copy, Debug, Default)]
struct Outcome {
    /// Their owners share them, or are gone.
    shared: u64,
    /// Their owners could still.
    due: u64,
    /// Their owners have said that there is nothing to share.
    declined: u64,
}

impl Last<'_> {
    fn outcome(&self, candidates: &[Candidate]) -> Outcome {
        let mut outcome = Outcome::default();
        for (name, addresses) in self.blocks {
            let part = match candidates.iter().find(|one| one.name == *name) {
                None => &mut outcome.shared,
                Some(one) if one.free == 0 => &mut outcome.declined,
                Some(_) => &mut outcome.due,
            };
            *part = part.saturating_add(*addresses);
        }
        outcome
    }
}

/// The blocks to ask for in answer to a wish that stands while no shared address is left: those with most addresses to spare
/// first. None while owners who were asked less than `haste` ago have most of what was asked for; who takes longer holds up
/// nobody else.
pub(super) fn next<'c>(
    candidates: &'c [Candidate],
    last: Option<&Last<'_>>,
    haste: Duration,
) -> Vec<&'c Candidate> {
    let outcome = last.map(|last| last.outcome(candidates)).unwrap_or_default();
    let coming = candidates.iter().filter(|one| one.is_awaited(haste));
    let coming = coming.map(|one| one.free).fold(0, u64::saturating_add);
    if coming > 0 && coming >= outcome.shared {
        return Vec::new();
    }
    let wanted = match last {
        None => 1,
        Some(last) if outcome.shared > outcome.due => lasting(outcome.shared, last.age),
        Some(_) => outcome
            .shared
            .saturating_add(outcome.due)
            .saturating_add(outcome.declined),
    };
    let mut fresh: Vec<&Candidate> = candidates
        .iter()
        .filter(|one| one.free > 0 && one.asked.is_none())
        .collect();
    fresh.sort_by_key(|one| (Reverse(one.free), &one.name));
    let mut found = 0_u64;
    fresh
        .into_iter()
        .take_while(|one| {
            let short = found < wanted;
            found = found.saturating_add(one.free);
            short
        })
        .collect()
}

/// How many addresses last for [`LASTS`], where so many were used up in this time: at most twice as many as those.
fn lasting(addresses: u64, age: Duration) -> u64 {
    let wanted = u128::from(addresses) * LASTS.as_millis() / age.as_millis().max(1);
    let most = addresses.saturating_mul(2);
    u64::try_from(wanted).unwrap_or(u64::MAX).clamp(1, most.max(1))
}

#[cfg(test)]
mod tests;
