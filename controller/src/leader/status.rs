// SPDX-License-Identifier: Apache-2.0
//! Writes the status of a pool: its conditions, and its numbers (`super::numbers`).

use super::Keeper;
use super::accept::Accepted;
use super::numbers::Numbers;
use crate::context::Failure;
use api::cluster::{Written, swap_status};
use api::ground::Ground;
use api::listing::common_address;
use api::object::now;
use api::pool::condition::{
    DEGRADED, EXCLUSION_OVER_LIVE, EXHAUSTED, FALLBACK_MISSING, OVERLAP, OVERLAP_ELSEWHERE, READY, SERVING,
    SHRINK_PENDING,
};
use api::pool::reason;
use api::{IpAddress, IpBlock, IpPool, IpPoolStatus};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::runtime::reflector::ObjectRef;
use kube::{Resource, ResourceExt};
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Instant;

/// The most names in one sentence.
const NAMED: usize = 5;

/// A condition without its times.
pub(super) struct Finding {
    kind: &'static str,
    pub(super) holds: bool,
    pub(super) reason: &'static str,
    pub(super) message: String,
}

impl Keeper {
    /// Writes whether the spec was accepted, and the numbers of the spec in force.
    pub(super) async fn tell(&mut self, pool: &IpPool, accepted: Accepted) -> Result<(), Failure> {
        let before = pool.status.clone().unwrap_or_default();
        let mut status = before.clone();
        let generation = pool.metadata.generation;
        let (ready, degraded, overlap) = match &accepted {
            Accepted::Later => return Ok(()),
            Accepted::Yes(ground, others) => {
                status.accepted = Some(ground.spec.clone());
                status.accepted_generation = Some(ground.generation);
                status.observed_generation = generation;
                (
                    finding(
                        READY,
                        true,
                        reason::ACCEPTED,
                        "addresses are given as the spec says",
                    ),
                    finding(DEGRADED, false, reason::ACCEPTED, ""),
                    overlap(others),
                )
            }
            Accepted::Invalid(error) => refused(&mut status, generation, reason::INVALID_SPEC, &error.msg),
            Accepted::Conflict(why) => refused(&mut status, generation, reason::CONFLICT, why),
        };
        let in_force = match accepted {
            Accepted::Yes(ground, _) => Some(*ground),
            _ => Ground::accepted(pool)?,
        };
        let serving = serving(in_force.is_some(), &ready);
        let mut findings = vec![ready, serving, degraded, overlap];
        if let Some(ground) = in_force {
            let blocks = self.of_pool(ground.name.as_str());
            findings.extend(self.numbers(&blocks, &ground, &mut status));
            findings.push(missing(&ground, |name| {
                self.context.pools.get(&ObjectRef::new(name)).is_some()
            }));
            findings.push(elsewhere(&ground, &self.context.pools.state()));
            findings.extend(self.compare_with_nodes(&ground));
            self.share(&ground, &blocks, &mut status);
            self.tend_shared(&ground, &blocks).await?;
        }
        self.release_asked(pool, &mut status).await?;
        self.write(pool, &before, status, findings).await
    }

    /// Handles a wish for addresses between the rounds. The other parts of the status wait for the next round.
    pub(super) async fn answer_wish(&mut self, pool: &IpPool) -> Result<(), Failure> {
        let Some(ground) = Ground::accepted(pool)? else {
            return Ok(());
        };
        self.look_again(pool).await?;
        let blocks = self.of_pool(ground.name.as_str());
        let before = pool.status.clone().unwrap_or_default();
        let mut status = before.clone();
        let findings = self.numbers(&blocks, &ground, &mut status);
        self.share(&ground, &blocks, &mut status);
        self.release_asked(pool, &mut status).await?;
        self.write(pool, &before, status, findings).await
    }

    /// Reports which nodes and addresses still keep a pool that is being deleted.
    pub(super) async fn tell_farewell(
        &mut self,
        pool: &IpPool,
        blocks: Vec<IpBlock>,
        addresses: &[IpAddress],
    ) -> Result<(), Failure> {
        let before = pool.status.clone().unwrap_or_default();
        let mut status = before.clone();
        let message = farewell(&pool.name_any(), &blocks, addresses);
        self.selected.forget(&pool.name_any());
        if let Some(ground) = Ground::accepted(pool)? {
            let blocks: Vec<Arc<IpBlock>> = blocks.into_iter().map(Arc::new).collect();
            let numbers = Numbers::of(&ground, &blocks, addresses);
            status.counters = Some(numbers.counters);
            // Shared blocks have no owner that would return them.
            self.tend_shared(&ground, &blocks).await?;
        }
        let ready = finding(READY, false, reason::DELETING, &message);
        let serving = serving(false, &ready);
        self.write(pool, &before, status, vec![ready, serving]).await
    }

    fn of_pool(&self, name: &str) -> Vec<Arc<IpBlock>> {
        let blocks = self.blocks().into_iter();
        blocks.filter(|block| block.spec.pool == name).collect()
    }

    fn numbers(&self, blocks: &[Arc<IpBlock>], ground: &Ground, status: &mut IpPoolStatus) -> Vec<Finding> {
        let numbers = Numbers::of(ground, blocks, &self.addresses);
        let findings = live(&numbers);
        status.counters = Some(numbers.counters);
        findings
    }

    async fn write(
        &mut self,
        pool: &IpPool,
        before: &IpPoolStatus,
        mut status: IpPoolStatus,
        findings: Vec<Finding>,
    ) -> Result<(), Failure> {
        let mut changes = Vec::new();
        for finding in findings {
            if set(&mut status.conditions, &finding, pool.metadata.generation) {
                changes.push(finding);
            }
        }
        if status == *before {
            return Ok(());
        }
        // If only numbers have changed, the write is delayed: every agent watches pools, and in a large cluster the
        // numbers arrive slowly.
        let numbers_only = changes.is_empty()
            && status.accepted == before.accepted
            && status.accepted_generation == before.accepted_generation
            && status.sharing == before.sharing
            && status.requests == before.requests
            && status.observed_generation == before.observed_generation;
        let name = pool.name_any();
        let blocks = status.counters.as_ref().map_or(0, |counters| counters.blocks);
        let every = self.context.config.tell_every(blocks);
        let recent = self.told.get(&name).is_some_and(|at| at.elapsed() < every);
        if numbers_only && recent {
            return Ok(());
        }
        let mut wanted = pool.clone();
        wanted.status = Some(status);
        if swap_status(&self.context.cluster.pools, &wanted).await? == Written::Late {
            // Another client has written meanwhile, for instance a node that adds its request. The watch delivers the new
            // version.
            return Ok(());
        }
        self.told.insert(name, Instant::now());
        for change in changes {
            self.announce(pool, &change).await;
        }
        Ok(())
    }

    /// Logs that a condition has changed. Publishes an Event if people should know about it.
    async fn announce(&self, pool: &IpPool, change: &Finding) {
        let Finding {
            kind,
            holds,
            reason,
            message,
        } = change;
        tracing::info!(
            pool = pool.name_any(),
            condition = kind,
            holds,
            reason,
            "{message}"
        );
        let is_good = [READY, SERVING].contains(kind);
        let is_warning = *holds != is_good;
        // Serving is only announced if it differs from Ready. A spec that is not in force is announced as Degraded.
        let is_news = match *kind {
            SERVING => *reason == reason::EARLIER_SPEC,
            READY => *holds || *reason == reason::DELETING,
            _ => true,
        };
        if is_news && (is_warning || is_good) {
            let note = format!("{kind}: {message}");
            self.context
                .tell(&pool.object_ref(&()), is_warning, reason, note)
                .await;
        }
    }
}

/// The condition Serving: whether addresses are allocated. `ready` tells whether the current spec is in force. Tools that
/// wait for `Ready` (kubectl, Flux, Argo CD, Helm) must not treat an edit without effect as done. People must see that
/// pods still get addresses.
fn serving(in_force: bool, ready: &Finding) -> Finding {
    match (in_force, ready.holds) {
        (true, true) => finding(SERVING, true, reason::ACCEPTED, &ready.message),
        (true, false) => finding(
            SERVING,
            true,
            reason::EARLIER_SPEC,
            "addresses are given as the spec said before its last edit",
        ),
        (false, _) => finding(SERVING, false, ready.reason, &ready.message),
    }
}

pub(super) fn finding(kind: &'static str, holds: bool, reason: &'static str, message: &str) -> Finding {
    Finding {
        kind,
        holds,
        reason,
        message: message.to_owned(),
    }
}

/// A condition that is True while `count` is above zero.
fn counted(kind: &'static str, count: u64, reason: &'static str, what: &str) -> Finding {
    let reason = if count > 0 { reason } else { reason::NONE };
    finding(kind, count > 0, reason, &format!("{count} {what}"))
}

fn overlap(others: &[String]) -> Finding {
    let message = format!(
        "has addresses in common with {}; whoever claims a block first has it",
        others.join(", ")
    );
    let (holds, reason) = if others.is_empty() {
        (false, reason::NONE)
    } else {
        (true, reason::SAME_BLOCKS)
    };
    finding(OVERLAP, holds, reason, if holds { &message } else { "" })
}

/// The findings for a spec that does not take effect. The spec that was accepted before stays in force.
fn refused(
    status: &mut IpPoolStatus,
    generation: Option<i64>,
    reason: &'static str,
    why: &str,
) -> (Finding, Finding, Finding) {
    status.observed_generation = generation;
    let ready = finding(READY, false, reason, why);
    let conflict = reason == reason::CONFLICT;
    (
        ready,
        finding(DEGRADED, true, reason, why),
        finding(
            OVERLAP,
            conflict,
            if conflict {
                reason::OTHER_BLOCKS
            } else {
                reason::NONE
            },
            if conflict { why } else { "" },
        ),
    )
}

/// Sets the condition of a finding. Returns whether its status or reason has changed. A new condition counts as changed
/// if it is True.
fn set(conditions: &mut Vec<Condition>, finding: &Finding, generation: Option<i64>) -> bool {
    let status = if finding.holds { "True" } else { "False" };
    let before = conditions
        .iter_mut()
        .find(|condition| condition.type_ == finding.kind);
    let new = Condition {
        type_: finding.kind.to_owned(),
        status: status.to_owned(),
        reason: finding.reason.to_owned(),
        message: finding.message.clone(),
        observed_generation: generation,
        last_transition_time: now(),
    };
    match before {
        None => {
            conditions.push(new);
            finding.holds
        }
        Some(before) => {
            let changed = before.status != new.status || before.reason != new.reason;
            let since = if before.status == new.status {
                before.last_transition_time.clone()
            } else {
                new.last_transition_time
            };
            *before = Condition {
                last_transition_time: since,
                ..new
            };
            changed
        }
    }
}

/// The conditions that follow from the numbers.
fn live(numbers: &Numbers) -> Vec<Finding> {
    let counters = &numbers.counters;
    let message = format!(
        "{} of {} addresses are in use, {} blocks, {} addresses in no block",
        counters.used, counters.size, counters.blocks, counters.unclaimed
    );
    let reason = if numbers.is_exhausted {
        reason::NO_ADDRESS_LEFT
    } else {
        reason::ROOM
    };
    vec![
        finding(EXHAUSTED, numbers.is_exhausted, reason, &message),
        counted(
            EXCLUSION_OVER_LIVE,
            numbers.excluded,
            reason::IN_USE,
            "attachments have addresses that are not given any more; each is kept until its pod ends",
        ),
        counted(
            SHRINK_PENDING,
            numbers.outside,
            reason::BLOCKS_IN_USE,
            "blocks lie outside the ranges and go when nothing in them is in use",
        ),
    ]
}

/// Reports a pool of another address space with addresses of this one. That is right if the two spaces are separate
/// networks. Otherwise, for instance after a typing error in `addressSpace`, two pods get the same address.
fn elsewhere(ground: &Ground, pools: &[Arc<IpPool>]) -> Finding {
    let meets = |pool: &&Arc<IpPool>| {
        pool.spec.address_space != ground.spec.address_space
            && common_address(&ground.spec, &pool.spec).is_some()
    };
    let Some(other) = pools.iter().filter(meets).min_by_key(|pool| pool.name_any()) else {
        return finding(OVERLAP_ELSEWHERE, false, reason::NONE, "");
    };
    let ip = common_address(&ground.spec, &other.spec);
    let message = format!(
        "pool {} of address space {} has {} as well, and this pool is in address space {}: pods of both may get one address, which is right only if the two spaces are separate networks",
        other.name_any(),
        other.spec.address_space,
        ip.map(|ip| ip.to_string()).unwrap_or_default(),
        ground.spec.address_space
    );
    finding(OVERLAP_ELSEWHERE, true, reason::OTHER_SPACE, &message)
}

/// The pools that `spec.fallback` names and that do not exist according to `is_there`.
fn missing(ground: &Ground, is_there: impl Fn(&str) -> bool) -> Finding {
    let missing: BTreeSet<&str> = ground
        .spec
        .fallback
        .iter()
        .map(String::as_str)
        .filter(|name| !is_there(name))
        .collect();
    if missing.is_empty() {
        return finding(FALLBACK_MISSING, false, reason::NONE, "");
    }
    let message = format!(
        "spec.fallback names pools that are not there: {}; pods that come to one of them are refused",
        some_of(&missing)
    );
    finding(FALLBACK_MISSING, true, reason::NO_SUCH_POOL, &message)
}

/// Which nodes and addresses keep a pool that is being deleted.
fn farewell(pool: &str, blocks: &[IpBlock], addresses: &[IpAddress]) -> String {
    let told = blocks.iter().filter_map(|block| block.status.as_ref());
    let used: i64 = told.map(|status| status.used).sum();
    let nodes: BTreeSet<&str> = blocks
        .iter()
        .map(|block| block.spec.owner.node.as_str())
        .collect();
    format!(
        "being deleted; it goes once no pod has an address of it: {used} addresses are in use in {} blocks (nodes: {}), {} are IPAddress objects; `rdmanet addresses --pool {pool}` names the pods",
        blocks.len(),
        some_of(&nodes),
        addresses.len()
    )
}

/// Joins `names` for a sentence. Of many names, only the first few appear.
fn some_of(names: &BTreeSet<&str>) -> String {
    let first: Vec<&str> = names.iter().copied().take(NAMED).collect();
    match (first.as_slice(), names.len().saturating_sub(NAMED)) {
        ([], _) => "none".to_owned(),
        (first, 0) => first.join(", "),
        (first, more) => format!("{} and {more} more", first.join(", ")),
    }
}

#[cfg(test)]
mod tests;
