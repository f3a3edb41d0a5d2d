// SPDX-License-Identifier: Apache-2.0
//! The RDMA device of a pod's interface: finds it, grants it, moves it into the pod if the node's RDMA
//! subsystem is in exclusive mode, and returns it.
//!
//! [`observe()`] reads the [`Facts`] once; [`find()`] and [`decide::decide`] are pure; [`transfer`] moves and renames
//! devices.
//!
//! Invariant: a moved device is identified by its index, GUID and PCI address and never by its name alone,
//! since a pod can rename it. The move is in the journal before it happens. The device is searched in every
//! namespace where the kernel may have put it.

mod check;
pub mod decide;
pub mod facts;
pub mod find;
pub mod movable;
mod observe;
pub mod record;
pub(crate) mod repair;
pub mod resolve;
pub mod transfer;
pub mod users;

pub(crate) use check::compare;
pub use facts::Facts;
pub use find::find;
pub use observe::observe;
pub use resolve::{Interface, Sources, grant_for, require_likely};
