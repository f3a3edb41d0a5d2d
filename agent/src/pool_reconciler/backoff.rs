// SPDX-License-Identifier: Apache-2.0
//! How long a reconciler waits between two rounds.
//!
//! Agents start together, after an update or when the API server is back. A round sends several requests in a row, each with a
//! time limit. If all agents retried failed requests together, they would find the same queue each time.

use std::time::Duration;

/// The longest pause on average.
const LONGEST: Duration = Duration::from_secs(30);

/// The longest pause after a round that was interrupted by a plugin request.
const INTERRUPTED_PAUSE: Duration = Duration::from_secs(1);

/// How a round has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Round {
    /// Everything was done.
    Succeeded,
    /// Some operation failed, and the API server may be the cause.
    Failed,
    /// The API server refused some operation. It answers, so the other work goes on.
    Refused,
    /// The round was interrupted by a plugin request. That proves nothing about the API server.
    Interrupted,
}

/// The state from which the next pause follows.
pub(super) struct Backoff {
    interval: Duration,
    /// Rounds in a row that failed or were refused something.
    failures: u32,
    /// The last of them was refused something.
    refused: bool,
}

impl Backoff {
    pub(super) fn new(interval: Duration) -> Self {
        Self {
            interval,
            failures: 0,
            refused: false,
        }
    }

    /// The pause after a round. `chance` (0 to 1) spreads out the retries of agents that failed together.
    pub(super) fn after(&mut self, round: Round, chance: f64) -> Duration {
        match round {
            Round::Succeeded => self.failures = 0,
            Round::Failed | Round::Refused => {
                self.failures = self.failures.saturating_add(1);
                self.refused = round == Round::Refused;
            }
            Round::Interrupted if self.failures == 0 => return self.interval.min(INTERRUPTED_PAUSE),
            Round::Interrupted => {}
        }
        if self.failures == 0 {
            return self.interval;
        }
        let pause = self
            .interval
            .saturating_mul(2_u32.saturating_pow(self.failures))
            .min(LONGEST);
        pause.mul_f64(0.5 + chance)
    }

    /// Whether a change ends the pause. A change reaches all agents at once, so it does not end the pause while rounds fail, unless
    /// the API server answers.
    pub(super) fn may_wake(&self) -> bool {
        self.failures == 0 || self.refused
    }
}

#[cfg(test)]
mod tests;
