// SPDX-License-Identifier: Apache-2.0
//! When a block may be ended by somebody other than its owner: its Node is gone, no pod is bound to a node of that name,
//! and nobody has touched the block for a whole quarantine, measured by the clock of whoever ends it.
//!
//! A node that is merely cut off keeps its blocks for as long as its Node object is there. Deleting that object is how an
//! administrator or a cloud says that the machine is dead; the quarantine is what a mistake has until it hurts.

use super::{Owner, Phase, Seen};
use std::time::Duration;

/// What is known, freshly read, of the node that owns a block.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NodeSight {
    /// Who has read it.
    pub judge: Judge,
    /// The UID of the Node of that name, if there is one.
    pub registered: Option<Owner>,
    /// Whether a Pod with a network of its own is bound to a node of that name.
    pub has_pods: bool,
}

/// How long a block has been seen to stay as it is.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Watched {
    /// The version of the object that was seen first.
    pub version: String,
    /// The time since then, on this process' monotonic clock.
    pub unchanged: Duration,
}

/// What may be done to the block.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Verdict {
    /// It is its owner's.
    Leave,
    /// Mark it as orphaned.
    Orphan,
    /// Remember this version and when it was seen.
    Watch,
    /// It may be deleted, or swapped to another owner, if it is still this version.
    End,
}

/// Who judges.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Judge {
    /// Anybody.
    Keeper,
    /// The node that has the owner's name now, whose file does not have the block.
    Namesake,
}

/// What may be done with the block `seen` at `version`, given what its judge knows of the node.
pub fn judge(
    seen: &Seen,
    version: &str,
    node: &NodeSight,
    watched: Option<&Watched>,
    quarantine: Duration,
) -> Verdict {
    let gone = match (&node.registered, node.judge) {
        (None, Judge::Keeper) => !node.has_pods,
        // A node of that name lives, and its file may have the block still: only it can tell.
        (Some(_), Judge::Keeper) | (None, Judge::Namesake) => false,
        (Some(now), Judge::Namesake) => *now != seen.owner,
    };
    match seen.phase {
        Phase::Shared => Verdict::Leave,
        Phase::Active | Phase::Draining if node.registered.as_ref() == Some(&seen.owner) => Verdict::Leave,
        Phase::Active | Phase::Draining if node.judge == Judge::Keeper && node.registered.is_some() => {
            Verdict::Leave
        }
        Phase::Active | Phase::Draining => Verdict::Orphan,
        Phase::Orphaned if !gone => Verdict::Leave,
        Phase::Orphaned => match watched {
            Some(watched) if watched.version == version && watched.unchanged >= quarantine => Verdict::End,
            Some(watched) if watched.version == version => Verdict::Leave,
            _ => Verdict::Watch,
        },
    }
}
