// SPDX-License-Identifier: Apache-2.0
//! What a node does with the object of an address that one of its leases has.
//!
//! If the controller finds no Node of that name, it sets such an object to `Orphaned`. A live node sets it back to `Bound`, as
//! often as needed. Each write makes a new version, which restarts the quarantine of the controller.

use super::owner::NodeIdentity;
use super::{Owner, Phase};

/// A step with one effect.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// The object is correct; do nothing.
    None,
    /// Set the object to `Orphaned`, since the registration that it names is gone. Only an orphaned address passes to another
    /// registration.
    Orphan,
    /// Set the object to `Bound` to this registration: the lease's pod has the address.
    Bind(Owner),
}

/// The next step of `me`, whose store has a lease of the address, for its object. `owner`: the registration that the object
/// names. `phase`: [`Phase::Orphaned`], or [`Phase::Active`] while the object is bound.
pub fn next(me: &NodeIdentity, owner: &Owner, phase: Phase) -> Step {
    let orphaned = phase == Phase::Orphaned;
    match me {
        NodeIdentity::Gone(_) if orphaned => Step::Bind(owner.clone()),
        NodeIdentity::Registered(me) if orphaned => Step::Bind(me.clone()),
        NodeIdentity::Registered(me) if owner != me => Step::Orphan,
        NodeIdentity::Gone(_) | NodeIdentity::Registered(_) => Step::None,
    }
}
