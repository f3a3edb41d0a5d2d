// SPDX-License-Identifier: Apache-2.0
//! The node's RDMA devices, as `/sys` shows them.
//!
//! Holds always: nothing is read below any other folder than the one [`Sysfs`] was made with, so a test shows this
//! module a machine of its own; what a driver does not tell is `None` or empty, never an error.

#![allow(
    clippy::doc_markdown,
    reason = "IPoIB and P_Key are words of the field, not of the code"
)]

mod id;
mod port;
mod sysfs;

pub use id::{Guid, IdError, PciAddress, Pkey};
pub use port::{Device, Port, PortLayer, PortState};
pub use sysfs::{Behind, Gid, Sysfs};
