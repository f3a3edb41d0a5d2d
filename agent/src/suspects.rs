// SPDX-License-Identifier: Apache-2.0
//! What looked unused, and since when. Pure.

use std::collections::{HashMap, HashSet};
use std::hash::Hash;
use std::time::{Duration, Instant};

/// Things that looked unused at every observation since a first one.
pub(crate) struct Suspects<K> {
    since: HashMap<K, Instant>,
    /// The reasons in the log, so that each is logged once.
    logged: HashMap<K, String>,
}

impl<K> Default for Suspects<K> {
    fn default() -> Self {
        Self {
            since: HashMap::new(),
            logged: HashMap::new(),
        }
    }
}

impl<K: Clone + Eq + Hash> Suspects<K> {
    /// `key` looks unused at `now`. Returns the time since its first observation, which may be this one.
    pub(crate) fn observe(&mut self, key: &K, now: Instant) -> Duration {
        let first = *self.since.entry(key.clone()).or_insert(now);
        now.saturating_duration_since(first)
    }

    /// Forgets what this observation did not confirm.
    pub(crate) fn keep_only(&mut self, seen: &HashSet<K>) {
        self.since.retain(|key, _| seen.contains(key));
        self.logged.retain(|key, _| seen.contains(key));
    }

    /// Whether `reason` is not in the log yet as the reason why `key` stays.
    pub(crate) fn is_news(&mut self, key: &K, reason: &str) -> bool {
        self.logged.insert(key.clone(), reason.to_owned()).as_deref() != Some(reason)
    }
}
