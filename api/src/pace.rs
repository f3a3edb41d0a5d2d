// SPDX-License-Identifier: Apache-2.0
//! How often what has changed a little is written, so that the cluster as a whole writes at a bounded rate.

use std::time::Duration;

/// Writes a second that all nodes together make at most; with more blocks, each is told of less often.
const WRITES_A_SECOND: u64 = 50;

/// How often a node tells of a block, at most, and the controller of a pool's numbers, where the pool has so many blocks.
pub fn tell_every(mirror: Duration, blocks: i64) -> Duration {
    let all = u64::try_from(blocks).unwrap_or_default() / WRITES_A_SECOND;
    mirror.max(Duration::from_secs(all))
}
