// SPDX-License-Identifier: Apache-2.0
//! Promises of `cni-ipoib` and `rdma-ipam` that need InfiniBand: the real binaries on the fabric's VM, whose own network
//! is the node. Run by `tests/fabric/run`.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a test that cannot go on fails"
)]

#[test]
fn a_fabric_is_here() {
    assert!(
        std::path::Path::new("/sys/class/infiniband/softib0").exists(),
        "no InfiniBand device softib0; run this suite with tests/fabric/run"
    );
}
