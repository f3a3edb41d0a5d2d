// SPDX-License-Identifier: Apache-2.0
//! The agent of a node: reads pools and blocks from the API server, and claims blocks and addresses for this node.
//!
//! Invariant: a node allocates addresses of a block only while the block's object names the node as owner, or while no other node
//! can have been given the block since the object did.

pub mod agent;
pub mod config;
pub mod contact;
pub mod daemon;
pub mod evidence;
pub mod follow;
pub mod install;
pub mod links;
pub mod lock;
pub mod metrics;
pub mod namespaces;
pub mod node;
pub mod serve;
pub mod worker;

#[cfg(test)]
mod tests;
