// SPDX-License-Identifier: Apache-2.0
//! The agent of a node: what Kubernetes knows of addresses, and what this node does about it.
//!
//! Holds always: a node hands out addresses of a block only while the block's object names it as owner, or while nobody
//! can have been given the block since it did.

pub mod api;
pub mod block;
pub mod grid;
