// SPDX-License-Identifier: Apache-2.0
//! Guarantees of `cni-ipoib` on InfiniBand: the real binaries run in the fabric's VM, whose own network is the node.
//!
//! There is one module per guarantee. The HCAs belong to the whole VM, so one test runs at a time, whatever number of
//! threads libtest has: [`fabric::run`] holds a lock. It also asserts that every test leaves the node unchanged.
//!
//! There are two kinds of HCA (`tests/fabric/README.md`); `tests/all` lists the modules that run on each.
//!
//! The suite needs three HCAs whose ports have the partition keys 0xffff and 0x8001, the files of `conf/` in
//! `/etc/cni/net.d`, and the reference plugins and `cnitool` in `/opt/cni/bin`. If one of these is missing, a test
//! fails and names it.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a test that cannot go on fails"
)]

mod accelerated;
mod announcement;
mod bond;
mod choice;
mod death;
mod device;
mod ethernet_bond;
mod exclusive;
mod fabric;
mod faults;
mod ipam;
mod link;
mod links;
mod lost_del;
mod mtu;
mod multus;
mod partition;
mod port;
mod probe;
mod rails;
mod rdma;
mod rdmanet_node;
mod reach;
mod reboot;
mod refused;
mod reload;
mod runtime;
mod selftest;
mod storm;
mod verbs;
mod way;
