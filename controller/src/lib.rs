// SPDX-License-Identifier: Apache-2.0
//! What one process does for the whole cluster: accepting pools, counting them, asking nodes to share blocks, and ending what
//! gone nodes have left.
//!
//! Invariant: nothing here is unsafe if two processes do it at once. Which one does it is settled by a Lease; each write carries
//! the version that was read. Nodes go on with the addresses that they have while no controller runs.

pub mod config;
pub mod context;
pub mod daemon;
mod leader;
pub mod metrics;
