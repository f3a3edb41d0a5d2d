// SPDX-License-Identifier: Apache-2.0
//! Tells the neighbours on a link that an address lives here now.
//!
//! An address that is given again, to a pod with another hardware address, stays unreachable until every neighbour
//! has forgotten the old one. The kernel's own announcements (`arp_notify`, `ndisc_notify`) are sysctls of the
//! pod and go out when the link comes up, before an address is there.

#![allow(
    clippy::doc_markdown,
    reason = "ICMPv6 and InfiniBand are words of the field, not of the code"
)]

pub(crate) mod frame;
pub(crate) mod send;

pub use frame::frames;
pub use send::send;
