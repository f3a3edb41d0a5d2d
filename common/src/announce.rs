// SPDX-License-Identifier: Apache-2.0
//! Announces to the neighbours on a link that this host now has an address.
//!
//! An address that moves to a pod with another hardware address stays unreachable until every neighbour has
//! dropped its old cache entry. The kernel's own announcements do not help: `arp_notify` and `ndisc_notify`
//! are sysctls of the pod, and the kernel sends them when the link comes up, before the link has an address.

pub(crate) mod frame;
pub(crate) mod send;

pub use frame::frames;
pub use send::send;
