// SPDX-License-Identifier: Apache-2.0
//! What a node does next about a block that it has, had, or finds itself named in.
//!
//! Each step is one effect, after which the block is looked at again; a process that dies between two steps is followed by
//! one that looks and goes on.

use super::{Held, Mode, Owner, Phase, Seen, Use};
use std::sync::Arc;

/// What the node's pools want of a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Wish {
    /// Give its addresses.
    Keep,
    /// Give none; return it when none is in use: the pool has shrunk, the node is not selected any more.
    Drain,
    /// Return it if none is in use, otherwise keep it: there is more room than pods need.
    Return,
    /// Let every node have its free addresses: the pool is full.
    Share,
}

/// Who looks.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Me {
    /// A node that the API has.
    Registered(Owner),
    /// A node of this name that the API has no more: nothing new may be given, and what lives is kept.
    Gone(Arc<str>),
}

/// One effect.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// Nothing is to be done.
    Rest,
    /// Replace the object's content if nobody has changed it since it was read; then, and only then, write the block into the
    /// file as `then` says.
    Swap {
        /// The new content.
        to: Seen,
        /// What the file is to have afterwards; none leaves it as it is.
        then: Option<Held>,
    },
    /// Create the object; then, and only then, write the block into the file.
    Claim {
        /// The content.
        to: Seen,
        /// What the file is to have afterwards.
        then: Held,
    },
    /// Report the addresses in use, which gives the object a new version.
    Touch,
    /// Write the block into the file.
    Hold(Held),
    /// Under the store's lock: take the block out of the file if no lease is on it and nothing rests.
    Withdraw,
    /// Take the block out of the file whatever is on it: it belongs to another.
    Forfeit,
    /// Delete the object, if it is the very one that was read.
    Delete,
    /// Create an object for each leased address that has none.
    Publish,
}

/// What `me` does next, having read `seen` from the API, `held` from its file and `usage` from its store.
///
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
        // The node was registered anew while the block was ours. A block passes to another registration only while it is
        // orphaned.
        Some(held) if is_still_ours(&me.node, seen) => match seen.phase {
            Phase::Orphaned => confirm(me, seen, held.mode),
            _ => told(seen, Phase::Orphaned),
        },
        Some(_) => Step::Forfeit,
        None => Step::Rest,
    }
}

/// The file has the block and the API server does not: a person deleted the object, or etcd was restored to a time before the claim.
/// If pods have addresses of it, the node claims it again. A CREATE that succeeds proves that no other node has it. Until then the
/// node allocates nothing from it.
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

/// Whether no other node has had the block since it was written into the file of `node`: another node would have put its own name there.
/// The epoch may differ from the file's. A greater one is that of a swap of ours whose answer was lost, a smaller one that of a claim
/// after the API server had lost the block, or of a restored etcd.
fn is_still_ours(node: &str, seen: &Seen) -> bool {
    *seen.owner.node == *node
}

/// The block has our node's name and UID.
fn mine(me: &Owner, seen: &Seen, held: Option<Held>, usage: Use, wish: Wish) -> Step {
    let Some(held) = held else {
        // Our claim whose answer was lost, or our return that did not get this far. A deletion of ours may still be on its
        // way, hence the swap.
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

/// A swap to ourselves, after which the file may have the block.
fn confirm(me: &Owner, seen: &Seen, mode: Mode) -> Step {
    let to = seen.handed_to(me);
    let then = Some(to.held(mode));
    Step::Swap { to, then }
}

/// Makes the object say what the file has done already.
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

/// Our Node is gone, so the keeper may orphan the block and end it after the quarantine. While pods of ours have
/// addresses of it, that quarantine is started anew again and again.
fn without_node(node: &str, seen: &Seen, held: Option<Held>, usage: Use) -> Step {
    match held {
        Some(_) if !is_still_ours(node, seen) => Step::Forfeit,
        Some(held) if held.mode == Mode::Active => Step::Hold(seen.held(Mode::Draining)),
        Some(_) if !usage.is_idle() => Step::Touch,
        _ => Step::Rest,
    }
}
