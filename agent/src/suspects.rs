// SPDX-License-Identifier: Apache-2.0
//! What looked unused, and since when. Pure.
//!
//! Invariant: a suspicion ends with the first round that does not confirm it, also if an error ended that round early.

use std::collections::HashMap;
use std::hash::Hash;
use std::time::{Duration, Instant};

/// Things that looked unused in every round since a first one.
pub(crate) struct Suspects<K>(HashMap<K, Suspicion>);

struct Suspicion {
    since: Instant,
    /// Whether the present round has confirmed it.
    confirmed: bool,
    /// The reason in the log why the thing stays, so that each is logged once.
    logged: Option<String>,
}

impl<K> Default for Suspects<K> {
    fn default() -> Self {
        Self(HashMap::new())
    }
}

impl<K: Clone + Eq + Hash> Suspects<K> {
    /// Begins a round, and forgets what the last one did not confirm.
    pub(crate) fn begin_round(&mut self) {
        self.0
            .retain(|_, suspicion| std::mem::take(&mut suspicion.confirmed));
    }

    /// `key` looks unused at `now`. Returns the time since its first observation, which may be this one.
    pub(crate) fn observe(&mut self, key: &K, now: Instant) -> Duration {
        let suspicion = self.0.entry(key.clone()).or_insert(Suspicion {
            since: now,
            confirmed: true,
            logged: None,
        });
        suspicion.confirmed = true;
        now.saturating_duration_since(suspicion.since)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether `reason` is not in the log yet as the reason why the suspect `key` stays.
    pub(crate) fn is_news(&mut self, key: &K, reason: &str) -> bool {
        self.0
            .get_mut(key)
            .is_some_and(|suspicion| suspicion.logged.replace(reason.to_owned()).as_deref() != Some(reason))
    }
}

#[cfg(test)]
mod tests;
