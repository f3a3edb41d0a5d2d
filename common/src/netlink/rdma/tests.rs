// SPDX-License-Identifier: Apache-2.0
//! Messages byte by byte, from `include/uapi/rdma/rdma_netlink.h`, and tests in the fabric.

#[cfg(target_endian = "little")]
mod bytes;
mod fabric;
mod fuzz;

use super::device::NetnsMode;

#[test]
fn modes_are_read_and_written() {
    for mode in [NetnsMode::Shared, NetnsMode::Exclusive] {
        assert_eq!(mode.to_string().parse(), Ok(mode));
        assert_eq!(NetnsMode::decode(mode.encode()), mode);
    }
    let error = "Shared".parse::<NetnsMode>().unwrap_err();
    assert_eq!(error.to_string(), r#""Shared" is not one of shared, exclusive"#);
}
