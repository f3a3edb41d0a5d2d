// SPDX-License-Identifier: Apache-2.0
//! The node's RDMA devices, as `/sys` shows them.
//!
//! Invariant: every file that is read lies below the directory of [`Sysfs`], so a test can supply its own
//! machine. A value that the driver does not report is `None` or empty, never an error.

mod port;
mod sysfs;

pub use crate::id::{Guid, IdError, PciAddress, Pkey};
pub use crate::port_state::PortState;
pub use port::{Device, Port, PortLayer};
pub use sysfs::{Behind, Gid, Sysfs};
