// SPDX-License-Identifier: Apache-2.0
//! What a plugin and its node's agent say to each other: one line of JSON each way over a unix socket.
//!
//! ```text
//! {"verb":"claim","pool":"rail0","attachment":{…},"pod":{…},"families":[4]}
//! {"answer":"local"}
//! ```
//!
//! The agent is only ever asked when the node's own files cannot answer. It answers within [`LIMIT`] or not at all, and
//! whatever it does for an attachment it can find again by `attachment`: an answer that is lost costs a second call.

mod client;
mod message;

pub use client::{Client, LIMIT, SOCKET, SOCKET_VARIABLE};
pub use message::{AskedBy, MESSAGE_MAX, Pod, Reply, Request, Verb};

#[cfg(test)]
mod tests;
