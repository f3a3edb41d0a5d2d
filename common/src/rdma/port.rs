// SPDX-License-Identifier: Apache-2.0
use crate::id::{Guid, PciAddress};
use crate::port_state::PortState;
use std::fmt;
use std::net::Ipv6Addr;
use std::path::PathBuf;

/// An RDMA device (`/sys/class/infiniband/NAME`).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Device {
    /// Name, e.g. `mlx5_0`; may change when the node restarts.
    pub name: String,
    /// GUID of the whole device.
    pub node_guid: Guid,
    /// Its PCI function; `None` for devices made by software.
    pub pci: Option<PciAddress>,
    /// The directory of its hardware device, with symbolic links resolved; `None` if it has none (e.g. `rxe`).
    pub path: Option<PathBuf>,
    /// Ports by ascending number.
    pub ports: Vec<Port>,
}

/// A port of an RDMA device.
///
/// P_Keys and netdevs are read separately, since reading them can take hundreds of requests to the hardware:
/// see [`Sysfs::pkeys`](super::Sysfs::pkeys) and [`Sysfs::netdevs`](super::Sysfs::netdevs).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Port {
    /// Number, from 1.
    pub number: u32,
    /// Its link layer.
    pub layer: PortLayer,
    /// Logical state.
    pub state: PortState,
    /// Physical state in the kernel's text, e.g. `LinkUp`, `Polling`, `Disabled`.
    pub phys_state: String,
    /// Speed in Mbit/s.
    pub rate_mbps: Option<u32>,
    /// Local identifier from the subnet manager. Before the subnet manager has assigned one, it is 0, or 0xffff with
    /// mlx5. On Ethernet it is 0.
    pub lid: u16,
    /// Local identifier of the subnet manager; 0 without one.
    pub sm_lid: u16,
    /// The first entry of the GID table; `None` if it is empty.
    pub gid: Option<Ipv6Addr>,
}

/// The link layer of a port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PortLayer {
    /// InfiniBand.
    Infiniband,
    /// RoCE or iWARP.
    Ethernet,
    /// The driver reports none.
    Unspecified,
}

impl Port {
    /// The port's GUID, the low half of its first GID.
    pub fn guid(&self) -> Option<Guid> {
        self.halves().map(|(_, low)| Guid(low))
    }

    /// The subnet's prefix, the high half of the first GID.
    pub fn subnet_prefix(&self) -> Option<u64> {
        self.halves().map(|(high, _)| high)
    }

    fn halves(&self) -> Option<(u64, u64)> {
        let bits = self.gid?.to_bits();
        let low = u64::try_from(bits & u128::from(u64::MAX)).ok()?;
        let high = u64::try_from(bits >> 64).ok()?;
        Some((high, low))
    }
}

impl fmt::Display for PortLayer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Infiniband => "InfiniBand",
            Self::Ethernet => "Ethernet",
            Self::Unspecified => "unspecified",
        })
    }
}

impl PortLayer {
    pub(super) fn parse(text: &str) -> Self {
        match text {
            "InfiniBand" => Self::Infiniband,
            "Ethernet" => Self::Ethernet,
            _ => Self::Unspecified,
        }
    }
}
