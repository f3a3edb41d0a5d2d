// SPDX-License-Identifier: Apache-2.0
//! The agent of a node: what Kubernetes knows of addresses, and what this node does about it.
//!
//! Holds always: a node hands out addresses of a block only while the block's object names it as owner, or while nobody
//! can have been given the block since it did.

pub mod agent;
pub mod api;
pub mod client;
pub mod cluster;
pub mod config;
pub mod daemon;
pub mod evidence;
pub mod follow;
pub mod grid;
pub mod ground;
pub mod http;
pub mod install;
pub mod keeper;
pub mod links;
pub mod lock;
pub mod metrics;
pub mod node;
pub mod object;
pub mod patience;
mod recorder;
pub mod serve;
pub mod space;
pub mod sticky;
pub mod wishes;
pub mod worker;

#[cfg(test)]
mod tests;
