// SPDX-License-Identifier: Apache-2.0
mod file;
mod ranges;
mod standing;

use super::PoolFile;

/// A pool of 10.0.0.0/24 with one active block.
pub(super) fn pool() -> PoolFile {
    crate::testing::pool_file("rail0", &["10.0.0.0/28"])
}
