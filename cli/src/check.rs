// SPDX-License-Identifier: Apache-2.0
//! `rdmanet check`: finds contradictions in what the cluster reports about its addresses.
//!
//! Invariant: every reported problem was seen twice, because lists that are read one after the other contradict each
//! other while pods come and go.
//!
//! Invariant: this command changes nothing.

use crate::answer::{Answer, Failure, Outcome};
use crate::cluster::pods::PodFacts;
use crate::cluster::snapshot::{Block, Pool, Snapshot};
use crate::holders::{Holder, Witness, holders};
use crate::table::wrapped;
use api::convert::in_use;
use api::links::reason;
use api::{AddressState, BlockState, condition};
use ipam::range::{Family, bits};
use kube::Client;
use serde::Serialize;
use serde_json::json;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::fmt::Write;
use std::net::IpAddr;
use std::time::Duration;

/// The severity.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Level {
    /// Two pods may have the same address.
    Fail,
    /// Something was left behind, or a pool does not work as it should.
    Warn,
    /// It resolves by itself.
    Info,
}

/// A contradiction or a fault.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct Problem {
    /// The severity.
    pub level: Level,
    /// The kind: `duplicate`, `overlap`, `foreign-block`, `unclaimed`, `outside`, `leak`, `orphan`, `homeless`,
    /// `deserted`, `pool`, `links`.
    pub kind: &'static str,
    /// The subject: an address, a block or a pool.
    pub subject: String,
    /// The description.
    pub text: String,
    /// What to do.
    pub remedy: String,
}

impl Problem {
    /// The key that identifies the same problem in both reads.
    fn about(&self) -> (&str, &str) {
        (self.kind, &self.subject)
    }
}

/// Reads the cluster twice, `pause` apart, and reports the problems that both reads show.
///
/// # Errors
/// As [`crate::cluster::explain`].
pub async fn run(client: &Client, pause: Duration) -> Result<Answer, Failure> {
    let first = Snapshot::read(client).await?;
    let mut found = problems(&first);
    if !found.is_empty() {
        tokio::time::sleep(pause).await;
        let second = problems(&Snapshot::read(client).await?);
        let again: HashSet<(&str, &str)> = second.iter().map(Problem::about).collect();
        found.retain(|one| again.contains(&one.about()));
    }
    Ok(answer(&first, &found))
}

fn answer(snapshot: &Snapshot, found: &[Problem]) -> Answer {
    let with_networks = |pod: &&PodFacts| pod.lives && (pod.asks.is_some() || !pod.interfaces.is_empty());
    let pods = snapshot.pods.iter().filter(with_networks).count();
    let looked = format!(
        "{} pools, {} blocks, {} address objects, {} nodes, {pods} pods with networks",
        snapshot.pools.len(),
        snapshot.blocks().len(),
        snapshot.addresses.len(),
        snapshot.nodes.len()
    );
    let wrong = found
        .iter()
        .filter(|problem| problem.level != Level::Info)
        .count();
    let mut text = match wrong {
        0 => format!("all is well: {looked}\n"),
        n => format!(
            "{n} {}: {looked}\n",
            if n == 1 {
                "thing is wrong"
            } else {
                "things are wrong"
            }
        ),
    };
    for problem in found {
        let level = match problem.level {
            Level::Fail => "FAIL",
            Level::Warn => "WARN",
            Level::Info => "INFO",
        };
        let body = wrapped(
            &format!("{} {}: {}", problem.kind, problem.subject, problem.text),
            6,
            110,
        );
        let _ = writeln!(
            text,
            "{level}  {body}\n      -> {}",
            wrapped(&problem.remedy, 9, 110)
        );
    }
    Answer {
        text,
        json: json!({
            "version": 1,
            "looked": {
                "pools": snapshot.pools.len(), "blocks": snapshot.blocks().len(), "addresses": snapshot.addresses.len(),
                "nodes": snapshot.nodes.len(), "pods": pods,
            },
            "problems": found,
        }),
        outcome: if wrong == 0 { Outcome::Fine } else { Outcome::Found },
    }
}

/// All problems, the worst first.
pub fn problems(snapshot: &Snapshot) -> Vec<Problem> {
    let all = holders(snapshot, &[], None);
    let mut found = duplicates(snapshot, &all);
    found.extend(all.iter().filter_map(|holder| misplaced(snapshot, holder)));
    found.extend(overlaps(snapshot));
    found.extend(
        snapshot
            .blocks()
            .iter()
            .filter_map(|block| ownerless(snapshot, block)),
    );
    found.extend(leaks(snapshot));
    found.extend(deserted(snapshot));
    found.extend(pools(snapshot));
    found.extend(links(snapshot));
    found.sort();
    found
}

fn problem(
    level: Level,
    kind: &'static str,
    subject: impl Into<String>,
    text: String,
    remedy: impl Into<String>,
) -> Problem {
    Problem {
        level,
        kind,
        subject: subject.into(),
        text,
        remedy: remedy.into(),
    }
}

fn describe(holder: &Holder) -> String {
    let who = holder
        .pod
        .as_ref()
        .map_or_else(|| "somebody".to_owned(), |pod| format!("pod {pod}"));
    let told: Vec<&str> = holder.told_by.iter().map(|witness| witness.as_str()).collect();
    format!(
        "{who} ({}) on node {}, told by {}",
        holder.interface.as_deref().unwrap_or("an interface"),
        holder.node.as_deref().unwrap_or("none"),
        told.join(" and ")
    )
}

/// Addresses with two holders in one address space.
fn duplicates(snapshot: &Snapshot, all: &[Holder]) -> Vec<Problem> {
    let mut by: BTreeMap<(String, IpAddr), Vec<&Holder>> = BTreeMap::new();
    for holder in all {
        let pool = holder.pool.as_deref().and_then(|name| snapshot.pool(name));
        let space = pool.map(|pool| pool.space().to_owned()).unwrap_or_default();
        by.entry((space, holder.address)).or_default().push(holder);
    }
    let twice = by.into_iter().filter(|(_, holders)| holders.len() > 1);
    let tell = |((space, ip), holders): ((String, IpAddr), Vec<&Holder>)| {
        let who: Vec<String> = holders.iter().map(|holder| describe(holder)).collect();
        problem(
            Level::Fail,
            "duplicate",
            ip.to_string(),
            format!(
                "has {} holders in address space {space}: {}",
                who.len(),
                who.join("; ")
            ),
            "delete the younger pod; then look at where each has the address from (rdmanet blocks; on each node rdmanet addresses)",
        )
    };
    twice.map(tell).collect()
}

/// An address of a pod that its node has no right to allocate, according to the objects of the cluster.
fn misplaced(snapshot: &Snapshot, holder: &Holder) -> Option<Problem> {
    let ip = holder.address;
    // An address object itself names the holder.
    if holder.told_by != [Witness::NetworkStatus] {
        return None;
    }
    let pool = holder.pool.as_deref().and_then(|name| snapshot.pool(name));
    let Some(pool) = pool else {
        return Some(problem(
            Level::Warn,
            "outside",
            ip.to_string(),
            format!(
                "{} is of network {}, whose pools do not have it",
                describe(holder),
                holder.network.as_deref().unwrap_or_default()
            ),
            "if the pool was made smaller, this ends with the pod; if not, the pod has it from elsewhere",
        ));
    };
    misplaced_in(snapshot, pool, holder)
}

fn misplaced_in(snapshot: &Snapshot, pool: &Pool, holder: &Holder) -> Option<Problem> {
    let ip = holder.address;
    let block = snapshot
        .blocks_with(ip)
        .find(|block| block.space() == pool.space());
    let given = pool
        .accepted
        .as_ref()
        .is_ok_and(|accepted| accepted.ranges.range_of(ip).is_some());
    match block {
        Some(block) if Some(&block.object.spec.owner.node) == holder.node.as_ref() => None,
        Some(block) if block.object.spec.state == BlockState::Shared => None,
        Some(block) => Some(problem(
            Level::Fail,
            "foreign-block",
            ip.to_string(),
            format!(
                "{}, lies in block {} of node {}, which may give it to another pod",
                describe(holder),
                block.cidr,
                block.object.spec.owner.node
            ),
            "delete the pod; if it comes again, look at the agents of both nodes",
        )),
        // During an import from another plugin, such pods exist for a while.
        None if !given => Some(problem(
            Level::Info,
            "excluded",
            ip.to_string(),
            format!(
                "{}, is excluded from pool {} now, or outside its ranges: it keeps the address, and nobody has it afterwards",
                describe(holder),
                pool.name()
            ),
            "nothing",
        )),
        None => Some(problem(
            Level::Fail,
            "unclaimed",
            ip.to_string(),
            format!(
                "{}, is in pool {}, and neither a block nor an object says that it is given",
                describe(holder),
                pool.name()
            ),
            "find out where the pod has it from; until then exclude the address in the pool, so that no node claims it",
        )),
    }
}

fn overlaps(snapshot: &Snapshot) -> Vec<Problem> {
    let mut found = Vec::new();
    let blocks = snapshot.blocks();
    for (i, one) in blocks.iter().enumerate() {
        // The blocks are sorted by address.
        let family = Family::of(one.cidr.ip());
        let reach = bits(one.cidr.broadcast());
        let near = blocks[i + 1..]
            .iter()
            .take_while(|other| Family::of(other.cidr.ip()) == family && bits(other.cidr.network()) <= reach);
        for other in near.filter(|other| other.space() == one.space()) {
            found.push(problem(
                Level::Fail,
                "overlap",
                one.cidr.to_string(),
                format!("of node {} has addresses of block {} of node {}", one.object.spec.owner.node, other.cidr, other.object.spec.owner.node),
                "kubectl describe addressspace: two pools with different block sizes have one subnet; drain one of the two nodes and remove the block",
            ));
        }
    }
    found
}

/// Blocks whose node or pool is gone.
fn ownerless(snapshot: &Snapshot, block: &Block) -> Option<Problem> {
    let spec = &block.object.spec;
    let name = block.name();
    if snapshot.pool(&spec.pool).is_none() {
        return Some(problem(
            Level::Warn,
            "homeless",
            name,
            format!("is of pool {}, which does not exist", spec.pool),
            "it goes once no pod has an address of it; if it stays, look at the agent of its node",
        ));
    }
    let registered = snapshot.nodes.get(&spec.owner.node);
    match (spec.state, registered) {
        (BlockState::Shared, _) => None,
        (BlockState::Orphaned, _) if in_use(&block.object) => Some(problem(
            Level::Warn,
            "held",
            name,
            format!(
                "belonged to node {}, which is gone, and had addresses in use by its last report: nobody else gets them",
                spec.owner.node
            ),
            "if the machine is off: rdmanet release --node, with the name of the node",
        )),
        (BlockState::Orphaned, _) => Some(problem(
            Level::Info,
            "orphan",
            name,
            format!(
                "belonged to node {}, which is gone{}; others may have it after the quarantine, once no pod is bound to the node",
                spec.owner.node,
                spec.orphaned
                    .as_ref()
                    .map(|orphaned| format!(" (seen by {} at {})", orphaned.by, orphaned.since.0))
                    .unwrap_or_default()
            ),
            "nothing; if pods of that node are still listed, delete them",
        )),
        (_, None) => Some(problem(
            Level::Warn,
            "orphan",
            name,
            format!(
                "belongs to node {}, which the cluster does not have, and no agent has noted that yet",
                spec.owner.node
            ),
            "wait a minute; if it stays, no controller runs: kubectl -n rdmanet-system get pods,leases",
        )),
        (_, Some(uid)) if *uid != spec.owner.node_uid => Some(problem(
            Level::Warn,
            "orphan",
            name,
            format!("belongs to an earlier registration of node {}", spec.owner.node),
            "the node's agent takes it over if it has the block's file; look at its log if this stays",
        )),
        _ => None,
    }
}

/// Address objects whose pod is gone.
fn leaks(snapshot: &Snapshot) -> Vec<Problem> {
    let bound = snapshot
        .addresses
        .iter()
        .filter(|(_, object)| object.spec.state == AddressState::Bound);
    let pods: HashMap<&str, &PodFacts> = snapshot.pods.iter().map(|pod| (pod.name.as_str(), pod)).collect();
    let leaked = bound.filter_map(|(ip, object)| {
        let pod = object.spec.pod.as_ref()?;
        let name = format!("{}/{}", pod.namespace, pod.name);
        let why = match (pods.get(name.as_str()), &pod.uid) {
            (None, _) => "does not exist".to_owned(),
            (Some(there), Some(uid)) if there.uid != *uid => "is another one of that name by now".to_owned(),
            (Some(there), _) if !there.lives => "has ended".to_owned(),
            _ => return None,
        };
        Some(problem(
            Level::Warn,
            "leak",
            ip.to_string(),
            format!("is bound to pod {name} on node {}, which {why}", object.spec.node.node),
            format!("the agent of that node frees it within minutes; if that node is gone for good: rdmanet release {ip}"),
        ))
    });
    leaked.collect()
}

/// Blocks of nodes on which no agent runs any more, for instance after the `nodeSelector` of the `DaemonSet` was
/// narrowed. The plugin of such a node still allocates from these blocks, so only the node's agent can return them.
fn deserted(snapshot: &Snapshot) -> Vec<Problem> {
    let mut by_node: BTreeMap<&str, Vec<&Block>> = BTreeMap::new();
    for block in snapshot.blocks() {
        let spec = &block.object.spec;
        let owned = matches!(spec.state, BlockState::Active | BlockState::Draining);
        let node = spec.owner.node.as_str();
        if owned && snapshot.nodes.contains_key(node) && !snapshot.has_agent(node) {
            by_node.entry(node).or_default().push(block);
        }
    }
    let about = |(node, blocks): (&str, Vec<&Block>)| {
        let told = blocks.iter().filter_map(|block| block.object.status.as_ref());
        let used: i64 = told.map(|status| status.used).sum();
        problem(
            Level::Warn,
            "deserted",
            node,
            format!(
                "has {} blocks ({} addresses in use, as last reported), and no agent runs there to return them",
                blocks.len(),
                used
            ),
            "let the DaemonSet rdmanet-agent run on it again (nodeSelector, tolerations); to empty it, first take its label out of spec.nodeSelector of the pools",
        )
    };
    by_node.into_iter().map(about).collect()
}

fn pools(snapshot: &Snapshot) -> Vec<Problem> {
    let mut found = Vec::new();
    for pool in &snapshot.pools {
        let conditions = pool.object.status.iter().flat_map(|status| &status.conditions);
        let serves = conditions
            .clone()
            .any(|one| one.type_ == condition::SERVING && one.status == "True");
        for one in conditions {
            let level = match (one.type_.as_str(), one.status.as_str()) {
                // Pods get addresses according to an earlier spec.
                (condition::READY, "False") if serves => Level::Warn,
                (condition::READY, "False") => Level::Fail,
                (condition::DEGRADED | condition::EXHAUSTED | condition::FALLBACK_MISSING, "True") => {
                    Level::Warn
                }
                (
                    condition::OVERLAP
                    | condition::OVERLAP_ELSEWHERE
                    | condition::FEW_BLOCKS
                    | condition::SHRINK_PENDING
                    | condition::EXCLUSION_OVER_LIVE,
                    "True",
                ) => Level::Info,
                _ => continue,
            };
            found.push(problem(
                level,
                "pool",
                format!("{} {}", pool.name(), one.type_),
                format!("{}: {}", one.reason, one.message),
                "docs/operate.md says what each condition asks for",
            ));
        }
    }
    found
}

/// Nodes whose pods have lost a link or will lose it with the next failure, and nodes whose condition no agent updates.
fn links(snapshot: &Snapshot) -> impl Iterator<Item = Problem> {
    snapshot.links.iter().filter_map(|(node, says)| {
        if !snapshot.has_agent(node) {
            return Some(problem(
                Level::Warn,
                "links",
                node,
                format!(
                    "LinksReady is {} ({}: {}), and no agent runs on the node to update it",
                    says.status, says.reason, says.message
                ),
                "let the DaemonSet rdmanet-agent run on the node again, or remove the condition (docs/install.md, Removal)",
            ));
        }
        let level = match (says.status.as_str(), says.reason.as_str()) {
            ("False", _) => Level::Warn,
            (_, reason::BOND_DEGRADED) => Level::Info,
            _ => return None,
        };
        Some(problem(
            level,
            "links",
            node,
            says.message.clone(),
            "docs/operate.md says what to look at, by the state of the port; what is out of service on purpose: ip link set LINK down",
        ))
    })
}

#[cfg(test)]
mod tests;
