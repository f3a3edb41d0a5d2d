// SPDX-License-Identifier: Apache-2.0
//! Promises of `cni-ipoib` on InfiniBand: the real binaries on the fabric's VM, whose own network is the node.
//!
//! One module per promise. The HCAs belong to the whole VM, so that one test runs at a time, however many threads
//! libtest has: [`fabric::run`] holds a lock. It also asserts that every test leaves the node as it found it.
//!
//! There are two kinds of HCA (`tests/fabric/README.md`); `tests/all` says which module runs on which.
//!
//! Wants three HCAs whose ports have the partition keys 0xffff and 0x8001, the files of `conf/` in `/etc/cni/net.d`, and the
//! reference plugins with `cnitool` in `/opt/cni/bin`; whatever is missing fails a test, which says so.

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
mod look;
mod mtu;
mod multus;
mod partition;
mod port;
mod rails;
mod rdma;
mod reach;
mod reboot;
mod refused;
mod reload;
mod runtime;
mod selftest;
mod storm;
mod verbs;
mod way;
