// SPDX-License-Identifier: Apache-2.0
//! Guarantees of `cni-ipoib` and `rdma-ipam` that can be tested on any kernel with veth and macvlan: the real binaries,
//! called as container runtimes call them, on nodes made of namespaces.
//!
//! There is one module per guarantee. `vm_only` needs device kinds (dummy, vlan, ipvlan, bond) that the kernel of a
//! build machine may lack; `--skip vm_only` excludes it there.

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
mod directory;
mod environment;
mod faults;
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
