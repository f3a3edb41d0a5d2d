// SPDX-License-Identifier: Apache-2.0
//! Plans the next step of each pool. The plan is pure: its input is what the source, the pools and the pods report now.

use super::group::{Allocation, Group, Network, Reading, Refusal};
use super::living::{Held, NETWORK_STATUS, held};
use super::record::{KEY, Record, closed, is_closed};
use crate::cluster::snapshot::{Snapshot, pools_of};
use crate::interval::{bounded, written};
use api::accepted_pool::AcceptedPool;
use api::{Allocation as Mode, BlockSize, IpPool, IpPoolSpec, Range, Sticky};
use ipam::interval::IntervalSet;
use ipam::range::{Family, single};
use ipnetwork::IpNetwork;
use k8s_openapi::jiff::Timestamp;
use kube::ResourceExt;
use std::fmt::Write;
use std::time::Duration;

/// The most entries in `exclude` of a range (conf/crds/ippools.yaml).
const EXCLUSIONS: usize = 32;

/// The parameters of the plan.
#[derive(Clone, Copy, Debug)]
pub struct Outlook {
    /// The name of the old IPAM plugin.
    pub source: &'static str,
    /// How long an ADD of the old plugin may still be running after its network was switched.
    pub grace: Duration,
    /// The current time.
    pub now: Timestamp,
    /// Whether to switch networks.
    pub switch: bool,
}

/// What the step does to the pool.
#[derive(Clone, Debug, PartialEq)]
pub enum Action {
    /// The pool is created, closed to all nodes.
    Create,
    /// The pool is updated.
    Write,
    /// The pool stays as it is.
    Keep,
}

/// The next step of a pool.
#[derive(Clone, Debug)]
pub struct Step {
    /// The pool.
    pub pool: String,
    /// The names that the source has for the ranges of the pool.
    pub keys: Vec<String>,
    /// The action.
    pub action: Action,
    /// The spec of the pool after the step.
    pub spec: IpPoolSpec,
    /// The record in the pool's annotation after the step.
    pub record: Record,
    /// The pool before the step.
    pub object: Option<IpPool>,
    /// Addresses of the old plugin that are still in use.
    pub living: Vec<Allocation>,
    /// Addresses of the old plugin whose pods are gone.
    pub ended: Vec<Allocation>,
    /// Networks that still name the old plugin.
    pub networks: Vec<Network>,
    /// Whether this step switches those networks.
    pub switch: bool,
    /// Seconds until the pool can be opened.
    pub wait: Option<u64>,
    /// The number of addresses that are excluded besides the ones in use, because a range has a limited number of
    /// entries.
    pub rounded: u128,
}

impl Step {
    /// The state of the pool after the step.
    pub fn state(&self) -> &'static str {
        match (
            self.spec.node_selector.as_ref() == Some(&closed()),
            self.networks.is_empty(),
        ) {
            (true, _) => "closed",
            (false, true) => "open",
            (false, false) => "clash",
        }
    }

    /// Whether a person or a later run still has to do something.
    pub fn is_unfinished(&self) -> bool {
        self.state() != "open"
    }

    /// Describes the step and what comes next.
    pub fn tell(&self, dry: bool) -> String {
        let mut text = self.done(dry);
        if self.rounded > 0 {
            let _ = write!(
                text,
                " {} more addresses than those are excluded for now, since a range has {EXCLUSIONS} entries and no more.",
                self.rounded
            );
        }
        let names: Vec<&str> = self
            .networks
            .iter()
            .map(|network| network.name.as_str())
            .collect();
        let ipam = format!(r#"{{"type": "rdma-ipam", "pool": "{}"}}"#, self.pool);
        let next = match (self.state(), self.switch, self.wait) {
            ("closed", false, _) if !names.is_empty() => format!(
                " Next: give network {} the ipam section {ipam}, by hand or with --switch; pods that start then wait until the pool is open.",
                names.join(" and ")
            ),
            ("closed", true, _) if !names.is_empty() => format!(
                " Network {} {} switched; pods that start wait until the pool is open. Next: this command again.",
                names.join(" and "),
                if dry { "would be" } else { "is" }
            ),
            ("closed", _, Some(seconds)) => format!(
                " Its networks are switched; an ADD of {} may be under way for {seconds} s yet. Next: this command again, then.",
                self.record.source
            ),
            ("clash", switch, _) => format!(
                " Network {} names {} while the pool is open, so both give addresses of it{}; then look with rdmanet check.",
                names.join(" and "),
                self.record.source,
                if switch { ": switched now" } else { ": switch it at once, --switch" }
            ),
            _ if self.living.is_empty() => format!(" Nothing of {} is left.", self.record.source),
            _ => " Next: this command again once these pods have ended, which gives their addresses to the pool.".to_owned(),
        };
        text.push_str(&next);
        text
    }

    fn done(&self, dry: bool) -> String {
        let is = if dry { "would be " } else { "is " };
        let living = self.living.len();
        let excluded = match living {
            0 => "no living address is to be excluded".to_owned(),
            1 => "1 living address is excluded".to_owned(),
            n => format!("{n} living addresses are excluded"),
        };
        match (&self.action, &self.object) {
            (Action::Create, _) => format!("the pool {is}made, closed to all nodes; {excluded}."),
            (Action::Write, Some(before)) if is_closed(before) && self.state() != "closed" => {
                format!("the pool {is}opened; {excluded}.")
            }
            (Action::Write, _) => format!("the pool {is}brought up to date; {excluded}."),
            (Action::Keep, _) => format!("nothing is to be changed; {excluded}."),
        }
    }
}

/// The input of a step.
#[derive(Clone, Copy)]
struct World<'w> {
    reading: &'w Reading,
    snapshot: &'w Snapshot,
    outlook: &'w Outlook,
}

/// Plans the next step of every pool that is imported. Adds pools that cannot go on to `refused`.
pub fn plan(reading: &Reading, snapshot: &Snapshot, outlook: &Outlook) -> (Vec<Step>, Vec<Refusal>) {
    let world = World {
        reading,
        snapshot,
        outlook,
    };
    let mut refused = Vec::new();
    let mut steps = Vec::new();
    let moved = |keys: &[String]| {
        let all = snapshot
            .pools
            .iter()
            .filter_map(|pool| Some((&pool.object, Record::of(&pool.object)?)));
        all.into_iter()
            .find(|(_, record)| record.source == outlook.source && record.from == keys)
    };
    for group in &reading.groups {
        let step = match moved(&group.keys) {
            Some((pool, record)) => again(&world, pool, &record, group.networks.clone()),
            None => first(&world, group),
        };
        match step {
            Ok(step) => steps.push(step),
            Err(why) => refused.push(Refusal::new(
                format!("network {}", group.names().join(" and ")),
                why,
            )),
        }
    }
    for pool in &snapshot.pools {
        let Some(record) = Record::of(&pool.object).filter(|record| record.source == outlook.source) else {
            continue;
        };
        let left = reading.groups.iter().any(|group| group.keys == record.from);
        if left {
            continue;
        }
        // A refused network may use these ranges and still allocate from them.
        if !reading.refused.is_empty() {
            refused.push(Refusal::new(
                format!("pool {}", pool.name()),
                "it waits until what is said above is settled",
            ));
            continue;
        }
        match again(&world, &pool.object, &record, Vec::new()) {
            Ok(step) => steps.push(step),
            Err(why) => refused.push(Refusal::new(format!("pool {}", pool.name()), why)),
        }
    }
    (steps, refused)
}

/// The first step of a pool that does not exist yet.
fn first(world: &World<'_>, group: &Group) -> Result<Step, String> {
    let World {
        reading,
        snapshot,
        outlook,
    } = *world;
    let name = name(group, outlook.source);
    if snapshot.pool(&name).is_some() {
        return Err(format!(
            "a pool {name} exists, and did not come from there; rename it or the network"
        ));
    }
    let mut spec = spec(group);
    size(&name, &mut spec, group.block_size, snapshot.nodes.len())?;
    let record = Record {
        source: outlook.source.to_owned(),
        from: group.keys.clone(),
        living: Vec::new(),
        told: Vec::new(),
        node_selector: group.nodes.clone(),
    };
    spec.node_selector = Some(closed());
    let held = held(&given(reading, &record), &snapshot.pods, &subnets(&spec), None);
    let step = Step {
        pool: name,
        keys: group.keys.clone(),
        action: Action::Create,
        spec,
        record,
        object: None,
        living: held.living,
        ended: held.ended,
        networks: group.networks.clone(),
        switch: outlook.switch,
        wait: None,
        rounded: 0,
    };
    finish(step, reading.files)
}

/// The next step of a pool whose import has begun. `left` are networks that still name the old plugin.
fn again(world: &World<'_>, pool: &IpPool, record: &Record, left: Vec<Network>) -> Result<Step, String> {
    let World {
        reading,
        snapshot,
        outlook,
    } = *world;
    let mut spec = pool.spec.clone();
    for range in &mut spec.ranges {
        range.exclude.retain(|entry| !record.living.contains(entry));
    }
    let was_closed = is_closed(pool);
    let known = record.known();
    let Held { living, ended } = held(
        &given(reading, record),
        &snapshot.pods,
        &subnets(&spec),
        (!was_closed).then_some(&known),
    );
    let mut wait = None;
    if was_closed && left.is_empty() {
        wait = still(reading, outlook, &pool.name_any());
        if wait.is_none() {
            spec.node_selector.clone_from(&record.node_selector);
        }
    }
    let step = Step {
        pool: pool.name_any(),
        keys: record.from.clone(),
        action: Action::Write,
        spec,
        record: record.clone(),
        object: Some(pool.clone()),
        living,
        ended,
        switch: outlook.switch && !left.is_empty(),
        networks: left,
        wait,
        rounded: 0,
    };
    let mut step = finish(step, reading.files)?;
    if step.spec == pool.spec && step.record == *record {
        step.action = Action::Keep;
    }
    Ok(step)
}

/// For how many seconds an ADD that began before the last network was switched may still be running.
fn still(reading: &Reading, outlook: &Outlook, pool: &str) -> Option<u64> {
    let own = reading
        .networks
        .iter()
        .filter(|network| pools_of(&network.ipam).iter().any(|name| name == pool));
    let last = own.filter_map(|network| network.changed).max()?;
    let passed = outlook.now.duration_since(last);
    let passed = u64::try_from(passed.as_secs()).unwrap_or(0);
    outlook
        .grace
        .as_secs()
        .checked_sub(passed)
        .filter(|left| *left > 0)
}

/// Excludes the addresses in use from the ranges.
fn finish(mut step: Step, files: Option<usize>) -> Result<Step, String> {
    step.record.living.clear();
    let by_pods = |one: &&Allocation| one.told_by.starts_with(NETWORK_STATUS);
    step.record.told = match files {
        Some(_) => step.living.iter().filter(|one| !by_pods(one)).cloned().collect(),
        None => Vec::new(),
    };
    for range in &mut step.spec.ranges {
        let Some(subnet) = range.subnet.parse::<IpNetwork>().ok() else {
            continue;
        };
        let family = Family::of(subnet.ip());
        let living: IntervalSet = step
            .living
            .iter()
            .filter(|one| subnet.contains(one.address))
            .map(|one| single(one.address))
            .collect();
        if living.is_empty() {
            continue;
        }
        let room = EXCLUSIONS.saturating_sub(range.exclude.len());
        if room == 0 {
            return Err(format!(
                "range {} has {EXCLUSIONS} exclusions already, and none is left for the addresses of living pods; write some of them as one",
                range.subnet
            ));
        }
        for interval in bounded(&living, room) {
            step.rounded += interval.count();
            step.record.living.push(written(family, interval));
            range.exclude.push(written(family, interval));
        }
        step.rounded -= living.count();
    }
    Ok(step)
}

/// The allocations of the old plugin. Allocations from files given in earlier runs stay valid. If files are given now, an
/// earlier allocation that these files do not contain has ended, unless it names a pod. An allocation that names a pod
/// stays, and ends with its pod ([`held`]).
fn given(reading: &Reading, record: &Record) -> Vec<Allocation> {
    let mut all: Vec<Allocation> = record
        .from
        .iter()
        .filter_map(|key| reading.allocations.get(key))
        .flatten()
        .cloned()
        .collect();
    let earlier = record.told.iter().filter(|one| match reading.files {
        None => false,
        Some(0) => true,
        Some(_) => one.pod.is_some(),
    });
    for one in earlier {
        if all.iter().all(|other| other.address != one.address) {
            all.push(one.clone());
        }
    }
    all
}

fn subnets(spec: &IpPoolSpec) -> Vec<IpNetwork> {
    spec.ranges
        .iter()
        .filter_map(|range: &Range| range.subnet.parse().ok())
        .collect()
}

/// The name of the network if it is the only one, otherwise a name made from the names of its ranges.
fn name(group: &Group, source: &str) -> String {
    let plain = match group.networks.as_slice() {
        [one] => one.plain_name().to_owned(),
        _ => format!("{source}-{}", group.keys.join("-")),
    };
    let plain: String = plain
        .to_lowercase()
        .chars()
        .map(|c| if c.is_ascii_alphanumeric() { c } else { '-' })
        .collect();
    let plain: String = plain.trim_matches('-').chars().take(63).collect();
    plain.trim_end_matches('-').to_owned()
}

fn spec(group: &Group) -> IpPoolSpec {
    IpPoolSpec {
        address_space: group.space.clone().unwrap_or_else(|| "default".to_owned()),
        ranges: group.ranges.clone(),
        routes: group.routes.clone(),
        block_size: BlockSize::default(),
        allocation: Mode::Blocks,
        node_selector: None,
        namespace_selector: None,
        priority: 0,
        fallback: Vec::new(),
        cooldown_seconds: 30,
        reserved: Vec::new(),
        sticky: Sticky::Never,
        warm_blocks: 1,
        max_blocks_per_node: 0,
    }
}

/// Chooses the block size so that every node gets a block and most blocks stay free. If a range is too small for that,
/// the pool allocates single addresses.
fn size(name: &str, spec: &mut IpPoolSpec, told: Option<u64>, nodes: usize) -> Result<(), String> {
    spec.block_size = BlockSize { v4: 1, v6: 1 };
    let pool = IpPool::new(name, spec.clone());
    let accepted = AcceptedPool::new(&pool, spec, 0).map_err(|e| e.msg)?;
    spec.block_size = BlockSize::default();
    let nodes = u128::try_from(nodes.max(1)).unwrap_or(1);
    for family in accepted.ranges.families() {
        let usable = accepted.ranges.usable(family).count();
        let each = usable / (2 * nodes);
        if each < 4 && told.is_none() {
            spec.allocation = Mode::PerAddress;
        }
        let largest = told.map_or(if family == Family::V4 { 64 } else { 1024 }, |told| {
            u128::from(told.next_power_of_two())
        });
        let size = largest.min(1 << each.max(1).ilog2()).clamp(1, 65_536);
        let size = i64::try_from(size).unwrap_or(1);
        match family {
            Family::V4 => spec.block_size.v4 = size,
            Family::V6 => spec.block_size.v6 = size,
        }
    }
    Ok(())
}

/// The annotation of a pool: key and value.
pub fn annotation(record: &Record) -> (String, String) {
    (KEY.to_owned(), serde_json::to_string(record).unwrap_or_default())
}
