// SPDX-License-Identifier: Apache-2.0
//! The RDMA device that belongs to a pod's interface: found, granted, moved into the pod where the node's RDMA subsystem is
//! in exclusive mode, and brought back.
//!
//! [`Facts`] are read once; [`find()`] and [`decide::decide`] are pure; [`transfer`] is the only part that changes anything.
//!
//! Holds always: a device that was moved is known by its number, GUID and PCI address and never by its name alone, since a pod can
//! rename it; what was moved is written down before the move, and is looked for wherever the kernel may have put it.

pub mod ask;
mod compare;
pub mod decide;
pub mod error;
pub mod facts;
pub mod find;
pub mod give_back;
pub mod grant;
pub mod movable;
pub mod record;
pub mod transfer;

pub use ask::{Interface, Sources, grant_for, interface, require_likely};
pub(crate) use compare::compare;
pub use error::RdmaError;
pub use facts::Facts;
pub use find::find;
pub use grant::{Grant, Identity, Way};
