// SPDX-License-Identifier: Apache-2.0
//! How long a worker waits between two rounds.
//!
//! Agents start together, after an update or when the API server is back, and a round takes several requests in a row, each with a
//! time limit. If those that fail came again together, they would find the same queue each time.

use std::time::Duration;

/// The longest pause, in the mean.
const LONGEST: Duration = Duration::from_secs(30);

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
    pub(super) fn after(&mut self, well: bool, chance: f64) -> Duration {
        if well {
            self.failures = 0;
            return self.tick;
        }
        self.failures = self.failures.saturating_add(1);
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
