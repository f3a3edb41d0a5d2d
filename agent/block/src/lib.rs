// SPDX-License-Identifier: Apache-2.0
//! The life of a block, as pure transitions: what its owner does next ([`owner`]), when the controller may end it
//! ([`orphan`]), and how a free one is looked for ([`claim`]).
//!
//! ```text
//!            CREATE                  no new address           idle
//! (absent) ─────────▶ Active ◀────────────────────▶ Draining ─────▶ DELETE
//!                      │  ▲                            │
//!     addresses each   │  │ its node again, by swap    │ Node object gone
//!     an object        ▼  └──────────────┐             ▼
//!                    Shared            Orphaned ◀──────┘ (and from Active)
//!                                        │ no pod is bound, unchanged for the quarantine
//!                                        ▼
//!                                      DELETE, by the controller
//! ```
//!
//! Holds always, and is checked over every interleaving by `tests/model.rs`, which runs these very functions:
//! - Nobody gives an address of a block unless its node's file names the block, and a node's file names a block only after
//!   a CREATE or a swap of that node has succeeded.
//! - A block leaves the file before it leaves the API, and comes back into the file only by a swap, which makes every
//!   request that is still on its way miss its precondition.

pub mod address;
pub mod claim;
pub mod orphan;
pub mod owner;

use std::fmt;
use std::sync::Arc;

/// A node as one Node object: the same name with another UID is another registration, whose addresses are not ours.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Owner {
    /// The name of the Node.
    pub node: Arc<str>,
    /// Its `metadata.uid`.
    pub uid: Arc<str>,
}

/// What the API says of a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Phase {
    /// Its owner gives its addresses without asking.
    Active,
    /// Its owner gives none any more and returns it once none is in use.
    Draining,
    /// Each address of it is an object of its own, made by whoever takes it. The block has no owner any more.
    Shared,
    /// The Node of its owner is gone.
    Orphaned,
}

/// A block as its object has it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Seen {
    /// Whose it is; once it is shared, whose it was.
    pub owner: Owner,
    /// How many times it was confirmed.
    pub epoch: u64,
    /// What its owner does with it.
    pub phase: Phase,
}

/// What the file of a node has the plugin do with a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Mode {
    /// Give its addresses.
    Active,
    /// Give none.
    Draining,
    /// Give none: its addresses become objects.
    Sharing,
    /// Ask the agent for each.
    Shared,
}

/// A block as the node's file has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Held {
    /// The epoch of the object when it was written here.
    pub epoch: u64,
    /// What the plugin does with it.
    pub mode: Mode,
}

/// What the node's store has of a block.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Use {
    /// Addresses held by leases.
    pub leased: u64,
    /// Those of them that have no object of their own.
    pub unpublished: u64,
    /// Those of them that no node gives by itself, such as reserved ones.
    pub by_name: u64,
    /// Addresses that were released and are not to be given yet.
    pub resting: u64,
}

impl Seen {
    /// What a claim creates.
    pub fn claimed(by: &Owner) -> Self {
        Self {
            owner: by.clone(),
            epoch: 1,
            phase: Phase::Active,
        }
    }

    /// The same block in another phase.
    #[must_use]
    pub fn turned(&self, phase: Phase) -> Self {
        Self {
            phase,
            ..self.clone()
        }
    }

    /// The same block in the hands of `owner`, one epoch on.
    #[must_use]
    pub fn handed_to(&self, owner: &Owner) -> Self {
        Self {
            owner: owner.clone(),
            epoch: self.epoch.saturating_add(1),
            phase: Phase::Active,
        }
    }

    /// How the file has it, given what the plugin shall do.
    pub fn held(&self, mode: Mode) -> Held {
        Held {
            epoch: self.epoch,
            mode,
        }
    }
}

impl Use {
    /// How many of the addresses that its node gives by itself it cannot give now.
    pub fn taken(self) -> u64 {
        self.leased
            .saturating_sub(self.by_name)
            .saturating_add(self.resting)
    }

    /// Whether no pod has, or had a moment ago, an address of it.
    pub fn is_idle(self) -> bool {
        self.leased == 0 && self.resting == 0
    }
}

impl fmt::Display for Owner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "node {} ({})", self.node, self.uid)
    }
}

#[cfg(test)]
mod tests;
