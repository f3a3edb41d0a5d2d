// SPDX-License-Identifier: Apache-2.0
//! Whether the agent receives its inputs: pools, its blocks and its Node. `/readyz` reports it.
//!
//! A watch that works reports nothing while nothing changes, so silence is no failure. A watch that fails reports an error on each
//! attempt. So a source counts as lost while errors repeat for longer than [`LOST_AFTER`], and until [`RECOVERED_AFTER`] has passed
//! without another error.
//!
//! Invariant: the agent is ready only if each source was read since the process started and is not lost now.

use std::fmt::Display;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// If errors repeat for this long, the source is lost. An API server that restarts is back sooner.
pub(crate) const LOST_AFTER: Duration = Duration::from_secs(15);

/// After this time without an error, a source is not lost any more. Longer than the longest pause between two attempts of a watch
/// (30 s with half of it as jitter, `kube::runtime::watcher::default_backoff`).
pub(crate) const RECOVERED_AFTER: Duration = Duration::from_secs(75);

/// An input that the agent reads from the API server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source {
    /// All pools.
    Pools,
    /// The blocks of this node.
    Blocks,
    /// The Node object of this node.
    Node,
}

impl Source {
    /// Its name in metrics.
    pub fn label(self) -> &'static str {
        match self {
            Self::Pools => "pools",
            Self::Blocks => "blocks",
            Self::Node => "node",
        }
    }
}

const ALL: [Source; 3] = [Source::Node, Source::Pools, Source::Blocks];

impl Source {
    fn name(self) -> &'static str {
        match self {
            Self::Pools => "the pools (ippools.rdmanet.io)",
            Self::Blocks => "the blocks of this node (ipblocks.rdmanet.io)",
            Self::Node => "the Node of this node",
        }
    }
}

/// The state of all sources.
#[derive(Debug, Default)]
pub struct Inputs {
    pools: Mutex<State>,
    blocks: Mutex<State>,
    node: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// The source was read once.
    read: bool,
    errors: Option<Errors>,
}

#[derive(Debug)]
struct Errors {
    first: Instant,
    last: Instant,
    /// The text of the last one.
    why: String,
}

impl State {
    fn add_error(&mut self, why: String, now: Instant) {
        let first = match &self.errors {
            Some(errors) if now.saturating_duration_since(errors.last) < RECOVERED_AFTER => errors.first,
            _ => now,
        };
        let last = now;
        self.errors = Some(Errors { first, last, why });
    }

    /// The reason why the source is unread or lost; none if it is available.
    fn problem(&self, source: Source, now: Instant) -> Option<String> {
        let name = source.name();
        let errors = self.errors.as_ref();
        if !self.read {
            let why = errors.map_or("no answer yet", |errors| errors.why.as_str());
            return Some(format!(
                "the agent has not read {name} from the API server yet: {why}"
            ));
        }
        let errors = errors?;
        let lasted = errors.last.saturating_duration_since(errors.first);
        let is_lost = lasted >= LOST_AFTER && now.saturating_duration_since(errors.last) < RECOVERED_AFTER;
        is_lost.then(|| {
            format!(
                "the agent has failed to read {name} from the API server for {} s: {}",
                lasted.as_secs(),
                errors.why
            )
        })
    }
}

impl Inputs {
    fn of(&self, source: Source) -> std::sync::MutexGuard<'_, State> {
        let state = match source {
            Source::Pools => &self.pools,
            Source::Blocks => &self.blocks,
            Source::Node => &self.node,
        };
        state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// `source` was read.
    pub fn read(&self, source: Source) {
        let mut state = self.of(source);
        (state.read, state.errors) = (true, None);
    }

    /// Whether `source` was read since the process started.
    pub fn has_read(&self, source: Source) -> bool {
        self.of(source).read
    }

    /// An attempt to read `source` failed.
    pub fn failed(&self, source: Source, why: &dyn Display) {
        self.of(source).add_error(why.to_string(), Instant::now());
    }

    /// Why the agent is not ready, one sentence for each source; empty if it is.
    pub fn problems(&self) -> Vec<String> {
        let now = Instant::now();
        let of = |source| self.of(source).problem(source, now);
        ALL.into_iter().filter_map(of).collect()
    }
}

#[cfg(test)]
mod tests;
