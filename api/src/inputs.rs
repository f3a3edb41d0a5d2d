// SPDX-License-Identifier: Apache-2.0
//! Whether a daemon receives its inputs from the API server. `/readyz` reports it.
//!
//! A watch that works reports nothing while nothing changes, so silence is no failure. A watch that fails reports an error on each
//! attempt. So a source counts as lost while errors repeat for longer than [`LOST_AFTER`], and until [`RECOVERED_AFTER`] has passed
//! without another error.
//!
//! Invariant: the daemon is ready only if each required source was read since the process started, and no source is lost now.

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

/// The state of all sources of a daemon.
#[derive(Debug)]
pub struct Inputs {
    /// The name of the daemon in messages.
    daemon: &'static str,
    required: &'static [Source],
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

    /// For how many seconds attempts to read the source have failed, and why; none if it is not lost.
    fn lost(&self, now: Instant) -> Option<(u64, &str)> {
        let errors = self.errors.as_ref()?;
        let lasted = errors.last.saturating_duration_since(errors.first);
        let is_lost = lasted >= LOST_AFTER && now.saturating_duration_since(errors.last) < RECOVERED_AFTER;
        is_lost.then_some((lasted.as_secs(), errors.why.as_str()))
    }
}

impl Inputs {
    /// No input was read yet. The `daemon` needs each of the `required` sources from its start on.
    pub fn new(daemon: &'static str, required: &'static [Source]) -> Self {
        Self {
            daemon,
            required,
            states: Mutex::default(),
        }
    }

    fn states(&self) -> MutexGuard<'_, BTreeMap<Source, State>> {
        self.states.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// `source` was read.
    pub fn read(&self, source: Source) {
        let state = State {
            read: true,
            errors: None,
        };
        self.states().insert(source, state);
    }

    /// Whether `source` was read since the process started.
    pub fn has_read(&self, source: Source) -> bool {
        self.states().get(&source).is_some_and(|state| state.read)
    }

    /// An attempt to read `source` failed.
    pub fn failed(&self, source: Source, why: &dyn Display) {
        let mut states = self.states();
        states
            .entry(source)
            .or_default()
            .add_error(why.to_string(), Instant::now());
    }

    /// Why the daemon is not ready, one sentence for each source; empty if it is.
    pub fn problems(&self) -> Vec<String> {
        let (states, now) = (self.states(), Instant::now());
        let unread = |source: &&Source| !states.get(source).is_some_and(|state| state.read);
        let unread: Vec<Source> = self.required.iter().filter(unread).copied().collect();
        let mut problems: Vec<String> = Vec::new();
        for source in &unread {
            let errors = states.get(source).and_then(|state| state.errors.as_ref());
            let why = errors.map_or("no answer yet", |errors| errors.why.as_str());
            let (daemon, name) = (self.daemon, source.name());
            problems.push(format!(
                "the {daemon} has not read {name} from the API server yet: {why}"
            ));
        }
        for (source, state) in states.iter().filter(|(source, _)| !unread.contains(source)) {
            if let Some((seconds, why)) = state.lost(now) {
                let (daemon, name) = (self.daemon, source.name());
                problems.push(format!(
                    "the {daemon} has failed to read {name} from the API server for {seconds} s: {why}"
                ));
            }
        }
        problems
    }
}

#[cfg(test)]
mod tests;
