// SPDX-License-Identifier: Apache-2.0
//! How an `IPoIB` child gets into the pod: created there, or created beside its parent and moved. Pure.
//!
//! Some HCA drivers have their own `IPoIB` data path (`rdma_netdev_get_params` of `struct ib_device_ops`).
//! That of mlx5 looks up a new child's parent by its index in the *child's* namespace (`mlx5i_parent_get` in
//! `drivers/net/ethernet/mellanox/mlx5/core/ipoib/ipoib.c`). In the pod that index is either unused, which is
//! `EINVAL`, or another link's, whose memory the kernel then uses as the parent's.
//!
//! Invariant: a child is created in the pod only if its HCA's driver is known to have no data path of its
//! own, and the parent reports that it uses `ib_ipoib`'s. Any other child is moved, which works with every
//! driver.

use crate::host::Drivers;
use std::fmt;

/// The answer to `ethtool -i` of a parent on the data path of `ib_ipoib` (`ipoib_get_drvinfo`). The driver
/// `hfi1` has its own data path and gives the same answer, so this alone proves nothing.
const OWN_PATH: &str = "ib_ipoib";

/// The drivers of HCAs without `rdma_netdev_get_params` in Linux 5.10 to 7.2; `mlx5`, `hfi1` and `hfi2` have
/// it. `softib` is the software fabric of this project's tests.
const PLAIN: [&str; 4] = ["ib_mthca", "mlx4_core", "ib_qib", "softib"];

/// How a child gets into the pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// It is created in the pod's namespace.
    Direct,
    /// It is created in its parent's namespace under a temporary name, then moved and renamed in one request.
    Moved,
}

impl Way {
    /// The way for the `IPoIB` children of a parent with `drivers`.
    pub fn of(drivers: &Drivers) -> Self {
        let plain = drivers.hca.as_deref().is_some_and(|hca| PLAIN.contains(&hca));
        if plain && drivers.link.as_deref() == Some(OWN_PATH) {
            Self::Direct
        } else {
            Self::Moved
        }
    }
}

impl fmt::Display for Way {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Direct => "direct",
            Self::Moved => "moved",
        })
    }
}

#[cfg(test)]
mod tests;
