// SPDX-License-Identifier: Apache-2.0
//! A pool as it was accepted: its blocks, and the content of a node's pool file.

use crate::block_layout::{BlockCidr, BlockLayout, shift_of};
use crate::pool::{self, Allocation as Mode, IpPool, IpPoolSpec, Sticky};
use block::Owner;
use common::cni::{Code, Dns, Error, Route};
use ipam::interval::IntervalSet;
use ipam::pool::{Allocation, Counters, FORMAT, PoolFile, PoolName, PoolRange, PoolRanges};
use ipam::range::{Family, default_gateway};
use ipnetwork::IpNetwork;
use kube::ResourceExt;
use std::net::IpAddr;
use std::time::Duration;

/// An accepted pool.
#[derive(Clone, Debug)]
pub struct AcceptedPool {
    /// Its name.
    pub name: PoolName,
    /// `metadata.uid`.
    pub uid: String,
    /// The number of the accepted spec (`status.acceptedGeneration`). Each spec has a different number.
    pub generation: i64,
    /// The accepted spec.
    pub spec: IpPoolSpec,
    /// Its ranges.
    pub ranges: PoolRanges,
    /// Its blocks, by family.
    pub layouts: Vec<BlockLayout>,
    file: PoolFile,
}

/// The node that writes a pool file.
#[derive(Clone, Debug)]
pub struct Writer {
    /// Name and UID of the registered Node.
    pub owner: Owner,
    /// The ID of the current boot.
    pub boot_id: String,
    /// How long other nodes wait before they reuse what this node leaves.
    pub quarantine: Duration,
}

impl AcceptedPool {
    /// The accepted spec of `pool`, or `None` if no spec was accepted yet.
    ///
    /// # Errors
    /// [`Code::INVALID_CONFIG`] if the accepted spec turns out to be unusable.
    pub fn of(pool: &IpPool) -> Result<Option<Self>, Error> {
        let Some(status) = &pool.status else {
            return Ok(None);
        };
        let Some(spec) = &status.accepted else {
            return Ok(None);
        };
        Self::new(pool, spec, status.number_in_force()).map(Some)
    }

    /// Describes `pool` with `spec` in force.
    ///
    /// # Errors
    /// [`Code::INVALID_CONFIG`]. The message names the wrong member.
    pub fn new(pool: &IpPool, spec: &IpPoolSpec, generation: i64) -> Result<Self, Error> {
        let name = PoolName::try_from(pool.name_any())?;
        let file = file(&name, &pool.uid().unwrap_or_default(), generation, spec)?;
        let ranges = PoolRanges::of(&file).map_err(|e| invalid(format!("spec.{}", e.msg)))?;
        require_sticky_room(spec, &ranges)?;
        let layout = |family: Family| {
            let size = match family {
                Family::V4 => spec.block_size.v4,
                Family::V6 => spec.block_size.v6,
            };
            let shift = u64::try_from(size).ok().and_then(|size| shift_of(size, family));
            let shift = shift.ok_or_else(|| invalid(format!("spec.blockSize: {size} is no power of two")))?;
            Ok(BlockLayout::new(family, shift, ranges.usable(family)))
        };
        let layouts: Vec<BlockLayout> = ranges
            .families()
            .into_iter()
            .map(layout)
            .collect::<Result<_, Error>>()?;
        if let Some(family) = layouts
            .iter()
            .find(|layout| layout.blocks() == 0)
            .map(BlockLayout::family)
            && ranges.reserved(family).is_empty()
        {
            return Err(invalid(format!(
                "spec.ranges: no address is left in {}",
                ranges.describe()
            )));
        }
        Ok(Self {
            uid: pool.uid().unwrap_or_default(),
            spec: spec.clone(),
            name,
            generation,
            ranges,
            layouts,
            file,
        })
    }

    /// The pools that a plugin tries if this one gives no address.
    pub fn fallback(&self) -> &[PoolName] {
        &self.file.fallback
    }

    /// The blocks of a family.
    pub fn layout(&self, family: Family) -> Option<&BlockLayout> {
        self.layouts.iter().find(|layout| layout.family() == family)
    }

    /// The block that contains `ip`. If the pool has no blocks, or an edit has removed all ranges of the family, each address is a
    /// block of one.
    pub fn block_of(&self, ip: IpAddr) -> Option<BlockCidr> {
        let layout = self.layout(Family::of(ip)).filter(|_| self.has_blocks());
        BlockCidr::containing(ip, layout.map_or(0, BlockLayout::shift))
    }

    /// Whether `cidr` is a block of this pool.
    pub fn has(&self, cidr: BlockCidr) -> bool {
        self.layout(cidr.family()).is_some_and(|layout| layout.has(cidr))
    }

    /// Whether an address of `cidr` lies between the first and the last address of a range. Excluded and reserved
    /// addresses count too.
    pub fn reaches(&self, cidr: BlockCidr) -> bool {
        self.ranges.reach(cidr.family(), cidr.interval())
    }

    /// The addresses of `cidr` that nodes allocate to any pod.
    pub fn usable(&self, cidr: BlockCidr) -> IntervalSet {
        let layout = self.layout(cidr.family());
        layout.map_or_else(IntervalSet::default, |layout| layout.usable(cidr))
    }

    /// Whether nodes claim blocks of this pool, instead of single addresses.
    pub fn has_blocks(&self) -> bool {
        self.spec.allocation == Mode::Blocks
    }

    /// Whether pods of a `StatefulSet` keep their addresses.
    pub fn is_sticky(&self) -> bool {
        self.spec.sticky == Sticky::StatefulSet
    }

    /// Whether the plugin asks the agent about `pod` (`namespace/name`).
    pub fn asks_agent(&self, pod: Option<&str>) -> bool {
        PoolFile {
            allocation: Allocation::Sticky,
            ..self.file.clone()
        }
        .asks_agent(pod)
    }

    /// The addresses that pods may keep: those that no node allocates from its own blocks.
    pub fn reservable(&self, family: Family) -> IntervalSet {
        let reserved = self.ranges.reserved(family);
        if self.has_blocks() {
            return reserved;
        }
        let usable = self.ranges.usable(family);
        usable
            .intervals()
            .iter()
            .chain(reserved.intervals())
            .copied()
            .collect()
    }

    /// How many addresses this node keeps free without a pending request: half a block for each warm block.
    pub fn free_target(&self, family: Family) -> u64 {
        let size = self
            .layout(family)
            .map_or(0, |layout| 1_u64.checked_shl(layout.shift()).unwrap_or(u64::MAX));
        let warm = u64::try_from(self.spec.warm_blocks).unwrap_or_default();
        (size / 2).max(1).saturating_mul(warm)
    }

    /// The number of addresses of a family that the pool can allocate, reserved ones included.
    pub fn size(&self, family: Family) -> u128 {
        let usable = self.ranges.usable(family).count();
        usable.saturating_add(self.ranges.reserved(family).count())
    }

    /// The content of a node's pool file, without blocks.
    pub fn file(&self, writer: &Writer, namespaces: Option<Vec<String>>, counters: Counters) -> PoolFile {
        PoolFile {
            node: writer.owner.node.to_string(),
            node_uid: writer.owner.uid.to_string(),
            boot_id: writer.boot_id.clone(),
            quarantine_seconds: u32::try_from(writer.quarantine.as_secs()).unwrap_or(u32::MAX),
            namespaces,
            counters,
            ..self.file.clone()
        }
    }
}

fn require_sticky_room(spec: &IpPoolSpec, ranges: &PoolRanges) -> Result<(), Error> {
    let needed = spec.sticky == Sticky::StatefulSet && spec.allocation == Mode::Blocks;
    let without = ranges
        .families()
        .into_iter()
        .find(|family| ranges.reserved(*family).is_empty());
    match without.filter(|_| needed) {
        None => Ok(()),
        Some(family) => Err(invalid(format!(
            "spec.sticky: pods of a StatefulSet keep one {family} address each, and spec.reserved has none in {}; list some there",
            ranges.describe()
        ))),
    }
}

fn file(name: &PoolName, uid: &str, generation: i64, spec: &IpPoolSpec) -> Result<PoolFile, Error> {
    Ok(PoolFile {
        format: FORMAT,
        pool: name.clone(),
        uid: uid.to_owned(),
        generation,
        node: String::new(),
        node_uid: String::new(),
        boot_id: String::new(),
        quarantine_seconds: 0,
        cooldown_seconds: u32::try_from(spec.cooldown_seconds).unwrap_or_default(),
        allocation: match (spec.allocation, spec.sticky) {
            (Mode::PerAddress, _) => Allocation::Agent,
            (Mode::Blocks, Sticky::StatefulSet) => Allocation::Sticky,
            (Mode::Blocks, Sticky::Never) => Allocation::Blocks,
        },
        ranges: spec
            .ranges
            .iter()
            .enumerate()
            .map(range)
            .collect::<Result<_, _>>()?,
        reserved: spec.reserved.clone(),
        routes: spec
            .routes
            .iter()
            .enumerate()
            .map(route)
            .collect::<Result<_, _>>()?,
        dns: Dns::default(),
        namespaces: None,
        blocks: Vec::new(),
        priority: spec.priority,
        fallback: spec
            .fallback
            .iter()
            .map(|name| PoolName::try_from(name.clone()))
            .collect::<Result<_, _>>()?,
        counters: Counters::default(),
    })
}

fn range((i, range): (usize, &pool::Range)) -> Result<PoolRange, Error> {
    let subnet: IpNetwork = parse(&format!("spec.ranges[{i}].subnet"), &range.subnet)?;
    let address = |key: &str, text: &Option<String>| -> Result<Option<IpAddr>, Error> {
        text.as_ref()
            .map(|text| parse(&format!("spec.ranges[{i}].{key}"), text))
            .transpose()
    };
    Ok(PoolRange {
        subnet,
        start: address("start", &range.start)?,
        end: address("end", &range.end)?,
        gateway: match range.gateway.as_deref() {
            None => default_gateway(subnet),
            Some("none") => None,
            Some(_) => address("gateway", &range.gateway)?,
        },
        exclude: range.exclude.clone(),
    })
}

fn route((i, route): (usize, &pool::Route)) -> Result<Route, Error> {
    let gw: Option<IpAddr> = route
        .gw
        .as_ref()
        .map(|gw| parse(&format!("spec.routes[{i}].gw"), gw))
        .transpose()?;
    let dst: IpNetwork = parse(&format!("spec.routes[{i}].dst"), &route.dst)?;
    serde_json::from_value(serde_json::json!({ "dst": dst, "gw": gw }))
        .map_err(|e| invalid(format!("spec.routes[{i}]: {e}")))
}

fn parse<T: std::str::FromStr>(key: &str, text: &str) -> Result<T, Error>
where
    T::Err: std::fmt::Display,
{
    text.parse()
        .map_err(|e| invalid(format!("{key}: {text:?} cannot be read: {e}")))
}

fn invalid(msg: String) -> Error {
    Error::new(Code::INVALID_CONFIG, msg)
}

#[cfg(test)]
mod tests;
