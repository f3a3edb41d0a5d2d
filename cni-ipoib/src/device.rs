// SPDX-License-Identifier: Apache-2.0
//! `mode: device`: a whole link of hardware leaves the host for a pod, with its RDMA device where the node's RDMA
//! subsystem is in exclusive mode, and becomes what it was when the pod is gone.
//!
//! [`Facts`] are read once; [`moved`] is pure and has every refusal; [`take`] and [`put_back`] change things.
//!
//! Holds always: what the host had is written down before the link is touched; a link is known by its hardware, never by
//! its name or number; whoever wrote a link down has it, until it is back.

mod add;
pub mod check;
mod error;
pub mod facts;
#[cfg(test)]
mod fixture;
pub mod function;
mod give_back;
pub mod hardware;
pub mod plan;
pub mod put_back;
pub mod snapshot;
pub mod take;
mod turn;

pub use error::DeviceError;
pub use facts::Facts;
pub use function::Function;
pub use hardware::Hardware;
pub use plan::{Moved, moved};
pub use snapshot::Snapshot;
pub(crate) use turn::Turn;

use crate::rdma::Grant;
use common::cni::IfName;

/// What ADD is going to do with a link.
#[derive(Clone, Debug)]
pub struct Plan {
    /// The link, and what it becomes.
    pub moved: Moved,
    /// What the host had.
    pub snapshot: Snapshot,
    /// The RDMA device that belongs to it.
    pub grant: Option<Grant>,
    /// Its name in the pod.
    pub ifname: IfName,
    /// Says whose it is.
    pub alias: String,
    /// The routing table for what is sent from its addresses; none without policy routing.
    pub policy_table: Option<u32>,
    /// Other links that are away, which may come back under this one's name.
    pub others: Vec<Hardware>,
}
