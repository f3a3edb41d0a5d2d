// SPDX-License-Identifier: Apache-2.0
//! Code that every crate of this workspace shares: the CNI protocol and access to the kernel.
//!
//! This crate decides nothing: policy lives in the plugins.
//!
//! Floors: a module imports only modules of lower floors (`tests/floors`).
//!
//! ```text
//! probe collector
//! announce rdma                 | what goes out to neighbours; what sysfs shows
//! cni netlink                   | the protocol of the runtime, and that of the kernel
//! packet
//! ethtool id lock log netns poll port_state tcx undo
//! ```

pub mod announce;
pub mod cni;
pub mod collector;
pub mod ethtool;
pub mod id;
pub mod lock;
pub mod log;
#[cfg(any(test, feature = "testing"))]
pub mod mutate;
pub mod netlink;
pub mod netns;
pub mod packet;
pub mod poll;
pub mod port_state;
pub mod probe;
pub mod rdma;
pub mod tcx;
pub mod undo;
