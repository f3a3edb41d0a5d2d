// SPDX-License-Identifier: Apache-2.0
//! Plans the next step of each pool. The plan is pure: its input is what the source, the pools and the pods report now.

use super::annotation::{ImportRecord, KEY, closed, is_closed};
use super::in_use::{Allocations, NETWORK_STATUS, classify};
use super::overlap::NamedRanges;
use super::source::{Group, Network, Refusal, SourceAllocation, SourceData};
use super::step::{Action, EXCLUSIONS, Step, are_own};
use crate::cluster::snapshot::{Pool, Snapshot, pools_of, subnets, unready};
use crate::interval::{format_interval, merged};
use api::accepted_pool::AcceptedPool;
use api::{Allocation as Mode, BlockSize, IpPool, IpPoolSpec, Range, Sticky};
use ipam::interval::IntervalSet;
use ipam::range::{Family, single};
use ipnetwork::IpNetwork;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use k8s_openapi::jiff::Timestamp;
use kube::ResourceExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// The parameters of the plan.
#[derive(Clone, Copy, Debug)]
pub struct PlanOptions {
    /// The name of the old IPAM plugin.
    pub source: &'static str,
    /// How long an ADD of the old plugin may still be running after its network was switched.
    pub grace: Duration,
    /// The time of the API server before it was asked for anything else.
    pub now: Timestamp,
    /// Whether to switch networks.
    pub switch: bool,
}

/// The input of a step.
#[derive(Clone, Copy)]
struct PlanInput<'a> {
    data: &'a SourceData,
    snapshot: &'a Snapshot,
    options: &'a PlanOptions,
}

/// Plans the next step of every pool that is imported. Adds pools that cannot go on to `refused`.
pub fn plan(data: &SourceData, snapshot: &Snapshot, options: &PlanOptions) -> (Vec<Step>, Vec<Refusal>) {
    let input = PlanInput {
        data,
        snapshot,
        options,
    };
    let mut refused = Vec::new();
    let mut steps = Vec::new();
    let imported = |keys: &[String]| {
        let all = snapshot
            .pools
            .iter()
            .filter_map(|pool| Some((&pool.object, ImportRecord::of(&pool.object)?)));
        all.into_iter()
            .find(|(_, record)| record.source == options.source && record.from == keys)
    };
    for group in &data.groups {
        let step = match imported(&group.keys) {
            Some((pool, record)) => update(&input, pool, &record, group.networks.clone()),
            None => create(&input, group, &steps),
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
        let Some(record) = ImportRecord::of(&pool.object).filter(|record| record.source == options.source)
        else {
            continue;
        };
        let is_pending = data.groups.iter().any(|group| group.keys == record.from);
        if is_pending {
            continue;
        }
        // A refused network may use these ranges and still allocate from them.
        if !data.refused.is_empty() {
            refused.push(Refusal::new(
                format!("pool {}", pool.name()),
                "it waits until the problems above are solved",
            ));
            continue;
        }
        match update(&input, &pool.object, &record, Vec::new()) {
            Ok(step) => steps.push(step),
            Err(why) => refused.push(Refusal::new(format!("pool {}", pool.name()), why)),
        }
    }
    (steps, refused)
}

/// The first step of a pool that does not exist yet. `steps` are those of this run so far.
fn create(input: &PlanInput<'_>, group: &Group, steps: &[Step]) -> Result<Step, String> {
    let PlanInput {
        data,
        snapshot,
        options,
    } = *input;
    let name = new_name(input, group, steps)?;
    let mut spec = spec(group);
    let overlap = overlapping_network(data, &group.keys, &group.named_ranges())
        .or_else(|| overlapping_pool(&name, &spec, snapshot));
    if let Some(why) = overlap {
        return Err(why);
    }
    size(&name, &mut spec, group.block_size, snapshot.nodes.len())?;
    let record = ImportRecord {
        source: options.source.to_owned(),
        from: group.keys.clone(),
        in_use: Vec::new(),
        from_files: Vec::new(),
        node_selector: group.nodes.clone(),
        networks: group.names().into_iter().map(str::to_owned).collect(),
        missing_since: None,
    };
    spec.node_selector = Some(closed());
    let Allocations { in_use, late, ended } = classify(
        &known_allocations(data, &record, &spec),
        &snapshot.pods,
        &subnets(&spec.ranges),
        None,
    );
    let step = Step {
        pool: name,
        keys: group.keys.clone(),
        action: Action::Create,
        spec,
        record,
        object: None,
        in_use,
        late,
        ended,
        networks: group.networks.clone(),
        switch: options.switch && are_own(&group.networks),
        overlap: None,
        wait: None,
        unready: None,
        rounded: 0,
    };
    exclude_in_use(step, data.files.as_deref())
}

/// The next step of a pool whose import has begun. `left` are networks that still name the old plugin.
fn update(
    input: &PlanInput<'_>,
    pool: &IpPool,
    record: &ImportRecord,
    left: Vec<Network>,
) -> Result<Step, String> {
    let (data, snapshot, options) = (input.data, input.snapshot, input.options);
    require_readable(data, record)?;
    let was_closed = is_closed(pool);
    let name = pool.name_any();
    let overlap = overlapping_network(data, &record.from, &named_ranges(&name, &pool.spec));
    let other = || overlapping_pool(&name, &pool.spec, snapshot);
    if was_closed && let Some(why) = overlap.clone().or_else(other) {
        return Err(why);
    }
    let mut spec = pool.spec.clone();
    record
        .in_use
        .iter()
        .for_each(|entry| include_again(&mut spec.ranges, entry));
    let known = record.known();
    let Allocations { in_use, late, ended } = classify(
        &known_allocations(data, record, &spec),
        &snapshot.pods,
        &subnets(&spec.ranges),
        (!was_closed).then_some(&known),
    );
    let unready = unready(pool);
    let mut after = record.clone();
    after.missing_since = None;
    after
        .networks
        .extend(left.iter().map(|network| network.name.clone()));
    let mut wait = None;
    if was_closed && left.is_empty() {
        let (seconds, missing_since) = wait_for_adds(input, &name, record);
        wait = seconds;
        if wait.is_none() && unready.is_none() {
            spec.node_selector.clone_from(&record.node_selector);
        } else {
            after.missing_since = missing_since;
        }
    }
    let step = Step {
        pool: name,
        keys: record.from.clone(),
        action: Action::Write,
        spec,
        record: after,
        object: Some(pool.clone()),
        in_use,
        late,
        ended,
        switch: options.switch && !left.is_empty() && are_own(&left),
        networks: left,
        overlap,
        wait,
        unready,
        rounded: 0,
    };
    let mut step = exclude_in_use(step, data.files.as_deref())?;
    if step.spec == pool.spec && step.record == *record {
        step.action = Action::Keep;
    }
    Ok(step)
}

/// An allocation that cannot be read may have any address of the range.
fn require_readable(data: &SourceData, record: &ImportRecord) -> Result<(), String> {
    let why = record.from.iter().find_map(|key| data.damaged.get(key));
    why.map_or(Ok(()), |why| Err(why.clone()))
}

fn named_ranges<'a>(pool: &str, spec: &'a IpPoolSpec) -> NamedRanges<'a> {
    NamedRanges {
        name: format!("pool {pool}"),
        space: &spec.address_space,
        ranges: &spec.ranges,
    }
}

/// Why a pool of `ranges` cannot be open beside the networks that name the old plugin, which allocates from the ranges of
/// each of them; `None` if they have other addresses. `keys`: the networks of the pool itself.
fn overlapping_network(data: &SourceData, keys: &[String], ranges: &NamedRanges<'_>) -> Option<String> {
    let mut others = data.groups.iter().filter(|group| group.keys != keys);
    others.find_map(|group| ranges.conflict(&group.named_ranges()))
}

/// Why there cannot be a pool `name` of `spec` beside the other pools; `None` if no address is in two pools.
fn overlapping_pool(name: &str, spec: &IpPoolSpec, snapshot: &Snapshot) -> Option<String> {
    let mut others = snapshot.pools.iter().filter(|pool| pool.name() != name);
    others.find_map(|pool| named_ranges(name, spec).conflict(&named_ranges(pool.name(), &pool.object.spec)))
}

/// For how many seconds the pool must stay closed for ADDs of the old plugin, and since when a network of the import is missing.
fn wait_for_adds(input: &PlanInput<'_>, pool: &str, record: &ImportRecord) -> (Option<u64>, Option<Time>) {
    let PlanOptions { grace, now, .. } = *input.options;
    let own = input.data.networks.iter();
    let own: Vec<&Network> = own
        .filter(|network| pools_of(&network.ipam).iter().any(|name| name == pool))
        .collect();
    let is_there = |name: &String| own.iter().any(|network| network.name == *name);
    let switched = own.iter().filter_map(|network| network.changed).max();
    let missing = switched.is_none() || !record.networks.iter().all(is_there);
    let since = missing.then(|| record.missing_since.as_ref().map_or(now, |since| since.0));
    let wait = switched
        .max(since)
        .and_then(|last| remaining_grace(grace, now, last));
    (wait, since.map(Time))
}

/// For how many seconds an ADD that began before the time `switched` may still be running.
fn remaining_grace(grace: Duration, now: Timestamp, switched: Timestamp) -> Option<u64> {
    let passed = now.duration_since(switched);
    let passed = u64::try_from(passed.as_secs()).unwrap_or(0);
    grace.as_secs().checked_sub(passed).filter(|left| *left > 0)
}

/// Removes one exclusion `entry`. The source may exclude the same addresses, and that exclusion stays.
fn include_again(ranges: &mut [Range], entry: &str) {
    let place = ranges.iter_mut().find_map(|range| {
        let at = range.exclude.iter().rposition(|one| one == entry)?;
        Some((range, at))
    });
    if let Some((range, at)) = place {
        range.exclude.remove(at);
    }
}

/// Excludes the addresses in use from the ranges.
fn exclude_in_use(mut step: Step, files: Option<&[PathBuf]>) -> Result<Step, String> {
    step.record.in_use.clear();
    let is_from_pod = |one: &&SourceAllocation| one.reported_by.starts_with(NETWORK_STATUS);
    step.record.from_files = match files {
        Some(_) => step
            .in_use
            .iter()
            .filter(|one| !is_from_pod(one))
            .cloned()
            .collect(),
        None => Vec::new(),
    };
    for range in &mut step.spec.ranges {
        let Some(subnet) = range.subnet.parse::<IpNetwork>().ok() else {
            continue;
        };
        let family = Family::of(subnet.ip());
        let in_use: IntervalSet = step
            .in_use
            .iter()
            .filter(|one| subnet.contains(one.address))
            .map(|one| single(one.address))
            .collect();
        let exclusions = range.exclude.len();
        if exclusions > EXCLUSIONS {
            return Err(format!(
                "range {} has {exclusions} exclusions, and a pool has at most {EXCLUSIONS}; merge some exclusions",
                range.subnet
            ));
        }
        if in_use.is_empty() {
            continue;
        }
        let room = EXCLUSIONS - exclusions;
        if room == 0 {
            return Err(format!(
                "range {} already has {EXCLUSIONS} exclusions, the maximum, so addresses in use cannot be excluded; merge some exclusions",
                range.subnet
            ));
        }
        for interval in merged(&in_use, room) {
            step.rounded += interval.count();
            step.record.in_use.push(format_interval(family, interval));
            range.exclude.push(format_interval(family, interval));
        }
        step.rounded -= in_use.count();
    }
    Ok(step)
}

/// The allocations of the old plugin in the ranges of a pool, and the reservations in its address space. An allocation
/// from a file given in an earlier run stays valid until a run gets this file again, without the allocation. An allocation
/// that names a pod stays then too, and ends with its pod ([`classify`]).
fn known_allocations(data: &SourceData, record: &ImportRecord, spec: &IpPoolSpec) -> Vec<SourceAllocation> {
    let of_ranges = record.from.iter().filter_map(|key| data.allocations.get(key));
    let reserved = data.reserved.get(&spec.address_space);
    let mut all: Vec<SourceAllocation> = of_ranges.chain(reserved).flatten().cloned().collect();
    let is_read_again = |one: &SourceAllocation, files: &[PathBuf]| {
        let origin = Path::new(&one.reported_by);
        files.iter().any(|file| origin.starts_with(file))
    };
    let earlier = record.from_files.iter().filter(|one| {
        let files = data.files.as_deref();
        files.is_some_and(|files| one.pod.is_some() || !is_read_again(one, files))
    });
    for one in earlier {
        if all.iter().all(|other| other.address != one.address) {
            all.push(one.clone());
        }
    }
    all
}

/// A name for the pool of `group` that no pool has, and none of `steps`.
fn new_name(input: &PlanInput<'_>, group: &Group, steps: &[Step]) -> Result<String, String> {
    let snapshot = input.snapshot;
    let is_of_import = |name: &str| {
        let imported = |pool: &Pool| ImportRecord::of(&pool.object).is_some();
        steps.iter().any(|step| step.pool == name) || snapshot.pool(name).is_some_and(imported)
    };
    let own = name_of_network(group).filter(|name| !is_of_import(name));
    let name = own.unwrap_or_else(|| name_of_ranges(group, input.options.source));
    if is_of_import(&name) {
        return Err(format!(
            "an import has another pool {name}; rename network {}",
            group.names().join(" and ")
        ));
    }
    if snapshot.pool(&name).is_some() {
        return Err(format!(
            "a pool {name} exists and was not imported; rename the pool or the network"
        ));
    }
    Ok(name)
}

/// The name of the network if it is the only one. Networks of several namespaces may have one name.
fn name_of_network(group: &Group) -> Option<String> {
    match group.networks.as_slice() {
        [one] => Some(name(one.plain_name())),
        _ => None,
    }
}

/// A name made from the names of the ranges.
fn name_of_ranges(group: &Group, source: &str) -> String {
    name(&format!("{source}-{}", group.keys.join("-")))
}

/// `plain` without what the name of a pool cannot have.
fn name(plain: &str) -> String {
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
        address_space: group.space().to_owned(),
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
fn size(name: &str, spec: &mut IpPoolSpec, per_node: Option<u64>, nodes: usize) -> Result<(), String> {
    spec.block_size = BlockSize { v4: 1, v6: 1 };
    let pool = IpPool::new(name, spec.clone());
    let accepted = AcceptedPool::new(&pool, spec, 0).map_err(|e| e.msg)?;
    spec.block_size = BlockSize::default();
    let nodes = u128::try_from(nodes.max(1)).unwrap_or(1);
    for family in accepted.ranges.families() {
        let usable = accepted.ranges.usable(family).count();
        let each = usable / (2 * nodes);
        if each < 4 && per_node.is_none() {
            spec.allocation = Mode::PerAddress;
        }
        let largest = per_node.map_or(if family == Family::V4 { 64 } else { 1024 }, |per_node| {
            u128::from(per_node.next_power_of_two())
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
pub fn annotation(record: &ImportRecord) -> (String, String) {
    (KEY.to_owned(), serde_json::to_string(record).unwrap_or_default())
}
