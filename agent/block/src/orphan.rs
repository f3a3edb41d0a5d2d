// SPDX-License-Identifier: Apache-2.0
//! When the controller may delete a block. The agent of a node deletes blocks of earlier registrations of its own name by the
//! same rules, and no others. After the deletion any node may claim the block's name.
//!
//! Five facts must hold together. The Node is gone. No pod is bound to a node of that name. The owner's last report had no
//! address in use. The block is `Orphaned`. Its version stayed the same for a whole quarantine, by the monotonic clock of the
//! process that decides.
//!
//! A node that is only cut off keeps its blocks for as long as its Node object exists. An administrator or a cloud deletes that
//! object to state that the machine is dead. The quarantine is the time that a mistake has until it does harm.
//!
//! The absence of pods proves little. About a minute after a Node object is gone, the pod garbage collector of
//! kube-controller-manager deletes all Pod objects of that node. The agent's own Pod is one of them, and with it the agent's token
//! becomes invalid: from then on the agent cannot write, although it and the other pods may still run (their kubelet was stopped).
//! So a block whose last report had addresses in use stays `Orphaned` until a person states that the machine is off
//! (`rdmanet release`), or until the longer quarantine that the administrator chose is over.
//!
//! Source: `pkg/controller/podgc/gc_controller.go` (`quarantineTime`) and `pkg/serviceaccount/claims.go` (`Validate`) of Kubernetes
//! 1.37.

use super::{BlockRecord, Owner, Phase};
use std::time::Duration;

/// The state of the node that owns a block, freshly read.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct OwnerState {
    /// The process that has read it.
    pub decider: Decider,
    /// The registration of the Node of that name, if there is one.
    pub registered: Option<Owner>,
    /// Whether a Pod with a network of its own is bound to a node of that name.
    pub has_pods: bool,
}

/// How long a block has stayed unchanged.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Watched {
    /// The observed version of the object.
    pub version: String,
    /// The time since the first observation of that version, by this process' monotonic clock.
    pub unchanged: Duration,
}

/// How long a block or address of a gone node stays unchanged before it may be ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Quarantine {
    /// The quarantine if the owner's last report had no address in use.
    pub unused: Duration,
    /// The quarantine if the owner's last report had addresses in use. Without a value, only an administrator may release the
    /// object.
    pub in_use: Option<Duration>,
}

/// The action that the decider may take.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum OrphanAction {
    /// Leave it to its owner.
    Leave,
    /// Mark it as orphaned.
    Orphan,
    /// Remember this version and when it was seen.
    Observe,
    /// Keep it: its addresses may still be in use, and an administrator must state that the machine is off.
    Hold,
    /// Delete it, if it still has this version.
    Delete,
}

/// The deciding process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Decider {
    /// The controller.
    Controller,
    /// The node that has the owner's name now, if its file does not have the block.
    Namesake,
}

/// The action that the decider may take for the block `record` at `version`, given the state of the node. `in_use`: the owner's
/// last report had addresses in use. A namesake ignores `in_use`, since its own store shows that no pod here has an address of
/// the block.
#[expect(
    clippy::too_many_arguments,
    reason = "each is a fact that is read apart from the others"
)]
pub fn decide(
    record: &BlockRecord,
    in_use: bool,
    version: &str,
    node: &OwnerState,
    watched: Option<&Watched>,
    quarantine: Quarantine,
) -> OrphanAction {
    let gone = match (&node.registered, node.decider) {
        (None, Decider::Controller) => !node.has_pods,
        // A node of that name exists and its file may still have the block: only that node can decide.
        (Some(_), Decider::Controller) | (None, Decider::Namesake) => false,
        (Some(now), Decider::Namesake) => *now != record.owner,
    };
    match record.phase {
        Phase::Shared => OrphanAction::Leave,
        Phase::Active | Phase::Draining if node.registered.as_ref() == Some(&record.owner) => {
            OrphanAction::Leave
        }
        Phase::Active | Phase::Draining
            if node.decider == Decider::Controller && node.registered.is_some() =>
        {
            OrphanAction::Leave
        }
        Phase::Active | Phase::Draining => OrphanAction::Orphan,
        Phase::Orphaned if !gone => OrphanAction::Leave,
        Phase::Orphaned => {
            let in_use = in_use && node.decider == Decider::Controller;
            orphaned(
                in_use,
                watched.filter(|watched| watched.version == version),
                quarantine,
            )
        }
    }
}

/// The action that the decider may take for an orphan whose node is gone. `watched`: since when the orphan has its present
/// version.
fn orphaned(in_use: bool, watched: Option<&Watched>, quarantine: Quarantine) -> OrphanAction {
    let Some(Watched { unchanged, .. }) = watched else {
        return OrphanAction::Observe;
    };
    if *unchanged < quarantine.unused {
        return OrphanAction::Leave;
    }
    match quarantine.in_use {
        None if in_use => OrphanAction::Hold,
        Some(longer) if in_use && *unchanged < longer => OrphanAction::Leave,
        _ => OrphanAction::Delete,
    }
}
