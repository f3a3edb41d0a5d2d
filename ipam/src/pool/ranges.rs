// SPDX-License-Identifier: Apache-2.0
//! The ranges of a pool, whole and as far as this node's blocks reach.
//!
//! Only the edges of a subnet are kept back, never those of a block: the first and last address of a block inside a
//! subnet are addresses like any other.

use super::{Block, BlockState, PoolFile};
use crate::config::exclusions;
use crate::interval::{Interval, IntervalSet};
use crate::range::{Family, Range, RangeSpec, Shared, Verdict, bits, intervals};
use common::cni::{Code, Error};
use ipnetwork::IpNetwork;
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

/// Where in a pool an address lies.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AddressPlace<'p> {
    /// In no range.
    Outside,
    /// In a subnet, but never given; the text says what it is.
    Kept(&'static str),
    /// In a block of this node that gives addresses.
    Here(&'p Block),
    /// In a block of this node that is to be returned or about to be shared.
    Leaving(&'p Block),
    /// To be had by way of the agent only: reserved, shared, or in no block of this node.
    Elsewhere,
}

impl PoolRanges {
    /// The ranges of `pool`, which was read from `path`.
    ///
    /// # Errors
    /// [`Code::STORE_CORRUPT`] when they contradict themselves, as no accepted pool's do.
    pub fn new(pool: &PoolFile, path: &Path) -> Result<Self, Error> {
        Self::of(pool).map_err(|e| Error {
            code: Code::STORE_CORRUPT,
            msg: format!(
                "{} is damaged or foreign: {}; remove the file, and this node's agent writes it anew from the cluster",
                path.display(),
                e.msg
            ),
            details: e.details,
        })
    }

    /// The ranges of `pool`, which nobody has accepted yet.
    ///
    /// # Errors
    /// [`Code::INVALID_CONFIG`], beginning with the member that is wrong.
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

    /// The families that an attachment gets one address of each, IPv4 first.
    pub fn families(&self) -> Vec<Family> {
        let mut families: Vec<Family> = self.whole.iter().map(Range::family).collect();
        families.sort_unstable();
        families.dedup();
        families
    }

    /// What this node may hand out of `family` by itself: each range as far as the active blocks reach.
    pub fn here(&self, family: Family) -> Vec<Range> {
        let active = self
            .blocks
            .iter()
            .filter(|block| block.state == BlockState::Active)
            .filter(|block| Family::of(block.cidr.ip()) == family)
            .map(|block| interval(block.cidr));
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

    /// Every address of `family` that the pool may give to any node's block: all ranges, less what is reserved.
    pub fn usable(&self, family: Family) -> IntervalSet {
        let of_family = self.whole.iter().filter(|range| range.family() == family);
        let all: IntervalSet = of_family
            .flat_map(|range| range.free().intervals().to_vec())
            .collect();
        all.minus(&self.reserved(family))
    }

    /// The addresses of `family` that are given by name only, and lie in a range.
    pub fn reserved(&self, family: Family) -> IntervalSet {
        let of_family = self.whole.iter().filter(|range| range.family() == family);
        let all: IntervalSet = of_family
            .flat_map(|range| range.free().intervals().to_vec())
            .collect();
        all.both(&intervals(&self.reserved, family))
    }

    /// Whether one of these addresses of `family` lies between the first and the last one of a range, excluded or not.
    pub fn reach(&self, family: Family, addresses: Interval) -> bool {
        self.whole
            .iter()
            .any(|range| range.family() == family && range.reaches(addresses))
    }

    /// The range that `ip` belongs to, be it handed out by whom it may.
    pub fn range_of(&self, ip: IpAddr) -> Option<&Range> {
        self.whole
            .iter()
            .find(|range| range.verdict(ip) == Verdict::Usable)
    }

    /// Where `ip` lies.
    pub fn place(&self, ip: IpAddr) -> AddressPlace<'_> {
        if self.range_of(ip).is_none() {
            let kept = self.whole.iter().find_map(|range| match range.verdict(ip) {
                Verdict::Reserved(what) => Some(what),
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

/// The addresses of `cidr` as numbers.
pub(crate) fn interval(cidr: IpNetwork) -> Interval {
    Interval {
        first: bits(cidr.network()),
        last: bits(cidr.broadcast()),
    }
}
