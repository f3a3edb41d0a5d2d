// SPDX-License-Identifier: Apache-2.0
//! The controller runs once per cluster. It accepts pools, counts them, asks nodes to share blocks, and frees the blocks
//! and addresses of gone nodes.
//!
//! Invariant: two controllers may work at once without harm. A Lease decides which of them does. Each write carries the
//! version that was read, except the usage of a shared block.
//!
//! While no controller runs, nodes go on with the addresses that they have.
//!
//! Floors: a module imports only modules of lower floors (`tests/floors`).
//!
//! ```text
//! daemon
//! leader
//! context
//! config metrics
//! ```

pub mod config;
pub mod context;
pub mod daemon;
mod leader;
pub mod metrics;
