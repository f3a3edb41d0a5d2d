// SPDX-License-Identifier: Apache-2.0
//! A cluster: an API server, a controller, and nodes with an agent and the plugin. Each is a separate process.
//!
//! Invariant: an agent has the token of its own pod and no other right. Every process of a test ends with the test.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::missing_panics_doc,
    clippy::print_stderr,
    reason = "a fixture that cannot be made fails its test, and says why"
)]

pub mod controller;
pub mod later;
pub mod ledger;
pub mod member;
pub mod named;
pub mod pools;
pub mod scrapes;

pub use controller::Controller;
pub use ledger::Ledger;
pub use member::{Attachment, Member};
pub use named::Named;
pub use pools::{InTurn, Site};
pub use tests::programs::program;
