// SPDX-License-Identifier: Apache-2.0
//! Promises of `cni-ipoib` and `rdma-ipam` that any kernel with veth and macvlan can show: the real binaries, called as
//! container runtimes call them, on nodes made of namespaces.
//!
//! One module per promise. `vm_only` needs device kinds (dummy, vlan, ipvlan, bond) that a build machine's kernel may
//! lack; elsewhere it is left out by name: `--skip vm_only`.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a test that cannot go on fails"
)]

mod addresses;
mod chain;
mod check;
mod concurrency;
mod configuration;
mod delegate;
mod delete;
mod device_info;
mod environment;
mod faults;
mod folder;
mod gc;
mod ipam;
mod macvlan;
mod master;
mod pools;
mod rollback;
mod snapshot;
mod status;
mod storm;
mod versions;
mod vm_only;
