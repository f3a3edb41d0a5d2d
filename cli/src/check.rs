// SPDX-License-Identifier: Apache-2.0
//! `rdmanet check`: finds contradictions in what the cluster reports about its addresses.
//!
//! Invariant: every reported problem was seen twice, because lists that are read one after the other contradict each
//! other while pods come and go.
//!
//! Invariant: this command changes nothing.

use crate::allocations::{Allocation, Evidence, allocations};
use crate::cluster::pods::PodFacts;
use crate::cluster::snapshot::{Block, Pool, Snapshot, bound_pod, is_unread, work};
use crate::output::{CommandError, Finding, Outcome, Output, Severity};
use api::convert::in_use;
use api::links::reason;
use api::{AddressState, BlockState, condition};
use ipam::range::{Family, whole};
use kube::Client;
use serde_json::json;
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::net::IpAddr;
use std::time::Duration;

/// The key that identifies the same problem in both reads.
fn key(problem: &Finding) -> (&str, &str) {
    (problem.kind, &problem.subject)
}

/// Reads the cluster twice, `pause` apart, and reports the problems that both reads show.
///
/// # Errors
/// As [`crate::cluster::explain`].
pub async fn run(client: &Client, pause: Duration) -> Result<Output, CommandError> {
    let first = Snapshot::read(client).await?;
    let mut found = problems(&first);
    if !found.is_empty() {
        tokio::time::sleep(pause).await;
        let second = problems(&Snapshot::read(client).await?);
        let again: HashSet<(&str, &str)> = second.iter().map(key).collect();
        found.retain(|one| again.contains(&key(one)));
    }
    Ok(answer(&first, &found))
}

fn answer(snapshot: &Snapshot, found: &[Finding]) -> Output {
    let uses_networks =
        |pod: &&PodFacts| pod.is_running && (pod.networks.is_some() || !pod.interfaces.is_empty());
    let pods = snapshot.pods.iter().filter(uses_networks).count();
    let counts = format!(
        "{} pools, {} blocks, {} address objects, {} nodes, {pods} pods with networks",
        snapshot.pools.len(),
        snapshot.blocks().len(),
        snapshot.addresses.len(),
        snapshot.nodes.len()
    );
    let wrong = found
        .iter()
        .filter(|problem| problem.level != Severity::Info)
        .count();
    let mut text = match wrong {
        0 => format!("no problem found: {counts}\n"),
        n => format!(
            "{n} {} found: {counts}\n",
            if n == 1 { "problem" } else { "problems" }
        ),
    };
    for problem in found {
        text.push_str(&problem.describe());
    }
    Output {
        text,
        json: json!({
            "version": 1,
            "read": {
                "pools": snapshot.pools.len(), "blocks": snapshot.blocks().len(), "addresses": snapshot.addresses.len(),
                "nodes": snapshot.nodes.len(), "pods": pods,
            },
            "problems": found,
        }),
        outcome: Outcome::of(wrong > 0),
    }
}

/// All problems, the worst first.
pub fn problems(snapshot: &Snapshot) -> Vec<Finding> {
    let all = allocations(snapshot, &[], None);
    let mut found = duplicates(snapshot, &all);
    found.extend(
        all.iter()
            .filter_map(|allocation| misplaced(snapshot, allocation)),
    );
    found.extend(overlaps(snapshot));
    found.extend(
        snapshot
            .blocks()
            .iter()
            .filter_map(|block| ownerless(snapshot, block)),
    );
    found.extend(leaks(snapshot));
    found.extend(without_agent(snapshot));
    found.extend(pools(snapshot));
    found.extend(links(snapshot));
    found.sort();
    found
}

/// `kind` is `duplicate`, `overlap`, `foreign-block`, `unclaimed`, `outside`, `excluded`, `leak`, `orphan`, `held`,
/// `homeless`, `deserted`, `pool` or `links`.
fn problem(
    level: Severity,
    kind: &'static str,
    subject: impl Into<String>,
    text: String,
    remedy: impl Into<String>,
) -> Finding {
    Finding {
        kind,
        ..Finding::new(level, subject, text, remedy)
    }
}

fn describe(allocation: &Allocation) -> String {
    let pod = allocation
        .pod
        .as_ref()
        .map_or_else(|| "an unknown pod".to_owned(), |pod| format!("pod {pod}"));
    format!(
        "{pod} ({}) on node {}, reported by {}",
        allocation.interface.as_deref().unwrap_or("an interface"),
        allocation.node.as_deref().unwrap_or("none"),
        allocation.reporters().join(" and ")
    )
}

/// Addresses with two allocations in one address space.
fn duplicates(snapshot: &Snapshot, all: &[Allocation]) -> Vec<Finding> {
    let mut by: BTreeMap<(String, IpAddr), Vec<&Allocation>> = BTreeMap::new();
    for allocation in all {
        let pool = allocation.pool.as_deref().and_then(|name| snapshot.pool(name));
        let space = pool.map(|pool| pool.space().to_owned()).unwrap_or_default();
        by.entry((space, allocation.address))
            .or_default()
            .push(allocation);
    }
    let twice = by.into_iter().filter(|(_, allocations)| allocations.len() > 1);
    let report = |((space, ip), allocations): ((String, IpAddr), Vec<&Allocation>)| {
        let descriptions: Vec<String> = allocations
            .iter()
            .map(|allocation| describe(allocation))
            .collect();
        problem(
            Severity::Fail,
            "duplicate",
            ip.to_string(),
            format!(
                "is allocated {} times in address space {space}: {}",
                descriptions.len(),
                descriptions.join("; ")
            ),
            "delete the younger pod; then find out where each address was allocated (rdmanet blocks; on each node rdmanet addresses)",
        )
    };
    twice.map(report).collect()
}

/// An address of a pod that its node has no right to allocate, according to the objects of the cluster.
fn misplaced(snapshot: &Snapshot, allocation: &Allocation) -> Option<Finding> {
    let ip = allocation.address;
    // An address object itself names the allocation.
    if allocation.reported_by != [Evidence::NetworkStatus] {
        return None;
    }
    let pool = allocation.pool.as_deref().and_then(|name| snapshot.pool(name));
    let Some(pool) = pool else {
        return Some(problem(
            Severity::Warn,
            "outside",
            ip.to_string(),
            format!(
                "{} has it on network {}, whose pools do not contain it",
                describe(allocation),
                allocation.network.as_deref().unwrap_or_default()
            ),
            "if the pool was made smaller, this ends with the pod; if not, another plugin allocated it",
        ));
    };
    misplaced_in(snapshot, pool, allocation)
}

fn misplaced_in(snapshot: &Snapshot, pool: &Pool, allocation: &Allocation) -> Option<Finding> {
    let ip = allocation.address;
    let block = snapshot
        .blocks_with(ip)
        .find(|block| block.space() == pool.space());
    // Of two pools over the same addresses, the pool of the block decides what a node allocates.
    let decides = block.and_then(|block| snapshot.pool(&block.object.spec.pool));
    let decides = decides.unwrap_or(pool);
    let is_excluded = match &decides.accepted {
        Ok(accepted) => accepted.ranges.range_of(ip).is_none(),
        // No node claims a block for a pool without a valid spec.
        Err(_) => block.is_none(),
    };
    if is_excluded {
        return Some(excluded(decides, allocation));
    }
    match block {
        Some(block) if Some(&block.object.spec.owner.node) == allocation.node.as_ref() => None,
        Some(block) if block.object.spec.state == BlockState::Shared => None,
        Some(block) => Some(problem(
            Severity::Fail,
            "foreign-block",
            ip.to_string(),
            format!(
                "{}; the address is in block {} of node {}, which may allocate it to another pod",
                describe(allocation),
                block.cidr,
                block.object.spec.owner.node
            ),
            "delete the pod; if the problem returns, read the logs of the agents of both nodes",
        )),
        None => Some(problem(
            Severity::Fail,
            "unclaimed",
            ip.to_string(),
            format!(
                "{}; the address is in pool {}, and no block or object allocates it",
                describe(allocation),
                pool.name()
            ),
            "find out which plugin allocated it; until then exclude the address in the pool, so that no node allocates it",
        )),
    }
}

/// An address that the pool does not allocate. During an import from another plugin, running pods have such addresses,
/// also in blocks that nodes claim.
fn excluded(pool: &Pool, allocation: &Allocation) -> Finding {
    problem(
        Severity::Info,
        "excluded",
        allocation.address.to_string(),
        format!(
            "{}; pool {} excludes the address now, or its ranges no longer contain it: the pod keeps it, and a node that has read this spec does not allocate it again",
            describe(allocation),
            pool.name()
        ),
        "nothing",
    )
}

fn overlaps(snapshot: &Snapshot) -> Vec<Finding> {
    let mut found = Vec::new();
    let blocks = snapshot.blocks();
    for (i, one) in blocks.iter().enumerate() {
        // The blocks are sorted by address.
        let family = Family::of(one.cidr.ip());
        let reach = whole(one.cidr).last;
        let near = blocks[i + 1..]
            .iter()
            .inspect(|_| work(1))
            .take_while(|other| Family::of(other.cidr.ip()) == family && whole(other.cidr).first <= reach);
        for other in near.filter(|other| other.space() == one.space()) {
            found.push(problem(
                Severity::Fail,
                "overlap",
                one.cidr.to_string(),
                format!("of node {} overlaps block {} of node {}", one.object.spec.owner.node, other.cidr, other.object.spec.owner.node),
                "two pools with different block sizes have the same subnet (kubectl describe addressspace); drain one of the two nodes and remove its block",
            ));
        }
    }
    found
}

/// A block whose pool does not exist.
fn homeless(block: &Block) -> Finding {
    let spec = &block.object.spec;
    let remedy = match spec.state {
        BlockState::Shared => {
            "the controller deletes it a quarantine after its last address; if it stays, read the log of the controller"
        }
        _ => {
            "its agent deletes it when no pod has an address of it; if it stays, read the log of the agent of its node"
        }
    };
    problem(
        Severity::Warn,
        "homeless",
        block.name(),
        format!("belongs to pool {}, which does not exist", spec.pool),
        remedy,
    )
}

/// An orphaned block whose node was registered again. As long as a node of that name exists, only its agent may decide about the
/// block.
fn of_namesake(snapshot: &Snapshot, block: &Block) -> Finding {
    let node = &block.object.spec.owner.node;
    let text = format!("belonged to an earlier registration of node {node}");
    if snapshot.has_ready_agent(node) {
        let remedy = "nothing: the node's agent takes the block over or frees it; if the problem stays, read the agent's log";
        return problem(Severity::Info, "orphan", block.name(), text, remedy);
    }
    problem(
        Severity::Warn,
        "orphan",
        block.name(),
        format!("{text}, and no agent is ready there: the block stays"),
        format!(
            "let the agent run on {node}; or, if the machine is off: kubectl delete node {node}, and after the quarantine rdmanet release --node {node}"
        ),
    )
}

/// Blocks whose node or pool is gone.
fn ownerless(snapshot: &Snapshot, block: &Block) -> Option<Finding> {
    let spec = &block.object.spec;
    let name = block.name();
    if snapshot.pool(&spec.pool).is_none() {
        return Some(homeless(block));
    }
    let registered = snapshot.nodes.get(&spec.owner.node);
    match (spec.state, registered) {
        (BlockState::Shared, _) => None,
        (BlockState::Orphaned, Some(_)) => Some(of_namesake(snapshot, block)),
        (BlockState::Orphaned, _) if in_use(&block.object) => Some(problem(
            Severity::Warn,
            "held",
            name,
            format!(
                "belonged to node {}, which is gone, and had addresses in use {}: they are not allocated again",
                spec.owner.node,
                if block.object.status.is_some() {
                    "in its last report"
                } else {
                    "when that node claimed it"
                }
            ),
            "if the machine is off: rdmanet release --node NAME",
        )),
        (BlockState::Orphaned, _) => Some(problem(
            Severity::Info,
            "orphan",
            name,
            format!(
                "belonged to node {}, which is gone{}; it is freed after the quarantine, when no pod is bound to the node",
                spec.owner.node,
                spec.orphaned
                    .as_ref()
                    .map(|orphaned| format!(" (seen by {} at {})", orphaned.by, orphaned.since.0))
                    .unwrap_or_default()
            ),
            "nothing; if pods of that node still exist, delete them",
        )),
        (_, None) => Some(problem(
            Severity::Warn,
            "orphan",
            name,
            format!(
                "belongs to node {}, which does not exist, and the block is not marked as orphaned yet",
                spec.owner.node
            ),
            "wait a minute; if the problem stays, no controller runs: kubectl -n rdmanet-system get pods,leases",
        )),
        (_, Some(uid)) if *uid != spec.owner.node_uid => Some(problem(
            Severity::Warn,
            "orphan",
            name,
            format!("belongs to an earlier registration of node {}", spec.owner.node),
            "the node's agent takes the block over if it has the block's file; if the problem stays, read the agent's log",
        )),
        _ => None,
    }
}

/// Address objects whose pod is gone.
fn leaks(snapshot: &Snapshot) -> Vec<Finding> {
    let bound = snapshot
        .addresses
        .iter()
        .filter(|(_, object)| object.spec.state == AddressState::Bound);
    let pods: HashMap<&str, &PodFacts> = snapshot.pods.iter().map(|pod| (pod.name.as_str(), pod)).collect();
    let leaked = bound.filter_map(|(ip, object)| {
        let pod = object.spec.pod.as_ref()?;
        let name = bound_pod(object)?;
        let why = match (pods.get(name.as_str()), &pod.uid) {
            (None, _) => "does not exist".to_owned(),
            (Some(found), Some(uid)) if !found.has_uid(uid) => "is now another pod with the same name".to_owned(),
            (Some(found), _) if !found.is_running => "has ended".to_owned(),
            _ => return None,
        };
        let node = &object.spec.node;
        let is_served = snapshot.nodes.get(&node.node) == Some(&node.node_uid) && snapshot.has_ready_agent(&node.node);
        let severity = if is_served { Severity::Info } else { Severity::Warn };
        let cooldown = snapshot.pool(&object.spec.pool).map_or(0, |pool| pool.spec_in_force().cooldown_seconds);
        Some(problem(
            severity,
            "leak",
            ip.to_string(),
            format!("is bound to pod {name} on node {}, which {why}", node.node),
            format!("the agent of that node frees the address within minutes, or after the cooldown of the pool ({cooldown} s); if the node is gone for good: rdmanet release {ip}"),
        ))
    });
    leaked.collect()
}

/// Blocks of nodes on which no agent is ready, for instance after the `nodeSelector` of the `DaemonSet` was narrowed, or
/// while its new image cannot start. The plugin of such a node still allocates from these blocks, so only the node's
/// agent can return them.
fn without_agent(snapshot: &Snapshot) -> Vec<Finding> {
    if !snapshot.has_any_agent() {
        return without_any_agent(snapshot).into_iter().collect();
    }
    let mut by_node: BTreeMap<&str, Vec<&Block>> = BTreeMap::new();
    for block in snapshot.blocks() {
        let spec = &block.object.spec;
        let owned = matches!(spec.state, BlockState::Active | BlockState::Draining);
        let node = spec.owner.node.as_str();
        if owned && snapshot.nodes.contains_key(node) && !snapshot.has_agent(node) {
            by_node.entry(node).or_default().push(block);
        }
    }
    let report = |(node, blocks): (&str, Vec<&Block>)| {
        let reports = blocks.iter().filter_map(|block| block.object.status.as_ref());
        let used: i64 = reports.map(|status| status.used).sum();
        problem(
            Severity::Warn,
            "deserted",
            node,
            format!(
                "has {} blocks ({} addresses in use in the last report), and no agent is ready there to return them",
                blocks.len(),
                used
            ),
            "see the agent's pod (kubectl -n rdmanet-system get pods -o wide) and its log; without a pod, let the DaemonSet rdmanet-agent run on the node again (nodeSelector, tolerations); to free its blocks, first exclude the node in spec.nodeSelector of the pools",
        )
    };
    by_node.into_iter().map(report).collect()
}

/// One finding for a cluster whose nodes have blocks and of which no agent is ready.
fn without_any_agent(snapshot: &Snapshot) -> Option<Finding> {
    let owners = snapshot
        .blocks()
        .iter()
        .map(|block| block.object.spec.owner.node.as_str());
    let nodes: BTreeSet<&str> = owners.filter(|node| snapshot.nodes.contains_key(*node)).collect();
    (!nodes.is_empty()).then(|| {
        problem(
            Severity::Warn,
            "deserted",
            "cluster",
            format!(
                "{} nodes have blocks, and no agent of the cluster is ready to claim more, to return them or to collect what a lost DEL leaves",
                nodes.len()
            ),
            "see its pods (kubectl -n rdmanet-system get pods -l app.kubernetes.io/name=rdmanet-agent) and their logs; without pods, let the DaemonSet rdmanet-agent run; a removal deletes the pools first (docs/install.md, Removal)",
        )
    })
}

fn pools(snapshot: &Snapshot) -> Vec<Finding> {
    let mut found = Vec::new();
    for pool in &snapshot.pools {
        let conditions = pool.object.status.iter().flat_map(|status| &status.conditions);
        let serves = conditions
            .clone()
            .any(|one| one.type_ == condition::SERVING && one.status == "True");
        let is_unread = is_unread(&pool.object);
        if is_unread {
            found.push(unread(pool, serves));
        }
        for one in conditions {
            if is_unread && one.type_ == condition::READY {
                continue;
            }
            let level = match (one.type_.as_str(), one.status.as_str()) {
                // Pods get addresses according to an earlier spec.
                (condition::READY, "False") if serves => Severity::Warn,
                (condition::READY, "False") => Severity::Fail,
                (condition::DEGRADED | condition::EXHAUSTED | condition::FALLBACK_MISSING, "True") => {
                    Severity::Warn
                }
                (
                    condition::OVERLAP
                    | condition::OVERLAP_ELSEWHERE
                    | condition::FEW_BLOCKS
                    | condition::SHRINK_PENDING
                    | condition::EXCLUSION_OVER_LIVE,
                    "True",
                ) => Severity::Info,
                // `Stalled` is true only beside `Degraded`, with its reason.
                _ => continue,
            };
            found.push(problem(
                level,
                "pool",
                format!("{} {}", pool.name(), one.type_),
                format!("{}: {}", one.reason, one.message),
                "docs/operate.md has the remedy for each condition",
            ));
        }
    }
    found
}

/// A pool whose current spec no controller has read. `serves`: nodes allocate according to an earlier one.
fn unread(pool: &Pool, serves: bool) -> Finding {
    let level = if serves { Severity::Warn } else { Severity::Fail };
    let generation = pool.object.metadata.generation.unwrap_or_default();
    let effect = if serves {
        "pods get addresses according to an earlier one"
    } else {
        "pods get no address of the pool"
    };
    problem(
        level,
        "pool",
        format!("{} {}", pool.name(), condition::READY),
        format!("no controller has read generation {generation} of its spec: {effect}"),
        "wait a minute; if the problem stays, no controller runs: kubectl -n rdmanet-system get pods,leases",
    )
}

/// Nodes whose pods have lost a link or will lose it with the next failure, and nodes whose condition no agent updates.
fn links(snapshot: &Snapshot) -> impl Iterator<Item = Finding> {
    snapshot.links.iter().filter_map(|(node, condition)| {
        if !snapshot.has_agent(node) {
            return Some(problem(
                Severity::Warn,
                "links",
                node,
                format!(
                    "LinksReady is {} ({}: {}), and no agent is ready on the node to update it",
                    condition.status, condition.reason, condition.message
                ),
                "see the agent's pod (kubectl -n rdmanet-system get pods -o wide) and its log; without a pod, let the DaemonSet rdmanet-agent run on the node again, or remove the condition (docs/install.md, Removal)",
            ));
        }
        let level = match (condition.status.as_str(), condition.reason.as_str()) {
            ("False", _) => Severity::Warn,
            (_, reason::BOND_DEGRADED) => Severity::Info,
            _ => return None,
        };
        Some(problem(
            level,
            "links",
            node,
            condition.message.clone(),
            "docs/operate.md has the remedy for each state of the port; if the port is out of service on purpose: ip link set LINK down",
        ))
    })
}

#[cfg(test)]
mod tests;
