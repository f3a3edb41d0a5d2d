// SPDX-License-Identifier: Apache-2.0
//! A real API server for tests. `tests/apiserver/up` starts it, and the objects, rights and policies of `conf/` are
//! applied. The crate can inspect its requests and inject faults.
//!
//! Invariant: the servers of a test program end with it, however it ends. An agent's client has the rights of an agent
//! and no others.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::missing_panics_doc,
    reason = "a fixture that cannot be made fails its test, and says why"
)]

pub mod audit;
pub mod gateway;
pub mod identity;
pub mod install;
pub mod later;
pub mod objects;
pub mod proxy;
pub mod relay;
pub mod server;
pub mod stolen;

pub use audit::Request;
pub use gateway::Gateway;
pub use identity::Identity;
pub use proxy::{Fault, Proxy};
pub use relay::Relay;
pub use server::Server;
