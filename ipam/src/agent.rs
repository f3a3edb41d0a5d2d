// SPDX-License-Identifier: Apache-2.0
//! The protocol between a plugin and its node's agent: one line of JSON each way over a unix socket.
//!
//! ```text
//! {"verb":"claim","pool":"rail0","attachment":{…},"pod":{…},"families":[4]}
//! {"answer":"local"}
//! ```
//!
//! A plugin asks the agent only when the node's own files cannot answer. The agent answers within [`LIMIT`]
//! or not at all. It records whatever it does under the `attachment`, so after a lost answer the plugin
//! repeats the call.

mod client;
mod message;

pub use client::{Client, SOCKET, SOCKET_VARIABLE};
pub use message::{AskedBy, LIMIT, MESSAGE_MAX, Pod, Reply, Request, Verb};

#[cfg(test)]
mod tests;
