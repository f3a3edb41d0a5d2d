// SPDX-License-Identifier: Apache-2.0
//! The objects of API group `rdmanet.io`, all cluster scoped, and the code about them that the agent, the controller, the
//! command and the tests share. The manifests in `conf/crds` are generated from these types.
//!
//! The root module exports the types. `block_layout`, `accepted_pool`, `listing`, `sticky`, `convert` and `pods` are pure.
//! `requests` sends requests, each with its precondition and a `deadline`. `client`, `http`, `inputs`, `process`,
//! `recorder`, `metrics` and `supervisor` serve both daemons.
//!
//! Invariant: every stored object has passed the rules beside its type, so code need not validate it again.
//!
//! Invariant: the client that creates the object of a block or of an address has claimed it.

//! Floors: a module imports only modules of lower floors (`tests/floors`).
//!
//! ```text
//! http process recorder
//! client
//! requests                              | reads and writes, each with its precondition
//! definitions listing
//! accepted_pool convert demand sticky
//! address address_space pool            | the objects
//! block flags selector
//! metrics
//! block_layout cel deadline inputs links pods quarantine supervisor
//! ```

#![allow(
    unreachable_pub,
    reason = "KubeSchema copies each struct into a function, where nothing can reach it"
)]

pub mod accepted_pool;
pub mod address;
pub mod address_space;
pub mod block;
pub mod block_layout;
mod cel;
pub mod client;
pub mod convert;
pub mod deadline;
mod definitions;
pub mod demand;
pub mod flags;
pub mod http;
pub mod inputs;
pub mod links;
pub mod listing;
pub mod metrics;
pub mod pods;
pub mod pool;
pub mod process;
pub mod quarantine;
pub mod recorder;
pub mod requests;
mod selector;
pub mod sticky;
pub mod supervisor;
#[cfg(any(test, feature = "testing"))]
pub mod testing;

pub use self::address::{AddressState, Attachment, Holder, IpAddress, IpAddressSpec, PodRef};
pub use self::address_space::{AddressInterval, AddressSpace, AddressSpaceSpec, PoolEntry};
pub use self::block::{BlockState, IpBlock, IpBlockSpec, IpBlockStatus, NodeRef, Orphaned};
pub use self::definitions::definitions;
pub use self::pool::{
    Allocation, BlockSize, Counters, IpPool, IpPoolSpec, IpPoolStatus, MAX_REQUESTED_ADDRESSES, NodeRequest,
    Range, Route, Sticky, condition,
};

#[cfg(test)]
mod tests;
