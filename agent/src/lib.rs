// SPDX-License-Identifier: Apache-2.0
//! The agent of a node: reads pools and blocks from the API server, and claims blocks and addresses for this node.
//!
//! Invariant: a node allocates addresses of a block only while the block's object names the node as owner, or while no other node
//! can have been given the block since the object did.
//!
//! Floors: a module imports only modules of lower floors (`tests/floors`).
//!
//! ```text
//! daemon
//! block_watch command_line garbage links serve
//! pool_reconciler                               | one task per pool
//! agent                                         | what all tasks share
//! install liveness metrics namespaces node stagger suspects unreconciled
//! config lock
//! ```

pub mod agent;
pub(crate) mod block_watch;
pub mod command_line;
pub mod config;
pub mod daemon;
pub(crate) mod garbage;
pub mod install;
pub mod links;
pub(crate) mod liveness;
pub(crate) mod lock;
pub(crate) mod metrics;
pub(crate) mod namespaces;
pub(crate) mod node;
pub(crate) mod pool_reconciler;
pub(crate) mod serve;
pub(crate) mod stagger;
pub(crate) mod suspects;
pub(crate) mod unreconciled;

#[cfg(test)]
mod tests;
