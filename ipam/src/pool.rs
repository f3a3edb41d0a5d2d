// SPDX-License-Identifier: Apache-2.0
//! What a node knows of a cluster's pools: one file per pool, written by the node's agent, read by every ADD.
//!
//! ```text
//! <dataDir>/pools/<pool>/pool.json    what may be handed out here (PoolFile)
//!                        confirmed    when the agent last knew the blocks to be this node's
//!                        lock, cursors/, boot-<boot id>/…   an ordinary store
//!                        releases/<address>   addresses whose object in the cluster is to go
//! ```
//!
//! Holds always: `pool.json` is replaced whole, by one rename, while the store's lock is held; an ADD reads it while it
//! holds the same lock. So a block that is missing from the file, or not active in it, gives no address from the moment
//! that the agent's write returns.

mod confirmed;
mod file;
mod name;
mod ranges;

pub use confirmed::{Confirmed, Standing};
pub use file::{Allocation, Block, BlockState, Counters, FORMAT, PoolFile, PoolRange};
pub use name::PoolName;
pub(crate) use ranges::interval;
pub use ranges::{AddressPlace, PoolRanges};

/// The directory of all pools, below the data directory.
pub const POOLS: &str = "pools";

#[cfg(test)]
mod tests;
