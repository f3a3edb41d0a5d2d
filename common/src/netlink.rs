// SPDX-License-Identifier: Apache-2.0
//! Requests to the kernel over netlink: links, addresses, routes, and RDMA devices.
//!
//! Invariant: a socket stays in the namespace in which it was opened. A list that changed while it was read
//! is read again and never returned. An answer to an earlier request is never returned for a later one. No
//! type of the wire codec leaves this module.

mod answer;
mod error;
#[cfg(test)]
mod garbled;
mod hardware;
mod rdma;
mod route;
mod socket;
mod text;

pub use error::Error;
pub use hardware::{HwAddress, HwAddressError};
pub use rdma::Rdma;
pub use rdma::device::{NetnsMode, NetnsModeError, RdmaDevice, RdmaPort};
pub use rdma::queue_pair::{Creator, QueuePair};
pub use route::Route;
pub use route::address::{Added, Address, AddressOptions};
pub use route::carrier::CARRIER_POLL;
pub use route::entry::{RouteEntry, TABLE_MAIN};
pub use route::kind::{AddrGenMode, BondMode, FailOverMac, IpoibMode, IpvlanMode, MacvlanMode, ModeError};
pub use route::limits::PacketLimits;
pub use route::link::{IPV6_MIN_MTU, Link, LinkInfo, LinkLayer, OperState};
pub use route::new_link::{Ipv4Settings, LinkChange, NewLink, NewLinkKind};
pub use route::rule::Rule;
pub use route::saved::{Carried, Saved};
#[cfg(test)]
pub(crate) use route::tests::{cable, new};
pub use route::virtual_function::FunctionState;
pub use route::xdp::XdpMode;
pub use socket::{Family, Socket};
