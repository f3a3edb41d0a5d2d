// SPDX-License-Identifier: Apache-2.0
//! A node's copy of the cluster's pools: one file per pool, written by the node's agent and read by every
//! ADD.
//!
//! ```text
//! <dataDir>/pools/<pool>/pool.json    what this node may allocate (PoolFile)
//!                        confirmed    when the agent last confirmed that the blocks are this node's
//!                        lock, cursors/, boot-<boot id>/…   an ordinary store
//!                        releases/<address>   addresses whose object in the cluster the agent must delete
//! ```
//!
//! Invariant: the agent replaces `pool.json` by one rename while it holds the store's lock, and an ADD reads
//! the file under the same lock. So a block that is missing from the file, or not active in it, gives no
//! address once the agent's write has returned.

mod confirmed;
mod file;
mod name;
mod ranges;

pub use confirmed::{Confirmed, Standing};
pub use file::{Allocation, Block, BlockState, Counters, FORMAT, PoolFile, PoolRange};
pub use name::PoolName;
pub use ranges::{AddressPlace, PoolRanges};

/// The directory of all pools, below the data directory.
pub const POOLS: &str = "pools";

#[cfg(test)]
mod tests;
