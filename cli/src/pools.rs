// SPDX-License-Identifier: Apache-2.0
//! `rdmanet pools` and `rdmanet blocks`.

use crate::cluster::snapshot::{Block, Pool, Snapshot, condition_of, is_unread};
use crate::output::{CommandError, Outcome, Output};
use crate::table::{Table, wrapped};
use api::{IpPoolSpec, Range, condition};
use ipam::range::default_gateway;
use ipnetwork::IpNetwork;
use serde_json::{Value, json};
use std::fmt::Write;
use std::net::IpAddr;

/// Shows all pools, one per line, or one pool with all details.
///
/// # Errors
/// There is no pool of that name.
pub fn pools(snapshot: &Snapshot, name: Option<&str>) -> Result<Output, CommandError> {
    if let Some(name) = name {
        return Ok(details(snapshot, find(snapshot, name)?));
    }
    let mut table = Table::new(&[
        "POOL",
        "SPACE",
        "RANGES",
        "SIZE",
        "USED",
        "FREE",
        "BLOCKS",
        "READY",
        "CONDITIONS",
    ]);
    for pool in &snapshot.pools {
        let ranges: Vec<&str> = pool
            .object
            .spec
            .ranges
            .iter()
            .map(|range| range.subnet.as_str())
            .collect();
        let counters = pool
            .object
            .status
            .as_ref()
            .and_then(|status| status.counters.as_ref());
        let number = |of: fn(&api::Counters) -> i64| counters.map(|c| of(c).to_string()).unwrap_or_default();
        let (ready, reason) = readiness(pool);
        table.row([
            pool.name().to_owned(),
            pool.space().to_owned(),
            ranges.join(","),
            number(|c| c.size),
            number(|c| c.used),
            number(|c| c.free),
            number(|c| c.blocks),
            if ready == "True" {
                "yes".to_owned()
            } else {
                format!("no: {reason}")
            },
            active_conditions(pool).join(", "),
        ]);
    }
    let text = if table.is_empty() {
        "there is no pool; conf/pools has examples: kubectl apply -f conf/pools/rail0.yaml\n".to_owned()
    } else {
        table.render()
    };
    Ok(Output {
        text,
        json: json!({ "version": 1, "pools": snapshot.pools.iter().map(json_pool).collect::<Vec<_>>() }),
        outcome: Outcome::Fine,
    })
}

/// The pool of this name.
///
/// # Errors
/// There is no such pool. The sentence lists the existing ones.
pub fn find<'s>(snapshot: &'s Snapshot, name: &str) -> Result<&'s Pool, CommandError> {
    snapshot.pool(name).ok_or_else(|| {
        let names: Vec<&str> = snapshot.pools.iter().map(Pool::name).collect();
        let others = if names.is_empty() {
            "the cluster has no pool".to_owned()
        } else {
            format!("its pools are {}", names.join(", "))
        };
        CommandError(format!("the cluster has no pool {name}; {others}"))
    })
}

/// The status of the condition `Ready` and its reason. A condition about an earlier spec counts as unknown, as for
/// kstatus.
fn readiness(pool: &Pool) -> (&str, &str) {
    match condition_of(&pool.object, condition::READY) {
        Some(ready) if !is_unread(&pool.object) => (&ready.status, &ready.reason),
        Some(_) => ("Unknown", "the controller has not read the current spec yet"),
        None => ("Unknown", "the controller has not read the pool yet"),
    }
}

/// The conditions that are in force and need attention. `Stalled` is true only beside `Degraded`, with its reason.
fn active_conditions(pool: &Pool) -> Vec<String> {
    let conditions = pool.object.status.iter().flat_map(|status| &status.conditions);
    let shown = conditions.filter(|one| {
        let shown_elsewhere = [condition::READY, condition::SERVING, condition::STALLED];
        !shown_elsewhere.contains(&one.type_.as_str()) && one.status == "True"
    });
    shown.map(|one| one.type_.clone()).collect()
}

fn details(snapshot: &Snapshot, pool: &Pool) -> Output {
    let mut text = format!("pool {}, address space {}\n", pool.name(), pool.space());
    text.push_str(&spec_text(pool));
    text.push_str(&status_text(pool));
    let blocks: Vec<&Block> = snapshot.blocks_of(pool.name()).collect();
    if !blocks.is_empty() {
        let _ = write!(text, "\n{}", table(&blocks).render());
    }
    let mut json = json_pool(pool);
    json["spec"] = json!(pool.object.spec);
    json["blocks"] = blocks.iter().map(|block| json_block(block)).collect();
    Output {
        text,
        json,
        outcome: Outcome::Fine,
    }
}

/// The gateway of the pods of `range`, which has this subnet. `None` if they have none.
pub fn gateway(range: &Range, subnet: IpNetwork) -> Option<IpAddr> {
    match range.gateway.as_deref() {
        Some("none") => None,
        Some(text) => text.parse().ok(),
        None => default_gateway(subnet),
    }
}

/// The spec of a pool, as text.
fn spec_text(pool: &Pool) -> String {
    let (mut text, spec) = (String::new(), &pool.object.spec);
    for range in &spec.ranges {
        let limits = match (&range.start, &range.end) {
            (None, None) => String::new(),
            (start, end) => format!(
                " from {} to {}",
                start.as_deref().unwrap_or("its first"),
                end.as_deref().unwrap_or("its last")
            ),
        };
        let gateway = range
            .subnet
            .parse()
            .ok()
            .and_then(|subnet| gateway(range, subnet));
        let gateway = gateway.map_or_else(|| "no gateway".to_owned(), |ip| format!("gateway {ip}"));
        let _ = writeln!(text, "  range     {}{limits}, {gateway}", range.subnet);
        if !range.exclude.is_empty() {
            let _ = writeln!(
                text,
                "  excluded  {}",
                wrapped(&range.exclude.join(", "), 12, 110)
            );
        }
    }
    if !spec.reserved.is_empty() {
        let _ = writeln!(
            text,
            "  reserved  {}",
            wrapped(&spec.reserved.join(", "), 12, 110)
        );
    }
    let rest = rest_of(spec).join(", ");
    let _ = writeln!(text, "  spec      {}", wrapped(&rest, 12, 110));
    text
}

/// The keys of a spec that have no line of their own, with their values.
fn rest_of(spec: &IpPoolSpec) -> Vec<String> {
    // A spec is always an object in JSON.
    let all = serde_json::to_value(spec).unwrap_or_default();
    let all = all.as_object().into_iter().flatten();
    let rest = all.filter(|(key, _)| !["addressSpace", "ranges", "reserved"].contains(&key.as_str()));
    let shown = rest.map(|(key, value)| match value.as_str() {
        Some(word) => format!("{key}: {word}"),
        None => format!("{key}: {value}"),
    });
    shown.collect()
}

/// The status of a pool, as text.
fn status_text(pool: &Pool) -> String {
    let mut text = String::new();
    let status = pool.object.status.as_ref();
    if let Some(counters) = status.and_then(|status| status.counters.as_ref()) {
        let oldest = counters
            .oldest
            .as_ref()
            .map(|time| format!(", the oldest since {}", time.0));
        let _ = writeln!(
            text,
            "  counts    {} addresses, {} used, {} free ({} in no block), {} blocks{}",
            counters.size,
            counters.used,
            counters.free,
            counters.unclaimed,
            counters.blocks,
            oldest.unwrap_or_default()
        );
    }
    if let Err(why) = &pool.accepted {
        let _ = writeln!(text, "  invalid   {}", wrapped(why, 12, 110));
    }
    for condition in status.iter().flat_map(|status| &status.conditions) {
        let line = format!(
            "{} ({}): {}",
            condition.status, condition.reason, condition.message
        );
        let _ = writeln!(text, "  {:9} {}", condition.type_, wrapped(&line, 12, 110));
    }
    text
}

fn json_pool(pool: &Pool) -> Value {
    json!({
        "name": pool.name(),
        "addressSpace": pool.space(),
        "ranges": pool.object.spec.ranges,
        "reserved": pool.object.spec.reserved,
        "counters": pool.object.status.as_ref().and_then(|status| status.counters.as_ref()),
        "ready": readiness(pool).0 == "True",
        "conditions": pool.object.status.as_ref().map(|status| &status.conditions),
        "invalid": pool.accepted.as_ref().err(),
    })
}

/// Shows all blocks, or those of a pool or of a node.
///
/// # Errors
/// There is no pool of that name.
pub fn blocks(snapshot: &Snapshot, pool: Option<&str>, node: Option<&str>) -> Result<Output, CommandError> {
    if let Some(name) = pool {
        find(snapshot, name)?;
    }
    let wanted = |block: &&Block| {
        let spec = &block.object.spec;
        pool.is_none_or(|pool| spec.pool == pool) && node.is_none_or(|node| spec.owner.node == node)
    };
    let blocks: Vec<&Block> = snapshot.blocks().iter().filter(wanted).collect();
    let text = if blocks.is_empty() {
        "no block is claimed\n".to_owned()
    } else {
        table(&blocks).render()
    };
    Ok(Output {
        text,
        json: json!({ "version": 1, "blocks": blocks.iter().map(|block| json_block(block)).collect::<Vec<_>>() }),
        outcome: Outcome::Fine,
    })
}

fn table(blocks: &[&Block]) -> Table {
    let mut table = Table::new(&[
        "BLOCK", "POOL", "NODE", "STATE", "USED", "FREE", "OLDEST", "REPORTED", "NAME",
    ]);
    for block in blocks {
        let (spec, status) = (&block.object.spec, block.object.status.as_ref());
        let time = |time: Option<&k8s_openapi::apimachinery::pkg::apis::meta::v1::Time>| {
            time.map(|time| time.0.to_string()).unwrap_or_default()
        };
        table.row([
            block.cidr.to_string(),
            spec.pool.clone(),
            spec.owner.node.clone(),
            format!("{:?}", spec.state),
            status.map(|status| status.used.to_string()).unwrap_or_default(),
            status.map(|status| status.free.to_string()).unwrap_or_default(),
            time(status.and_then(|status| status.oldest.as_ref())),
            time(status.and_then(|status| status.reported_at.as_ref())),
            block.name().to_owned(),
        ]);
    }
    table
}

fn json_block(block: &Block) -> Value {
    json!({ "name": block.name(), "addressSpace": block.space(), "spec": block.object.spec, "status": block.object.status })
}

#[cfg(test)]
mod tests;
