// SPDX-License-Identifier: Apache-2.0
//! Spreads the writes of many nodes over time, if one event gives all of them something to write.
//!
//! Invariant: with random chances, the nodes together begin about `per_second` writes in each second.

use std::time::Duration;

/// How long one of `nodes` waits before its write, at the random `chance` from 0 to 1.
pub(crate) fn delay(nodes: u64, per_second: f64, chance: f64) -> Duration {
    let nodes = u32::try_from(nodes).unwrap_or(u32::MAX);
    let all = f64::from(nodes) / per_second;
    // In a small cluster all nodes may write at once.
    if all < 1.0 {
        Duration::ZERO
    } else {
        Duration::from_secs_f64(all * chance)
    }
}

#[cfg(test)]
mod tests;
