// SPDX-License-Identifier: Apache-2.0
//! A node on which a runtime calls the real Multus, which uses a real API server.
//!
//! Invariant: a node reaches the API server through its own [`Relay`], so that a test can disconnect one node. Multus
//! has the rights of its own manifests and no others. Each test has its own namespace of the cluster.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::missing_panics_doc,
    reason = "a fixture that cannot be made fails its test, and says why"
)]

pub mod daemon;
pub mod objects;
pub mod setup;

pub use apiserver::Relay;
pub use daemon::Daemon;
pub use setup::Setup;
