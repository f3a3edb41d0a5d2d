// SPDX-License-Identifier: Apache-2.0
//! The next step of a node for a block that it owns, has owned, or is named in.
//!
//! Each step has one effect. After it the block is read again. If a process dies between two steps, the next process reads the
//! block and continues.

use super::{Held, Mode, Owner, Phase, Seen, Use};
use std::sync::Arc;

/// The desired use of a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Wish {
    /// Allocate its addresses.
    Keep,
    /// Allocate none; return the block once none is in use. The pool has shrunk, or does not select the node any more.
    Drain,
    /// Return the block if none of its addresses is in use; otherwise keep it. More addresses are free than pods need.
    Return,
    /// Share its free addresses with all nodes: the pool is full.
    Share,
}

/// The node that takes the step.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Me {
    /// A node with a Node object.
    Registered(Owner),
    /// A node of this name without a Node object: it may allocate nothing new, but keeps what is in use.
    Gone(Arc<str>),
}

/// A step with one effect.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// Nothing is to be done.
    Rest,
    /// Replace the object's content if it has not changed since it was read. Only after success, write the block into the file
    /// according to `then`.
    Swap {
        /// The new content.
        to: Seen,
        /// The file's entry afterwards; none leaves it unchanged.
        then: Option<Held>,
    },
    /// Create the object. Only after success, write the block into the file.
    Claim {
        /// The content.
        to: Seen,
        /// The file's entry afterwards.
        then: Held,
    },
    /// Report the addresses in use, which gives the object a new version.
    Touch,
    /// Write the block into the file.
    Hold(Held),
    /// Under the store's lock, remove the block from the file, if no lease has an address of it and none of its addresses rests.
    Withdraw,
    /// Remove the block from the file even if it is in use: it belongs to another node, or the API server has lost it.
    Forfeit,
    /// Delete the object, if it is still the version that was read.
    Delete,
    /// Create an object for each leased address that has none.
    Publish,
}

/// The next step of `me`, which has read `seen` from the API, `held` from its file and `usage` from its store.
pub fn next(me: &Me, seen: Option<&Seen>, held: Option<Held>, usage: Use, wish: Wish) -> Step {
    let Some(seen) = seen else {
        return held.map_or(Step::Rest, |held| missing(me, held, usage));
    };
    if seen.phase == Phase::Shared {
        return shared(held, seen);
    }
    let me = match me {
        Me::Registered(me) => me,
        Me::Gone(node) => return without_node(node, seen, held, usage),
    };
    if seen.owner == *me {
        return mine(me, seen, held, usage, wish);
    }
    match held {
        // The node was registered again while it owned the block. A block passes to another registration only while it is
        // orphaned.
        Some(held) if is_still_ours(&me.node, seen) => match seen.phase {
            Phase::Orphaned => confirm(me, seen, held.mode),
            _ => told(seen, Phase::Orphaned),
        },
        Some(_) => Step::Forfeit,
        None => Step::Rest,
    }
}

/// The file has the block and the API server does not: an administrator deleted the object, or etcd was restored to a time before
/// the claim. If pods have addresses of the block, the node claims it again. A CREATE that succeeds proves that no other node has
/// it. Until then the node allocates nothing from it.
fn missing(me: &Me, held: Held, usage: Use) -> Step {
    match (me, held.mode) {
        (_, Mode::Shared) => Step::Forfeit,
        _ if usage.is_idle() => Step::Forfeit,
        (_, Mode::Active) => Step::Hold(Held {
            mode: Mode::Draining,
            ..held
        }),
        (Me::Registered(me), mode) => {
            let to = Seen::claimed(me);
            let then = to.held(mode);
            Step::Claim { to, then }
        }
        (Me::Gone(_), _) => Step::Rest,
    }
}

/// Whether no other node has owned the block since it was written into the file of `node`: another owner would have put its own
/// name there. The epoch may differ from the file's. It is greater after a swap of ours whose response was lost. It is smaller
/// after a new claim of a block that the API server had lost, or after a restore of etcd.
fn is_still_ours(node: &str, seen: &Seen) -> bool {
    *seen.owner.node == *node
}

/// The next step for a block that has this node's name and UID.
fn mine(me: &Owner, seen: &Seen, held: Option<Held>, usage: Use, wish: Wish) -> Step {
    let Some(held) = held else {
        // Our claim whose response was lost, or our return that was interrupted. A DELETE of ours may still be in flight, hence
        // the swap.
        return match wish {
            Wish::Keep | Wish::Share => confirm(me, seen, Mode::Active),
            Wish::Drain | Wish::Return if usage.is_idle() => Step::Delete,
            Wish::Drain | Wish::Return => confirm(me, seen, Mode::Draining),
        };
    };
    if held.epoch != seen.epoch || seen.phase == Phase::Orphaned {
        return confirm(me, seen, held.mode);
    }
    match (wish, held.mode) {
        (_, Mode::Sharing) if usage.unpublished > 0 => Step::Publish,
        (_, Mode::Sharing) if usage.resting > 0 => Step::Rest,
        (_, Mode::Sharing | Mode::Shared) => Step::Swap {
            to: seen.turned(Phase::Shared),
            then: Some(seen.held(Mode::Shared)),
        },
        (Wish::Share, _) => Step::Hold(seen.held(Mode::Sharing)),
        (Wish::Return | Wish::Drain, _) if usage.is_idle() => Step::Withdraw,
        (Wish::Keep | Wish::Return, Mode::Draining) => Step::Hold(seen.held(Mode::Active)),
        (Wish::Drain, Mode::Active) => Step::Hold(seen.held(Mode::Draining)),
        (Wish::Drain, Mode::Draining) => told(seen, Phase::Draining),
        (Wish::Keep | Wish::Return, Mode::Active) => told(seen, Phase::Active),
    }
}

/// Swaps the block to the same node. After that the file may have the block.
fn confirm(me: &Owner, seen: &Seen, mode: Mode) -> Step {
    let to = seen.handed_to(me);
    let then = Some(to.held(mode));
    Step::Swap { to, then }
}

/// Changes the object to the phase that the file already has.
fn told(seen: &Seen, phase: Phase) -> Step {
    if seen.phase == phase {
        return Step::Rest;
    }
    Step::Swap {
        to: seen.turned(phase),
        then: None,
    }
}

fn shared(held: Option<Held>, seen: &Seen) -> Step {
    match held {
        Some(held) if held.mode != Mode::Shared => Step::Hold(seen.held(Mode::Shared)),
        _ => Step::Rest,
    }
}

/// Our Node is gone, so the controller may orphan the block and delete it after the quarantine. While pods of this node have
/// addresses of it, each report restarts that quarantine.
fn without_node(node: &str, seen: &Seen, held: Option<Held>, usage: Use) -> Step {
    match held {
        Some(_) if !is_still_ours(node, seen) => Step::Forfeit,
        Some(held) if held.mode == Mode::Active => Step::Hold(seen.held(Mode::Draining)),
        Some(_) if !usage.is_idle() => Step::Touch,
        _ => Step::Rest,
    }
}
