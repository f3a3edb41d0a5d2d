// SPDX-License-Identifier: Apache-2.0
//! Announces to the neighbours on a link that this host now has an address.
//!
//! An address that moves to a pod with another hardware address stays unreachable until every neighbour has
//! dropped its old cache entry. With the sysctls `arp_notify` and `ndisc_notify` the kernel announces the
//! addresses of a link when the link comes up. That does not help an `IPoIB` link, which has not joined its
//! groups by then, a port without carrier, or an address that is added later.

pub(crate) mod frame;
pub(crate) mod send;

pub use frame::frames;
pub use send::send;
