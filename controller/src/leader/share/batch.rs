// SPDX-License-Identifier: Apache-2.0
//! Decides how many blocks to ask for at once.
//!
//! Once a block is shared, its owner no longer allocates from it locally, and each address costs every node requests to
//! the API server. So few blocks are shared at a time:
//!
//! - The first request is answered with one block.
//! - Each later request is answered with the addresses that last for [`BATCH_DURATION`] at the rate at which the last batch was used
//!   up, but with at most twice that batch.
//!
//! Each request shows that all addresses shared before are used up. So about as many addresses are shared in vain as were
//! needed. Blocks that were asked for and not shared do not count for the rate: their owners had nothing to share, or
//! take their time.

use std::cmp::Reverse;
use std::time::Duration;

/// How long a batch should last: about as long as the kubelet waits before it retries a pod.
const BATCH_DURATION: Duration = Duration::from_secs(10);

/// A block that its owner can share.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Candidate {
    pub(super) name: String,
    /// The node that owns the block.
    pub(super) node: String,
    /// The free addresses of the block, from its owner's last report.
    pub(super) free: u64,
    /// For how long the owner has been asked to share the block.
    pub(super) asked: Option<Duration>,
}

impl Candidate {
    /// Whether the owner may still share the block: it was asked less than `timeout` ago, and its last report shows
    /// free addresses.
    pub(super) fn is_awaited(&self, timeout: Duration) -> bool {
        self.free > 0 && self.asked.is_some_and(|asked| asked < timeout)
    }
}

/// The last batch that was asked for, and its age.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct LastBatch<'a> {
    /// The blocks, each with the free addresses that its owner had reported.
    pub(super) blocks: &'a [(String, u64)],
    pub(super) age: Duration,
}

/// The result of a batch, in addresses.
#[derive(Clone, Copy, Debug, Default)]
struct Outcome {
    /// The blocks are shared, or their owners are gone.
    shared: u64,
    /// The owners may still share the blocks.
    pending: u64,
    /// The owners have reported that no address is free.
    declined: u64,
}

impl LastBatch<'_> {
    fn outcome(&self, candidates: &[Candidate]) -> Outcome {
        let mut outcome = Outcome::default();
        for (name, addresses) in self.blocks {
            let part = match candidates.iter().find(|one| one.name == *name) {
                None => &mut outcome.shared,
                Some(one) if one.free == 0 => &mut outcome.declined,
                Some(_) => &mut outcome.pending,
            };
            *part = part.saturating_add(*addresses);
        }
        outcome
    }
}

/// The blocks to ask for if there is a request and no shared address is left, those with the most free addresses first.
/// Returns none while most of the last batch is still expected from owners that were asked less than `timeout` ago. An
/// owner that takes longer does not delay the others.
pub(super) fn next<'c>(
    candidates: &'c [Candidate],
    last: Option<&LastBatch<'_>>,
    timeout: Duration,
) -> Vec<&'c Candidate> {
    let outcome = last.map(|last| last.outcome(candidates)).unwrap_or_default();
    let coming = candidates.iter().filter(|one| one.is_awaited(timeout));
    let coming = coming.map(|one| one.free).fold(0, u64::saturating_add);
    if coming > 0 && coming >= outcome.shared {
        return Vec::new();
    }
    let wanted = match last {
        None => 1,
        Some(last) if outcome.shared > outcome.pending => addresses_for_duration(outcome.shared, last.age),
        Some(_) => outcome
            .shared
            .saturating_add(outcome.pending)
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

/// The number of addresses that last for [`BATCH_DURATION`] if `addresses` were used up in `age`: at most twice `addresses`.
fn addresses_for_duration(addresses: u64, age: Duration) -> u64 {
    let wanted = u128::from(addresses) * BATCH_DURATION.as_millis() / age.as_millis().max(1);
    let most = addresses.saturating_mul(2);
    u64::try_from(wanted).unwrap_or(u64::MAX).clamp(1, most.max(1))
}

#[cfg(test)]
mod tests;
