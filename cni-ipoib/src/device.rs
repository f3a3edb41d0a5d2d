// SPDX-License-Identifier: Apache-2.0
//! `mode: device`: a whole hardware link moves from the host into a pod, with its RDMA device if the node's
//! RDMA subsystem is in exclusive mode. Its state is restored when the pod is gone.
//!
//! [`Facts`] are read once; [`moved`] is pure and has every refusal; [`move_in`] and [`restore`] change things.
//!
//! Invariant: the host's state is in the journal before the link is touched. A link is identified by its
//! hardware, never by its name or index. The attachment whose journal entry has a link owns it until the link
//! is restored.

mod add;
pub mod check;
mod detach;
pub mod facts;
#[cfg(test)]
pub(crate) mod fixture;
pub mod function;
pub mod move_in;
pub mod plan;
pub mod restore;
pub mod snapshot;

pub use facts::Facts;
pub use plan::{Moved, moved};

use crate::intent::{Grant, Hardware, Snapshot};
use common::cni::IfName;

/// The plan for a link.
#[derive(Clone, Debug)]
pub struct Plan {
    /// The link, and its configuration in the pod.
    pub moved: Moved,
    /// The link's state on the host.
    pub snapshot: Snapshot,
    /// The RDMA device of the link.
    pub grant: Option<Grant>,
    /// Its name in the pod.
    pub ifname: IfName,
    /// The alias, which names the attachment.
    pub alias: String,
    /// The routing table for packets from its addresses; `None` without policy routing.
    pub policy_table: Option<u32>,
    /// Other links that are in pods, which may return under this one's name.
    pub others: Vec<Hardware>,
}
