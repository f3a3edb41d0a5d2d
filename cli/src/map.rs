// SPDX-License-Identifier: Apache-2.0
//! `rdmanet map`: draws a pool: which node owns which part, what is excluded, and what is free.
//!
//! Invariant: the parts of a range are consecutive, without gap or overlap.
//!
//! Invariant: no function here iterates over addresses.

pub mod svg;
pub mod text;

use crate::allocations::allocations;
use crate::cluster::snapshot::{Block, Pool, Snapshot};
use crate::interval::parse;
use crate::output::{CommandError, Outcome, Output};
use crate::pools;
use ipam::interval::{Interval, IntervalSet};
use ipam::range::{Family, bits, default_gateway, whole};
use ipnetwork::IpNetwork;
use serde::Serialize;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::path::Path;

/// The use of a part of a range.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase", tag = "kind")]
pub enum Part {
    /// Network, broadcast or gateway address, or outside the range's limits.
    Never,
    /// Listed in `exclude`.
    Excluded,
    /// Listed in `spec.reserved`.
    Reserved,
    /// In a node's block.
    Block {
        /// The node. For a shared block, its former owner.
        node: String,
        /// The state of the block.
        state: String,
    },
    /// In a block of another pool of the address space.
    OtherPool {
        /// That pool.
        pool: String,
    },
    /// Not claimed by any node.
    Free,
}

/// Consecutive addresses with the same use.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Segment {
    /// The addresses.
    pub at: Interval,
    /// Their use.
    pub part: Part,
}

/// A range of a pool.
#[derive(Clone, Debug)]
pub struct MappedRange {
    /// Its subnet.
    pub subnet: IpNetwork,
    /// Its parts, in order, from the subnet's first address to its last.
    pub segments: Vec<Segment>,
    /// The addresses in use.
    pub held: Vec<u128>,
}

/// A pool.
#[derive(Clone, Debug)]
pub struct Map {
    /// Its name.
    pub pool: String,
    /// Its ranges.
    pub ranges: Vec<MappedRange>,
    /// The nodes with blocks of the pool: the number of their addresses, and how many are in use by their agents' last
    /// reports.
    pub nodes: BTreeMap<String, (u128, i64)>,
}

impl MappedRange {
    /// The family of its addresses.
    pub fn family(&self) -> Family {
        Family::of(self.subnet.ip())
    }

    /// All addresses of the subnet.
    pub fn whole(&self) -> Interval {
        whole(self.subnet)
    }
}

/// Draws the pool called `name` as text, and as SVG into `file` if one is given.
///
/// # Errors
/// There is no such pool, its ranges cannot be parsed, or the file cannot be written.
pub fn run(snapshot: &Snapshot, name: &str, file: Option<&Path>) -> Result<Output, CommandError> {
    let map = draw(snapshot, pools::find(snapshot, name)?)?;
    let mut text = text::render(&map);
    if let Some(file) = file {
        std::fs::write(file, svg::render(&map))
            .map_err(|e| CommandError(format!("cannot write {}: {e}", file.display())))?;
        text = format!("drew {}\n", file.display());
    }
    Ok(Output {
        text,
        json: document(&map),
        outcome: Outcome::Fine,
    })
}

/// Finds the parts of every range of `pool`, according to the spec that nodes obey.
///
/// # Errors
/// A range cannot be parsed. A stored range always can.
pub fn draw(snapshot: &Snapshot, pool: &Pool) -> Result<Map, CommandError> {
    let name = pool.name();
    let all = allocations(snapshot, &[], None);
    let held = all
        .iter()
        .filter(|one| one.pool.as_deref() == Some(name))
        .map(|one| one.address);
    let held: Vec<std::net::IpAddr> = held.collect();
    let spec = pool.spec_in_force();
    let reserved: Vec<(Family, Interval)> = spec.reserved.iter().filter_map(|entry| parse(entry)).collect();
    let mut ranges = Vec::new();
    for range in &spec.ranges {
        let subnet: IpNetwork = range
            .subnet
            .parse()
            .map_err(|e| CommandError(format!("pool {name}: subnet {}: {e}", range.subnet)))?;
        let family = Family::of(subnet.ip());
        let layers = Layers {
            never: never(range, subnet),
            excluded: range
                .exclude
                .iter()
                .filter_map(|entry| parse(entry))
                .map(|(_, at)| at)
                .collect(),
            reserved: reserved
                .iter()
                .filter(|(of, _)| *of == family)
                .map(|(_, at)| *at)
                .collect(),
            blocks: blocks(snapshot, pool, subnet),
        };
        ranges.push(MappedRange {
            segments: layers.segments(whole(subnet)),
            held: held
                .iter()
                .filter(|ip| subnet.contains(**ip))
                .map(|ip| bits(*ip))
                .collect(),
            subnet,
        });
    }
    let mut nodes: BTreeMap<String, (u128, i64)> = BTreeMap::new();
    for block in snapshot.blocks_of(name) {
        let entry = nodes.entry(block.object.spec.owner.node.clone()).or_default();
        entry.0 += whole(block.cidr).count();
        entry.1 += block.object.status.as_ref().map_or(0, |status| status.used);
    }
    Ok(Map {
        pool: name.to_owned(),
        ranges,
        nodes,
    })
}

/// Addresses that are never allocated: the edges of the subnet, the gateway, and addresses outside the limits.
fn never(range: &api::Range, subnet: IpNetwork) -> IntervalSet {
    let Interval { first, last } = whole(subnet);
    let mut all = Vec::new();
    let limit = |text: &Option<String>| text.as_ref().and_then(|text| parse(text)).map(|(_, at)| at.first);
    if let Some(start) = limit(&range.start) {
        all.extend(
            start
                .checked_sub(1)
                .and_then(|before| Interval::new(first, before)),
        );
    }
    if let Some(end) = limit(&range.end) {
        all.extend(end.checked_add(1).and_then(|after| Interval::new(after, last)));
    }
    if default_gateway(subnet).is_some() {
        all.push(Interval { first, last: first });
        if subnet.is_ipv4() {
            all.push(Interval { first: last, last });
        }
    }
    all.extend(pools::gateway(range, subnet).map(ipam::range::single));
    all.into_iter().collect()
}

/// The blocks of the pool's address space. A block of another pool may lie in `subnet` too, and its addresses are not free.
fn blocks(snapshot: &Snapshot, pool: &Pool, subnet: IpNetwork) -> Vec<Segment> {
    let family = Family::of(subnet.ip());
    let inside = |block: &&Block| block.space() == pool.space() && Family::of(block.cidr.ip()) == family;
    let segment = |block: &Block| Segment {
        at: whole(block.cidr),
        part: if block.object.spec.pool == pool.name() {
            Part::Block {
                node: block.object.spec.owner.node.clone(),
                state: format!("{:?}", block.object.spec.state),
            }
        } else {
            Part::OtherPool {
                pool: block.object.spec.pool.clone(),
            }
        },
    };
    let mut all: Vec<Segment> = snapshot.blocks().iter().filter(inside).map(segment).collect();
    all.sort_by_key(|segment| segment.at.first);
    all
}

/// The layers of the map, the topmost first.
struct Layers {
    never: IntervalSet,
    excluded: IntervalSet,
    reserved: IntervalSet,
    blocks: Vec<Segment>,
}

impl Layers {
    fn segments(&self, all: Interval) -> Vec<Segment> {
        let sets = [&self.never, &self.excluded, &self.reserved];
        let of_sets = sets.iter().flat_map(|set| set.intervals());
        let edges = of_sets.chain(self.blocks.iter().map(|block| &block.at));
        let mut cuts: Vec<u128> = edges
            .flat_map(|at| [Some(at.first), at.last.checked_add(1)])
            .flatten()
            .filter(|cut| all.contains(*cut))
            .chain([all.first])
            .collect();
        cuts.sort_unstable();
        cuts.dedup();
        let mut segments: Vec<Segment> = Vec::new();
        for (i, cut) in cuts.iter().enumerate() {
            let end = cuts.get(i + 1).map_or(all.last, |next| next - 1);
            let part = self.part(*cut);
            match segments.last_mut() {
                Some(before) if before.part == part => before.at.last = end,
                _ => segments.push(Segment {
                    at: Interval {
                        first: *cut,
                        last: end,
                    },
                    part,
                }),
            }
        }
        segments
    }

    fn part(&self, number: u128) -> Part {
        if self.never.contains(number) {
            return Part::Never;
        }
        if self.excluded.contains(number) {
            return Part::Excluded;
        }
        if self.reserved.contains(number) {
            return Part::Reserved;
        }
        let behind = self.blocks.partition_point(|block| block.at.first <= number);
        let block = behind.checked_sub(1).and_then(|i| self.blocks.get(i));
        block
            .filter(|block| block.at.contains(number))
            .map_or(Part::Free, |block| block.part.clone())
    }
}

fn document(map: &Map) -> Value {
    let range = |range: &MappedRange| {
        let family = range.family();
        let segment = |segment: &Segment| {
            let mut one = json!(segment.part);
            one["first"] = json!(family.address(segment.at.first));
            one["last"] = json!(family.address(segment.at.last));
            one
        };
        json!({
            "subnet": range.subnet,
            "segments": range.segments.iter().map(segment).collect::<Vec<_>>(),
            "held": range.held.iter().map(|number| family.address(*number)).collect::<Vec<_>>(),
        })
    };
    json!({
        "version": 1, "pool": map.pool, "ranges": map.ranges.iter().map(range).collect::<Vec<_>>(),
        "nodes": map.nodes.iter().map(|(node, (addresses, used))| json!({
            "node": node, "addresses": addresses.to_string(), "used": used,
        })).collect::<Vec<_>>(),
    })
}

#[cfg(test)]
mod tests;
