// SPDX-License-Identifier: Apache-2.0
//! Whether a daemon receives its inputs from the API server. `/readyz` reports it.
//!
//! A watch that works reports nothing while nothing changes, so silence is no failure. A watch that fails reports an error on each
//! attempt. So a source counts as lost while errors repeat for longer than [`LOST_AFTER`], and until [`RECOVERED_AFTER`] has passed
//! without another error.
//!
//! Invariant: the daemon is ready only if each source that it needs now was read since it needs it, and is not lost.

use std::collections::BTreeMap;
use std::fmt::Display;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// If errors repeat for this long, the source is lost. An API server that restarts is back sooner.
pub const LOST_AFTER: Duration = Duration::from_secs(15);

/// After this time without an error, a source is not lost any more. Longer than the longest pause between two attempts of a watch
/// (30 s with half of it as jitter, `kube::runtime::watcher::default_backoff`).
pub const RECOVERED_AFTER: Duration = Duration::from_secs(75);

/// An input that a daemon reads from the API server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Source {
    /// The Node object of this node.
    Node,
    /// All pools.
    Pools,
    /// The blocks of this node.
    BlocksOfNode,
    /// All blocks.
    Blocks,
    /// All Node objects.
    Nodes,
    /// All address spaces.
    Spaces,
}

impl Source {
    /// Its name in metrics.
    pub fn label(self) -> &'static str {
        match self {
            Self::Node => "node",
            Self::Pools => "pools",
            Self::BlocksOfNode | Self::Blocks => "blocks",
            Self::Nodes => "nodes",
            Self::Spaces => "addressspaces",
        }
    }

    fn name(self) -> &'static str {
        match self {
            Self::Node => "the Node of this node",
            Self::Pools => "the pools (ippools.rdmanet.io)",
            Self::BlocksOfNode => "the blocks of this node (ipblocks.rdmanet.io)",
            Self::Blocks => "the blocks (ipblocks.rdmanet.io)",
            Self::Nodes => "the Nodes",
            Self::Spaces => "the address spaces (addressspaces.rdmanet.io)",
        }
    }
}

/// The state of the sources that a daemon needs now.
#[derive(Debug)]
pub struct Inputs {
    /// The name of the daemon in messages.
    daemon: &'static str,
    states: Mutex<BTreeMap<Source, State>>,
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
    fn problem(&self, daemon: &str, source: Source, now: Instant) -> Option<String> {
        let name = source.name();
        let errors = self.errors.as_ref();
        if !self.read {
            let why = errors.map_or("no answer yet", |errors| errors.why.as_str());
            return Some(format!(
                "the {daemon} has not read {name} from the API server yet: {why}"
            ));
        }
        let errors = errors?;
        let lasted = errors.last.saturating_duration_since(errors.first);
        let is_lost = lasted >= LOST_AFTER && now.saturating_duration_since(errors.last) < RECOVERED_AFTER;
        is_lost.then(|| {
            format!(
                "the {daemon} has failed to read {name} from the API server for {} s: {}",
                lasted.as_secs(),
                errors.why
            )
        })
    }
}

impl Inputs {
    /// The `daemon` needs these sources. None was read yet.
    pub fn new(daemon: &'static str, sources: &[Source]) -> Self {
        let inputs = Self {
            daemon,
            states: Mutex::default(),
        };
        inputs.need(sources);
        inputs
    }

    fn states(&self) -> MutexGuard<'_, BTreeMap<Source, State>> {
        self.states.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The daemon needs these sources from now on, and has not read them yet.
    pub fn need(&self, sources: &[Source]) {
        let unread = sources.iter().map(|source| (*source, State::default()));
        self.states().extend(unread);
    }

    /// The daemon does not need these sources any more.
    pub fn release(&self, sources: &[Source]) {
        self.states().retain(|source, _| !sources.contains(source));
    }

    /// `source` was read.
    pub fn read(&self, source: Source) {
        if let Some(state) = self.states().get_mut(&source) {
            (state.read, state.errors) = (true, None);
        }
    }

    /// Whether `source` was read since the daemon needs it.
    pub fn has_read(&self, source: Source) -> bool {
        self.states().get(&source).is_some_and(|state| state.read)
    }

    /// An attempt to read `source` failed.
    pub fn failed(&self, source: Source, why: &dyn Display) {
        if let Some(state) = self.states().get_mut(&source) {
            state.add_error(why.to_string(), Instant::now());
        }
    }

    /// Why the daemon is not ready, one sentence for each source; empty if it is.
    pub fn problems(&self) -> Vec<String> {
        let (states, now) = (self.states(), Instant::now());
        let of = |(source, state): (&Source, &State)| state.problem(self.daemon, *source, now);
        states.iter().filter_map(of).collect()
    }
}

#[cfg(test)]
mod tests;
