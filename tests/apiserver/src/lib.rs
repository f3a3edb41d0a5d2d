// SPDX-License-Identifier: Apache-2.0
//! A real API server for tests: started by `tests/apiserver/up`, with our objects, rights and policies applied from `conf/`, and
//! means to inspect its requests and to inject faults.
//!
//! Invariant: the servers of a test program end with it, however it ends; an agent's client has an agent's rights and no
//! others.

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
