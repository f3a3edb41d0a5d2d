// SPDX-License-Identifier: Apache-2.0
//! Programs of an earlier version with those of today, as processes: what a node and a cluster have during an upgrade and a
//! rollback.
//!
//!     tests/all versions
//!
//! `tests/earlier COMMIT` builds the earlier programs, and `RDMANET_EARLIER` names their directory. The modules `controller` and
//! `command` need an earlier version with a controller. The module `agents_alone` needs one without.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a test says what it lacks by failing"
)]

mod agents_alone;
mod cluster;
mod command;
mod controller;
mod deleted_node;
mod installer;
mod interface;
mod ranges;
mod upgrade;
