// SPDX-License-Identifier: Apache-2.0
//! What both measurements share: processes that are timed, agents, and figures for people.

#![allow(
    clippy::unwrap_used,
    clippy::missing_panics_doc,
    reason = "a measurement that cannot be made ends with what went wrong"
)]

pub mod account;
pub mod agents;
pub mod call;
pub mod gauge;
pub mod nodes;
pub mod nv_ipam;
pub mod pool;
pub mod whereabouts;
