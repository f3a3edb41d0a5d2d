// SPDX-License-Identifier: Apache-2.0
//! Finds ranges of different names that have addresses in common.
//!
//! whereabouts allocates from overlapping ranges, because it reserves each address beside its ranges. Pools have no such
//! reservation for the addresses of pods that started before the import. So one pool must have all of these addresses.

use crate::cluster::snapshot::subnets;
use api::Range;
use ipnetwork::IpNetwork;

/// Ranges, and what has them.
#[derive(Clone, Debug)]
pub(super) struct NamedRanges<'a> {
    /// The name of what has them, such as `pool rail0`.
    pub(super) name: String,
    /// Their address space.
    pub(super) space: &'a str,
    /// The ranges.
    pub(super) ranges: &'a [Range],
}

impl NamedRanges<'_> {
    /// Why there cannot be two pools for both; `None` if they have no address in common.
    pub(super) fn conflict(&self, other: &NamedRanges<'_>) -> Option<String> {
        if self.space != other.space {
            return None;
        }
        let (own, theirs) = common(self.ranges, other.ranges)?;
        Some(format!(
            "its subnet {own} overlaps subnet {theirs} of {}; one pool must have both ranges (docs/migrate.md, \"Ranges that overlap\")",
            other.name
        ))
    }
}

/// The first subnets of both lists that overlap. Bounds and exclusions do not count: pools share blocks by subnet.
fn common(one: &[Range], other: &[Range]) -> Option<(IpNetwork, IpNetwork)> {
    let others = subnets(other);
    // If two networks overlap, one contains the other.
    let touches = |a: &IpNetwork, b: &IpNetwork| a.contains(b.network()) || b.contains(a.network());
    subnets(one)
        .into_iter()
        .find_map(|a| Some((a, *others.iter().find(|b| touches(&a, b))?)))
}
