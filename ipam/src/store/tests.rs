// SPDX-License-Identifier: Apache-2.0
mod boots;
mod content;
mod early;
mod faults;
mod model;
mod moved;
mod pool;
mod spaces;
mod time;
mod unreachable;
mod verbs;

use crate::testing::Fixture;
use serde_json::json;

/// A range of `2^bits - 2` addresses, and an IPv6 range of the same size.
pub(super) fn dual(bits: u8) -> Fixture {
    Fixture::new(&json!({"gateway": "none", "ranges": [
        [{"subnet": format!("10.0.0.0/{}", 32 - bits)}],
        [{"subnet": format!("fd00::/{}", 128 - bits)}],
    ]}))
}

/// A single range.
pub(super) fn single(subnet: &str) -> Fixture {
    Fixture::new(&json!({"subnet": subnet, "gateway": "none"}))
}
