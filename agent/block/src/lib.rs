// SPDX-License-Identifier: Apache-2.0
//! The life cycle of a block, as pure functions: the owner's next step ([`owner`]), when the controller may delete the block
//! ([`orphan`]), and which free block a node tries to claim ([`claim`]).
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
//! Invariants, checked over every interleaving by `tests/model.rs`, which runs these functions:
//! - No node allocates an address of a block unless the node's file names the block. A node's file names a block only after a
//!   CREATE or a swap of that node has succeeded.
//! - A block leaves the file before its object is deleted. It returns into the file only by a swap, which makes every request in
//!   flight miss its precondition.

pub mod address;
pub mod claim;
pub mod orphan;
pub mod owner;

use std::fmt;
use std::sync::Arc;

/// A registration of a node: one Node object. The same name with another UID is another registration, whose addresses belong to
/// another owner.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Owner {
    /// The name of the Node.
    pub node: Arc<str>,
    /// Its `metadata.uid`.
    pub uid: Arc<str>,
}

/// The state of a block in the API.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Phase {
    /// Its owner allocates its addresses without the API server.
    Active,
    /// Its owner allocates no more addresses, and returns the block once none is in use.
    Draining,
    /// Each of its addresses is an object of its own, created by the node that takes the address. The block has no owner any
    /// more.
    Shared,
    /// The Node of its owner is gone.
    Orphaned,
}

/// A block as its object describes it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct BlockRecord {
    /// The owner; once the block is shared, the last owner.
    pub owner: Owner,
    /// The number of times that it was claimed or confirmed.
    pub epoch: u64,
    /// The state of the block.
    pub phase: Phase,
}

/// What a node's file instructs the plugin to do with a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Mode {
    /// Allocate its addresses.
    Active,
    /// Allocate none.
    Draining,
    /// Allocate none: its leased addresses become objects.
    Sharing,
    /// Ask the agent for each address.
    Shared,
}

/// A block as the node's file describes it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LocalBlock {
    /// The epoch of the object when the entry was written.
    pub epoch: u64,
    /// What the plugin does with it.
    pub mode: Mode,
}

/// The use of a block according to the node's store.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Usage {
    /// Addresses that leases have.
    pub leased: u64,
    /// The taken addresses that no object protects from other nodes. Some of them may have no readable lease. In a block that is
    /// about to be shared, the resting addresses without an object count too.
    pub unpublished: u64,
    /// Released addresses that may not be allocated yet.
    pub resting: u64,
    /// The leased and the resting addresses that no node allocates by itself, such as reserved and excluded ones.
    pub unusable: u64,
    /// Released addresses that this node probes before the next use, while another node may not have the block.
    pub suspect: u64,
}

impl BlockRecord {
    /// The content that a claim creates.
    pub fn claimed(by: &Owner) -> Self {
        Self {
            owner: by.clone(),
            epoch: 1,
            phase: Phase::Active,
        }
    }

    /// The same block in another phase.
    #[must_use]
    pub fn with_phase(&self, phase: Phase) -> Self {
        Self {
            phase,
            ..self.clone()
        }
    }

    /// The same block owned by `owner`, with the next epoch.
    #[must_use]
    pub fn owned_by(&self, owner: &Owner) -> Self {
        Self {
            owner: owner.clone(),
            epoch: self.epoch.saturating_add(1),
            phase: Phase::Active,
        }
    }

    /// The file's entry for the block with this mode.
    pub fn local(&self, mode: Mode) -> LocalBlock {
        LocalBlock {
            epoch: self.epoch,
            mode,
        }
    }
}

impl Usage {
    /// The number of addresses that the node cannot allocate now, among those that it allocates by itself.
    pub fn taken(self) -> u64 {
        self.leased
            .saturating_add(self.resting)
            .saturating_sub(self.unusable)
    }

    /// Whether no address of the block is leased, resting or suspect.
    pub fn is_idle(self) -> bool {
        self.leased == 0 && self.resting == 0 && self.suspect == 0
    }
}

impl fmt::Display for Owner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "node {} ({})", self.node, self.uid)
    }
}

#[cfg(test)]
mod tests;
