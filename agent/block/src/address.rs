// SPDX-License-Identifier: Apache-2.0
//! What a node does about the object of an address that a lease of its own is on.
//!
//! A controller that sees no Node of that name turns such an object `Orphaned`. A node that lives says `Bound` again, as often as it
//! must: each time is a new version, and each wait of the controller begins anew.

use super::owner::Me;
use super::{Owner, Phase};

/// One effect.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// The object says what is so.
    Rest,
    /// Say that the registration which it names is gone: an address passes to another one only after that.
    Orphan,
    /// Say that the lease's pod has it, on the node of this registration.
    Bind(Owner),
}

/// What `me`, whose store has a lease of the address, does about its object, which names `owner`; `phase`: [`Phase::Orphaned`], or
/// [`Phase::Active`] while it is bound.
pub fn keep(me: &Me, owner: &Owner, phase: Phase) -> Step {
    let orphaned = phase == Phase::Orphaned;
    match me {
        Me::Gone(_) if orphaned => Step::Bind(owner.clone()),
        Me::Registered(me) if orphaned => Step::Bind(me.clone()),
        Me::Registered(me) if owner != me => Step::Orphan,
        Me::Gone(_) | Me::Registered(_) => Step::Rest,
    }
}
