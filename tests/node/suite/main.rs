// SPDX-License-Identifier: Apache-2.0
//! rdmanet as its users run it: kubelet, container runtime, runc, scheduler, controllers and Multus are the real ones, and so is the kernel's
//! `ib_ipoib`. One cluster serves all tests, one after another; each removes its pods.
//!
//! Invariant: whatever a test does to a node, in the end three witnesses (the stores on the nodes, the API server, the links in the
//! pods' namespaces) name the same addresses, each once.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test says what it lacks by failing"
)]
#![allow(
    clippy::print_stdout,
    reason = "a long run states its steps, their times and its seed, whether it fails or not"
)]

mod bonds;
mod chaos;
mod cluster;
mod codes;
mod conditions;
mod crio;
mod cut_off;
mod dranet;
mod evictions;
mod exclusive;
mod faults;
mod helm;
mod install;
mod kills;
mod lost_del;
mod operate;
mod partitions;
mod peers;
mod pools;
mod restore;
mod returns;
mod seeds;
mod steps;
mod unfit;
mod updates;
mod witnesses;
mod workload;
