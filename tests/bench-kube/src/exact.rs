// SPDX-License-Identifier: Apache-2.0
//! Ranges with exactly as many addresses as there are pods, in the configuration of each plugin.

use ipnetwork::Ipv4Network;
use std::net::Ipv4Addr;

/// A subnet of which only the first addresses are allocated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Exact {
    /// The subnet. Its first and its last address are never allocated.
    pub subnet: Ipv4Network,
    /// The last address that may be allocated.
    pub last: Ipv4Addr,
}

impl Exact {
    /// The smallest subnet at `base` with `count` addresses for pods.
    ///
    /// # Panics
    /// If `base` is not the first address of such a subnet.
    pub fn new(base: Ipv4Addr, count: u32) -> Self {
        let host_bits = (count + 2).next_power_of_two().ilog2();
        let prefix = u8::try_from(32 - host_bits).unwrap();
        let subnet = Ipv4Network::new(base, prefix).unwrap();
        assert_eq!(subnet.network(), base, "{subnet} has host bits");
        Self {
            subnet,
            last: Ipv4Addr::from(u32::from(base) + count),
        }
    }

    /// The first address for pods.
    pub fn first(&self) -> Ipv4Addr {
        Ipv4Addr::from(u32::from(self.subnet.network()) + 1)
    }

    /// The addresses after [`Self::last`] as `first-last`, without the last address of the subnet, for the `exclude` of
    /// an `IPPool`. `None` if there are none.
    pub fn excluded(&self) -> Option<String> {
        let from = Ipv4Addr::from(u32::from(self.last) + 1);
        let to = Ipv4Addr::from(u32::from(self.subnet.broadcast()) - 1);
        (from <= to).then(|| format!("{from}-{to}"))
    }
}

/// The node slices of whereabouts: equal subnets, one per node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Slices {
    /// The subnet of all slices.
    pub subnet: Ipv4Network,
    /// The slices of the nodes.
    pub nodes: Vec<Ipv4Network>,
}

impl Slices {
    /// The smallest equal slices for `nodes` nodes at `base`, each with room for `pods` pods.
    pub fn new(base: Ipv4Addr, nodes: u32, pods: u32) -> Self {
        let size = (pods + 2).next_power_of_two();
        let all = size * nodes.next_power_of_two();
        let prefix = |addresses: u32| u8::try_from(32 - addresses.ilog2()).unwrap();
        let slice = |i| Ipv4Network::new(Ipv4Addr::from(u32::from(base) + i * size), prefix(size)).unwrap();
        Self {
            subnet: Ipv4Network::new(base, prefix(all)).unwrap(),
            nodes: (0..nodes).map(slice).collect(),
        }
    }
}

#[cfg(test)]
mod tests;
