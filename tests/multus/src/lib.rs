// SPDX-License-Identifier: Apache-2.0
//! A node on which a runtime calls the real Multus, which uses a real API server.
//!
//! Invariant: a node reaches the API server through a [`Relay`] of its own, so that a test can cut one node off; Multus
//! has the rights that its own manifests give it and no others; each test has a namespace of the cluster for itself.

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
