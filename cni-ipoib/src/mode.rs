// SPDX-License-Identifier: Apache-2.0
//! The kinds of interface that a pod can get.

use std::fmt;

/// The kind of interface in the pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// An `IPoIB` child of an `InfiniBand` parent.
    Ipoib,
    /// A macvlan child of an Ethernet parent.
    Macvlan,
    /// An ipvlan child of an Ethernet parent.
    Ipvlan,
    /// No child: the link itself, moved into the pod.
    Device,
}

impl fmt::Display for Mode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Ipoib => "ipoib",
            Self::Device => "device",
            Self::Macvlan => "macvlan",
            Self::Ipvlan => "ipvlan",
        })
    }
}
