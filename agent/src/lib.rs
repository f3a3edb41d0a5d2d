// SPDX-License-Identifier: Apache-2.0
//! The agent of a node: what Kubernetes knows of addresses, and what this node does about it.
//!
//! Holds always: a node hands out addresses of a block only while the block's object names it as owner, or while nobody
//! can have been given the block since it did.

// What this crate shares with the controller stands in crate `api`, under the same names.
pub use ::api;
pub use ::api::{
    client, cluster, grid, ground, http, listing, object, patience, recorder, sticky, supervisor, wishes,
};

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
