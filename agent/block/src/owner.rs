// SPDX-License-Identifier: Apache-2.0
//! The next step of a node for a block that it owns, has owned, or is named in.
//!
//! Each step has one effect. After it the block is read again. If a process dies between two steps, the next process reads the
//! block and continues.

use super::{BlockRecord, LocalBlock, Mode, Owner, Phase, Usage};
use std::sync::Arc;

/// The desired use of a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Desired {
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
pub enum NodeIdentity {
    /// A node with a Node object.
    Registered(Owner),
    /// A node of this name without a Node object: it may allocate nothing new, but keeps what is in use.
    Gone(Arc<str>),
}

/// A step with one effect.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// Nothing is to be done.
    None,
    /// Replace the object's content if it has not changed since it was read. Only after success, write the block into the file
    /// according to `then`.
    Replace {
        /// The new content.
        to: BlockRecord,
        /// The file's entry afterwards; none leaves it unchanged.
        then: Option<LocalBlock>,
    },
    /// Create the object. Only after success, write the block into the file.
    Claim {
        /// The content.
        to: BlockRecord,
        /// The file's entry afterwards.
        then: LocalBlock,
    },
    /// Report the addresses in use, which gives the object a new version.
    Report,
    /// Write the block into the file.
    WriteFile(LocalBlock),
    /// Under the store's lock, remove the block from the file, if no lease has an address of it and none of its addresses rests.
    RemoveIfIdle,
    /// Remove the block from the file: another node owns it, or the API server has lost it and it is idle or shared. Each address
    /// of it that a lease has needs an object from then on.
    Remove,
    /// Delete the object, if it is still the version that was read.
    Delete,
    /// Create an object for each leased address that has none.
    Publish,
}

/// The next step of `me`, which has read `record` from the API, `local` from its file and `usage` from its store.
pub fn next(
    me: &NodeIdentity,
    record: Option<&BlockRecord>,
    local: Option<LocalBlock>,
    usage: Usage,
    desired: Desired,
) -> Step {
    let Some(record) = record else {
        return local.map_or(Step::None, |local| missing(me, local, usage));
    };
    if record.phase == Phase::Shared {
        return shared(local, record);
    }
    let me = match me {
        NodeIdentity::Registered(me) => me,
        NodeIdentity::Gone(node) => return without_node(node, record, local, usage),
    };
    if record.owner == *me {
        return owned(me, record, local, usage, desired);
    }
    match local {
        // The node was registered again while it owned the block. A block passes to another registration only while it is
        // orphaned.
        Some(local) if is_still_ours(&me.node, record) => match record.phase {
            Phase::Orphaned => confirm(me, record, local.mode),
            _ => change_phase(record, Phase::Orphaned),
        },
        // The block passed to another node while this one was away, or etcd was restored to a time when that node had it. The
        // addresses of pods of this node become objects.
        Some(_) => Step::Remove,
        None => Step::None,
    }
}

/// Allocate no more addresses of the block.
fn drain(local: LocalBlock) -> Step {
    Step::WriteFile(LocalBlock {
        mode: Mode::Draining,
        ..local
    })
}

/// The file has the block and the API server does not: an administrator deleted the object, or etcd was restored to a time before
/// the claim. If pods have addresses of the block, the node claims it again. A CREATE that succeeds proves that no other node has
/// it. Until then the node allocates nothing from it.
fn missing(me: &NodeIdentity, local: LocalBlock, usage: Usage) -> Step {
    match (me, local.mode) {
        (_, Mode::Shared) => Step::Remove,
        _ if usage.is_idle() => Step::RemoveIfIdle,
        (_, Mode::Active) => drain(local),
        (NodeIdentity::Registered(me), mode) => {
            let to = BlockRecord::claimed(me);
            let then = to.local(mode);
            Step::Claim { to, then }
        }
        (NodeIdentity::Gone(_), _) => Step::None,
    }
}

/// Whether no other node has owned the block since it was written into the file of `node`: another owner would have put its own
/// name there. The epoch may differ from the file's. It is greater after a swap of ours whose response was lost. It is smaller
/// after a new claim of a block that the API server had lost, or after a restore of etcd.
pub fn is_still_ours(node: &str, record: &BlockRecord) -> bool {
    *record.owner.node == *node
}

/// The next step for a block that has this node's name and UID.
fn owned(
    me: &Owner,
    record: &BlockRecord,
    local: Option<LocalBlock>,
    usage: Usage,
    desired: Desired,
) -> Step {
    let Some(local) = local else {
        // Our claim whose response was lost, or our return that was interrupted. A DELETE of ours may still be in flight, hence
        // the swap.
        return match desired {
            Desired::Keep | Desired::Share => confirm(me, record, Mode::Active),
            Desired::Drain | Desired::Return if usage.is_idle() => Step::Delete,
            Desired::Drain | Desired::Return => confirm(me, record, Mode::Draining),
        };
    };
    if local.epoch != record.epoch || record.phase == Phase::Orphaned {
        return confirm(me, record, local.mode);
    }
    match (desired, local.mode) {
        (_, Mode::Sharing) if usage.unpublished > 0 => Step::Publish,
        (_, Mode::Sharing) if usage.resting > 0 => Step::None,
        (_, Mode::Sharing | Mode::Shared) => Step::Replace {
            to: record.with_phase(Phase::Shared),
            then: Some(record.local(Mode::Shared)),
        },
        (Desired::Share, _) => Step::WriteFile(record.local(Mode::Sharing)),
        (Desired::Return | Desired::Drain, _) if usage.is_idle() => Step::RemoveIfIdle,
        (Desired::Keep | Desired::Return, Mode::Draining) => Step::WriteFile(record.local(Mode::Active)),
        (Desired::Drain, Mode::Active) => Step::WriteFile(record.local(Mode::Draining)),
        (Desired::Drain, Mode::Draining) => change_phase(record, Phase::Draining),
        (Desired::Keep | Desired::Return, Mode::Active) => change_phase(record, Phase::Active),
    }
}

/// Swaps the block to the same node. After that the file may have the block.
fn confirm(me: &Owner, record: &BlockRecord, mode: Mode) -> Step {
    let to = record.owned_by(me);
    let then = Some(to.local(mode));
    Step::Replace { to, then }
}

/// Changes the object to the phase that the file already has.
fn change_phase(record: &BlockRecord, phase: Phase) -> Step {
    if record.phase == phase {
        return Step::None;
    }
    Step::Replace {
        to: record.with_phase(phase),
        then: None,
    }
}

fn shared(local: Option<LocalBlock>, record: &BlockRecord) -> Step {
    match local {
        Some(local) if local.mode != Mode::Shared => Step::WriteFile(record.local(Mode::Shared)),
        _ => Step::None,
    }
}

/// Our Node is gone, so the controller may orphan the block and delete it after the quarantine. While pods of this node have
/// addresses of it, each report restarts that quarantine.
fn without_node(node: &str, record: &BlockRecord, local: Option<LocalBlock>, usage: Usage) -> Step {
    match local {
        Some(_) if !is_still_ours(node, record) => Step::Remove,
        Some(local) if local.mode == Mode::Active => Step::WriteFile(record.local(Mode::Draining)),
        Some(_) if !usage.is_idle() => Step::Report,
        _ => Step::None,
    }
}
