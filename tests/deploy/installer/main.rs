// SPDX-License-Identifier: Apache-2.0
//! The installer as a process, with the real plugins, on directory trees that look like nodes. It needs root for its
//! mount namespaces.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a test that cannot go on fails"
)]
#![allow(clippy::print_stdout, reason = "what was done is part of the run's record")]

mod container;
mod disks;
mod host;
mod image;
mod kills;
mod nodes;
mod pods;
mod running;
