// SPDX-License-Identifier: Apache-2.0
//! How long a worker waits between two rounds.
//!
//! Agents start together, after an update or when the API server is back, and a round takes several requests in a row, each with a
//! time limit. If those that fail came again together, they would find the same queue each time.

use std::time::Duration;

/// The longest pause, in the mean.
const LONGEST: Duration = Duration::from_secs(30);

/// After a round that was in a plugin's way the next one waits no longer than this.
const SOON: Duration = Duration::from_secs(1);

/// How a round has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Round {
    /// Everything was done.
    Well,
    /// Something cannot be done now.
    Badly,
    /// It was in a plugin's way, which says nothing about the API server.
    Cut,
}

/// What a worker goes by.
pub(super) struct Rhythm {
    tick: Duration,
    /// Rounds in a row that failed.
    failures: u32,
}

impl Rhythm {
    pub(super) fn new(tick: Duration) -> Self {
        Self { tick, failures: 0 }
    }

    /// The pause after a round. `chance` (0 to 1) keeps those that failed together apart.
    pub(super) fn after(&mut self, round: Round, chance: f64) -> Duration {
        match round {
            Round::Well => self.failures = 0,
            Round::Badly => self.failures = self.failures.saturating_add(1),
            Round::Cut if self.failures == 0 => return self.tick.min(SOON),
            Round::Cut => {}
        }
        if self.failures == 0 {
            return self.tick;
        }
        let pause = self
            .tick
            .saturating_mul(2_u32.saturating_pow(self.failures))
            .min(LONGEST);
        pause.mul_f64(0.5 + chance)
    }

    /// Whether news ends the pause. They come to all agents at once, and so not while rounds fail.
    pub(super) fn hears_news(&self) -> bool {
        self.failures == 0
    }
}

#[cfg(test)]
mod tests;
