// SPDX-License-Identifier: Apache-2.0
//! The blocks of a pool. An address space is cut into blocks of one size. Blocks with at least one usable address are
//! numbered.
//!
//! Invariant: a block is aligned to its size, so two pools with the same block size cut the same blocks, whatever their
//! ranges are.
//!
//! Invariant: the name of a block determines its addresses.
//!
//! Invariant: no function here iterates over addresses or over blocks.

use ipam::interval::{Interval, IntervalSet};
use ipam::range::{Family, bits};
use ipnetwork::IpNetwork;
use std::fmt;
use std::net::IpAddr;

/// One block: the addresses of a network whose prefix length is that of the layout.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct BlockCidr(IpNetwork);

/// The blocks of one address family of a pool that have at least one usable address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BlockLayout {
    family: Family,
    /// The number of low bits in which the addresses of one block differ.
    shift: u32,
    usable: IntervalSet,
    runs: Vec<Run>,
}

/// A run of consecutive blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Run {
    /// The index of the first block of the run among all blocks of the layout.
    index: u128,
    /// The numbers of the blocks: first address divided by block size.
    numbers: Interval,
}

impl BlockCidr {
    /// The block of `2^shift` addresses that contains `ip`.
    pub fn containing(ip: IpAddr, shift: u32) -> Option<Self> {
        let family = Family::of(ip);
        let prefix = family.width().checked_sub(u8::try_from(shift).ok()?)?;
        let network = IpNetwork::new(ip, prefix).ok()?;
        IpNetwork::new(network.network(), network.prefix()).ok().map(Self)
    }

    /// The block with these addresses, or `None` if `cidr` has host bits.
    pub fn of(cidr: IpNetwork) -> Option<Self> {
        (cidr.ip() == cidr.network()).then_some(Self(cidr))
    }

    /// The block of a name without its address space: `4-0a000040-26`.
    pub fn from_name(name: &str) -> Option<Self> {
        let mut parts = name.split('-');
        let family = match parts.next()? {
            "4" => Family::V4,
            "6" => Family::V6,
            _ => return None,
        };
        let first = u128::from_str_radix(parts.next()?, 16).ok()?;
        let prefix: u8 = parts.next()?.parse().ok()?;
        Self::of(IpNetwork::new(family.address(first), prefix).ok()?)
    }

    /// The family of its addresses.
    pub fn family(self) -> Family {
        Family::of(self.0.ip())
    }

    /// The number of low bits in which the addresses of the block differ.
    pub fn shift(self) -> u32 {
        u32::from(self.family().width() - self.0.prefix())
    }

    /// Its addresses as a network.
    pub fn network(self) -> IpNetwork {
        self.0
    }

    /// Its addresses as numbers.
    pub fn interval(self) -> Interval {
        Interval {
            first: bits(self.0.network()),
            last: bits(self.0.broadcast()),
        }
    }

    /// The name of the block's object in `space`. The node that creates the object of this name has claimed the block.
    pub fn name(self, space: &str) -> String {
        let (family, digits) = match self.0 {
            IpNetwork::V4(_) => (4, 8),
            IpNetwork::V6(_) => (6, 32),
        };
        let (first, prefix) = (self.interval().first, self.0.prefix());
        format!("{space}-{family}-{first:0digits$x}-{prefix}")
    }
}

impl fmt::Display for BlockCidr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// The name of the object of one address in `space`.
pub fn address_name(space: &str, ip: IpAddr) -> String {
    let digits = if ip.is_ipv4() { 8 } else { 32 };
    format!("{space}-{:0digits$x}", bits(ip))
}

/// The number of low bits in which the addresses of a block of `size` differ. `None` if `size` is not a power of two or
/// too large for the family.
pub fn shift_of(size: u64, family: Family) -> Option<u32> {
    let shift = size.checked_ilog2()?;
    (size.is_power_of_two() && shift <= u32::from(family.width())).then_some(shift)
}

impl BlockLayout {
    /// The blocks of `2^shift` addresses that contain a member of `usable`.
    pub fn new(family: Family, shift: u32, usable: IntervalSet) -> Self {
        let number = |address: u128| address.checked_shr(shift).unwrap_or(0);
        let numbers: IntervalSet = usable
            .intervals()
            .iter()
            .map(|i| Interval {
                first: number(i.first),
                last: number(i.last),
            })
            .collect();
        let mut index = 0_u128;
        let runs = numbers.intervals().iter().map(|numbers| {
            let run = Run {
                index,
                numbers: *numbers,
            };
            index = index.saturating_add(numbers.count());
            run
        });
        Self {
            runs: runs.collect(),
            family,
            shift,
            usable,
        }
    }

    /// The address family.
    pub fn family(&self) -> Family {
        self.family
    }

    /// The number of low bits in which the addresses of a block differ.
    pub fn shift(&self) -> u32 {
        self.shift
    }

    /// How many blocks there are.
    pub fn blocks(&self) -> u128 {
        self.runs
            .last()
            .map_or(0, |run| run.index.saturating_add(run.numbers.count()))
    }

    /// The number of usable addresses of all blocks together.
    pub fn addresses(&self) -> u128 {
        self.usable.count()
    }

    /// The block with this index, counted from zero.
    pub fn block(&self, index: u128) -> Option<BlockCidr> {
        let run = self.runs[..self.runs.partition_point(|run| run.index <= index)].last()?;
        let number = run
            .numbers
            .first
            .checked_add(index - run.index)
            .filter(|number| run.numbers.contains(*number))?;
        let first = number.checked_shl(self.shift).unwrap_or(0);
        BlockCidr::containing(self.family.address(first), self.shift)
    }

    /// The usable addresses of `cidr`.
    pub fn usable(&self, cidr: BlockCidr) -> IntervalSet {
        if cidr.family() != self.family {
            return IntervalSet::default();
        }
        self.usable.within(cidr.interval())
    }

    /// Whether `cidr` is a block of this layout.
    pub fn has(&self, cidr: BlockCidr) -> bool {
        cidr.shift() == self.shift && !self.usable(cidr).is_empty()
    }

    /// The first block, in ascending order, with a usable address that is not in `taken`.
    pub fn first_missing(&self, taken: &IntervalSet) -> Option<BlockCidr> {
        self.first_missing_from(taken, 0)
    }

    /// The first block from the address `start` on with a usable address that is not in `taken`.
    pub fn first_missing_from(&self, taken: &IntervalSet, start: u128) -> Option<BlockCidr> {
        let free = self.usable.minus(taken).first_from(start)?;
        BlockCidr::containing(self.family.address(free), self.shift)
    }
}

#[cfg(test)]
mod tests;
