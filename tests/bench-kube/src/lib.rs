// SPDX-License-Identifier: Apache-2.0
//! The frame of the benchmarks with an API server: timed processes, agents, and figures.

#![allow(
    clippy::unwrap_used,
    clippy::missing_panics_doc,
    reason = "a measurement that cannot be made ends with what went wrong"
)]

pub mod account;
pub mod agents;
pub mod call;
pub mod exact;
pub mod gauge;
pub mod kubelet;
pub mod nodes;
pub mod nv_ipam;
pub mod pool;
pub mod sides;
pub mod streams;
pub mod tally;
pub mod whereabouts;
pub mod witness;
