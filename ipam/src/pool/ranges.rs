// SPDX-License-Identifier: Apache-2.0
//! The ranges of a pool: whole, and the part that this node's blocks cover.
//!
//! Only the edges of a subnet are never allocated. The first and last address of a block inside a subnet are
//! ordinary addresses.

use super::file::corrupt;
use super::{Block, BlockState, PoolFile};
use crate::interval::{Interval, IntervalSet};
use crate::range::{Family, Membership, Range, RangeSpec, Shared, intervals, whole};
use crate::text::exclusions;
use common::cni::Error;
use std::net::IpAddr;
use std::path::Path;
use std::sync::Arc;

/// The ranges of a pool.
#[derive(Clone, Debug)]
pub struct PoolRanges {
    whole: Vec<Range>,
    reserved: Vec<(IpAddr, IpAddr)>,
    blocks: Vec<Block>,
}

/// The place of an address in a pool.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AddressPlace<'p> {
    /// In no range.
    Outside,
    /// In a subnet, but never allocated. The text names the reason.
    Kept(&'static str),
    /// In an active block of this node.
    Here(&'p Block),
    /// In a block of this node that is about to be returned or shared.
    Leaving(&'p Block),
    /// Allocated only by the agent: reserved, shared, or in no block of this node.
    Elsewhere,
}

impl PoolRanges {
    /// The ranges of `pool`, which was read from `path`.
    ///
    /// # Errors
    /// [`common::cni::Code::STORE_CORRUPT`] if they contradict each other, as those of an accepted pool never do.
    pub fn new(pool: &PoolFile, path: &Path) -> Result<Self, Error> {
        Self::of(pool).map_err(|e| corrupt(path, &e.msg).with_details(e.details))
    }

    /// The ranges of `pool`, which has not been accepted yet.
    ///
    /// # Errors
    /// [`common::cni::Code::INVALID_CONFIG`]; the message begins with the invalid member.
    pub fn of(pool: &PoolFile) -> Result<Self, Error> {
        let gateways = pool.ranges.iter().filter_map(|range| range.gateway);
        let shared = Arc::new(Shared::new(gateways, &[]));
        let range = |(i, range): (usize, &super::PoolRange)| {
            let place = format!("ranges[{i}]");
            let spec = RangeSpec {
                subnet: range.subnet,
                start: range.start,
                end: range.end,
                gateway: range.gateway,
                exclude: exclusions(&format!("{place}.exclude"), Some(&range.exclude))?,
                place,
            };
            Range::perhaps_empty(spec, &shared)
        };
        Ok(Self {
            whole: pool
                .ranges
                .iter()
                .enumerate()
                .map(range)
                .collect::<Result<_, _>>()?,
            reserved: exclusions("reserved", Some(&pool.reserved))?,
            blocks: pool.blocks.clone(),
        })
    }

    /// The families of the pool, IPv4 first. An attachment gets one address of each.
    pub fn families(&self) -> Vec<Family> {
        let mut families: Vec<Family> = self.whole.iter().map(Range::family).collect();
        families.sort_unstable();
        families.dedup();
        families
    }

    /// The addresses of `family` that this node may allocate by itself: each range within the active blocks.
    pub fn here(&self, family: Family) -> Vec<Range> {
        let active = self
            .blocks
            .iter()
            .filter(|block| block.state == BlockState::Active)
            .filter(|block| Family::of(block.cidr.ip()) == family)
            .map(|block| whole(block.cidr));
        let allowed = active
            .collect::<IntervalSet>()
            .minus(&intervals(&self.reserved, family));
        self.whole
            .iter()
            .filter(|range| range.family() == family)
            .map(|range| range.within(&allowed))
            .filter(|range| !range.free().is_empty())
            .collect()
    }

    /// The addresses of `family` that any node's block may allocate: all ranges without the reserved
    /// addresses.
    pub fn usable(&self, family: Family) -> IntervalSet {
        self.all(family).minus(&self.reserved(family))
    }

    /// The addresses of `family` that lie in a range and are allocated only on request.
    pub fn reserved(&self, family: Family) -> IntervalSet {
        self.all(family).both(&self.listed_as_reserved(family))
    }

    /// The addresses of `family` that the file lists as reserved, whether a range has them or not: an edit may exclude an address
    /// and include it again.
    pub fn listed_as_reserved(&self, family: Family) -> IntervalSet {
        intervals(&self.reserved, family)
    }

    /// The addresses of `family` in all ranges.
    fn all(&self, family: Family) -> IntervalSet {
        let of_family = self.whole.iter().filter(|range| range.family() == family);
        of_family
            .flat_map(|range| range.free().intervals().to_vec())
            .collect()
    }

    /// Whether one of `addresses` of `family` lies between the first and last address of a range, excluded or
    /// not.
    pub fn reach(&self, family: Family, addresses: Interval) -> bool {
        self.whole
            .iter()
            .any(|range| range.family() == family && range.reaches(addresses))
    }

    /// The range of `ip`, whether a block or the agent allocates it.
    pub fn range_of(&self, ip: IpAddr) -> Option<&Range> {
        self.whole
            .iter()
            .find(|range| range.membership(ip) == Membership::Usable)
    }

    /// The place of `ip` in the pool.
    pub fn place(&self, ip: IpAddr) -> AddressPlace<'_> {
        if self.range_of(ip).is_none() {
            let kept = self.whole.iter().find_map(|range| match range.membership(ip) {
                Membership::Reserved(what) => Some(what),
                _ => None,
            });
            return kept.map_or(AddressPlace::Outside, AddressPlace::Kept);
        }
        if self
            .reserved
            .iter()
            .any(|(first, last)| (*first..=*last).contains(&ip))
        {
            return AddressPlace::Elsewhere;
        }
        match self.blocks.iter().find(|block| block.cidr.contains(ip)) {
            None => AddressPlace::Elsewhere,
            Some(block) => match block.state {
                BlockState::Active => AddressPlace::Here(block),
                BlockState::Draining | BlockState::Sharing => AddressPlace::Leaving(block),
                BlockState::Shared => AddressPlace::Elsewhere,
            },
        }
    }

    /// All ranges as `first-last`, for a person.
    pub fn describe(&self) -> String {
        let texts: Vec<String> = self.whole.iter().map(Range::to_string).collect();
        texts.join(", ")
    }
}
