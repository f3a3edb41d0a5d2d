// SPDX-License-Identifier: Apache-2.0
//! Writes the status of a pool: its conditions, and its utilization (`super::usage`).

use super::Leader;
use super::accept::Accepted;
use super::usage::Usage;
use api::accepted_pool::AcceptedPool;
use api::convert::now;
use api::listing::common_address;
use api::pool::condition::{
    DEGRADED, EXCLUSION_OVER_LIVE, EXHAUSTED, FALLBACK_MISSING, OVERLAP, OVERLAP_ELSEWHERE, READY, SERVING,
    SHRINK_PENDING, STALLED,
};
use api::pool::reason;
use api::recorder::NewEvent;
use api::requests::{ReconcileError, WriteResult};
use api::{IpAddress, IpBlock, IpPool, IpPoolStatus};
use common::cni::{Code, Error};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::runtime::reflector::ObjectRef;
use kube::{Resource, ResourceExt};
use std::borrow::Borrow;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Instant;

/// The most names in one message.
const MAX_NAMES: usize = 5;

/// A condition without its times.
pub(super) struct ConditionState {
    kind: &'static str,
    pub(super) holds: bool,
    pub(super) reason: &'static str,
    pub(super) message: String,
}

impl Leader {
    /// Writes whether the spec was accepted, and the numbers of the spec in force.
    pub(super) async fn write_status(
        &mut self,
        pool: &IpPool,
        accepted: Accepted,
    ) -> Result<(), ReconcileError> {
        let before = pool.status.clone().unwrap_or_default();
        let mut status = before.clone();
        let generation = pool.metadata.generation;
        let (ready, degraded, overlap) = match &accepted {
            Accepted::Later => return Ok(()),
            Accepted::Yes(accepted, others) => {
                status.accepted = Some(accepted.spec.clone());
                status.accepted_generation = Some(accepted.generation);
                status.observed_generation = generation;
                (
                    condition(
                        READY,
                        true,
                        reason::ACCEPTED,
                        "addresses are allocated by the spec",
                    ),
                    condition(DEGRADED, false, reason::ACCEPTED, ""),
                    overlap(others),
                )
            }
            Accepted::Invalid(error) => rejected(&mut status, generation, reason::INVALID_SPEC, &error.msg),
            Accepted::Conflict(why) => rejected(&mut status, generation, reason::CONFLICT, why),
            Accepted::Refused(why) => rejected(&mut status, generation, reason::REFUSED, why),
        };
        let in_force = match accepted {
            Accepted::Yes(accepted, _) => Some(*accepted),
            _ => AcceptedPool::of(pool)?,
        };
        let serving = serving(in_force.is_some(), &ready);
        let stalled = stalled(&ready);
        let mut conditions = vec![ready, serving, stalled, degraded, overlap];
        if let Some(accepted) = in_force {
            let blocks = self.of_pool(accepted.name.as_str());
            conditions.extend(self.set_usage(&blocks, &accepted, &mut status));
            conditions.push(missing_fallback(&accepted, |name| {
                self.context.pools.get(&ObjectRef::new(name)).is_some()
            }));
            conditions.push(overlap_elsewhere(&accepted, &self.context.pools.state()));
            conditions.extend(self.compare_with_nodes(&accepted));
            self.share(&accepted, &blocks, &mut status);
            self.reconcile_shared(&accepted, &blocks).await?;
        }
        self.release_requested(pool, &mut status).await?;
        self.write(pool, &before, status, conditions).await
    }

    /// Handles requests for addresses between the rounds. The other parts of the status wait for the next round.
    pub(super) async fn handle_request(&mut self, pool: &IpPool) -> Result<(), ReconcileError> {
        let Some(accepted) = AcceptedPool::of(pool)? else {
            return Ok(());
        };
        self.relist_shared(pool).await?;
        let blocks = self.of_pool(accepted.name.as_str());
        let before = pool.status.clone().unwrap_or_default();
        let mut status = before.clone();
        let conditions = self.set_usage(&blocks, &accepted, &mut status);
        self.share(&accepted, &blocks, &mut status);
        self.release_requested(pool, &mut status).await?;
        self.write(pool, &before, status, conditions).await
    }

    /// Reports which nodes and addresses still keep a pool that is being deleted.
    pub(super) async fn report_deletion(
        &mut self,
        pool: &IpPool,
        blocks: &[Arc<IpBlock>],
        addresses: &[impl Borrow<IpAddress>],
    ) -> Result<(), ReconcileError> {
        let before = pool.status.clone().unwrap_or_default();
        let mut status = before.clone();
        let message = deletion_message(&pool.name_any(), blocks, addresses.len());
        self.node_counts.forget(&pool.name_any());
        if let Some(accepted) = AcceptedPool::of(pool)? {
            let usage = Usage::of(&accepted, blocks, addresses);
            status.counters = Some(usage.counters);
            // Shared blocks have no owner that would return them.
            self.reconcile_shared(&accepted, blocks).await?;
        }
        let ready = condition(READY, false, reason::DELETING, &message);
        let serving = serving(false, &ready);
        self.write(pool, &before, status, vec![ready, serving]).await
    }

    pub(super) fn of_pool(&self, name: &str) -> Vec<Arc<IpBlock>> {
        let blocks = self.blocks().into_iter();
        blocks.filter(|block| block.spec.pool == name).collect()
    }

    fn set_usage(
        &self,
        blocks: &[Arc<IpBlock>],
        accepted: &AcceptedPool,
        status: &mut IpPoolStatus,
    ) -> Vec<ConditionState> {
        let mut all = blocks.to_vec();
        all.extend(self.blocks_of_others(accepted));
        let usage = Usage::of(accepted, &all, &self.addresses);
        let conditions = usage_conditions(&usage);
        status.counters = Some(usage.counters);
        conditions
    }

    async fn write(
        &mut self,
        pool: &IpPool,
        before: &IpPoolStatus,
        mut status: IpPoolStatus,
        conditions: Vec<ConditionState>,
    ) -> Result<(), ReconcileError> {
        let mut changes = Vec::new();
        for condition in conditions {
            if set(&mut status.conditions, &condition, pool.metadata.generation) {
                changes.push(condition);
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
        let every = self.context.config.daemon.report_interval_of(blocks);
        let recent = self.written_at.get(&name).is_some_and(|at| at.elapsed() < every);
        if numbers_only && recent {
            return Ok(());
        }
        let mut wanted = pool.clone();
        wanted.status = Some(status);
        let WriteResult::Applied(after) = self.context.api.replace_status(pool, &wanted).await? else {
            // Another client has written meanwhile, for instance a node that adds its request. The watch delivers the new
            // version.
            return Ok(());
        };
        let accepted = |pool: &IpPool| pool.status.as_ref().and_then(|status| status.accepted.clone());
        if accepted(&after) != accepted(&wanted) {
            let why = format!(
                "pool {name}: the API server has stored another spec in status.accepted than this controller has sent; nodes obey the stored one"
            );
            return Err(Error::new(Code::INTERNAL, why).into());
        }
        self.written_at.insert(name, Instant::now());
        for change in changes {
            self.announce(pool, &change).await;
        }
        Ok(())
    }

    /// Logs that a condition has changed. Publishes an Event if administrators should know about it.
    async fn announce(&self, pool: &IpPool, change: &ConditionState) {
        tracing::info!(
            pool = pool.name_any(),
            condition = change.kind,
            holds = change.holds,
            reason = change.reason,
            details = change.message,
            "a condition of a pool has changed"
        );
        if let Some(event) = event(change) {
            self.context.publish_event(&pool.object_ref(&()), event).await;
        }
    }
}

/// The Event of a condition that has changed, if administrators should know about the change.
fn event(change: &ConditionState) -> Option<NewEvent> {
    let ConditionState {
        kind,
        holds,
        reason,
        message,
    } = change;
    let is_good = [READY, SERVING].contains(kind);
    let is_warning = *holds != is_good;
    // Serving is only announced if it differs from Ready. A spec that is not in force is announced as Degraded.
    let is_announced = match *kind {
        SERVING => *reason == reason::EARLIER_SPEC,
        READY => *holds || *reason == reason::DELETING,
        STALLED => false,
        _ => true,
    };
    (is_announced && (is_warning || is_good)).then(|| NewEvent {
        is_warning,
        reason,
        note: format!("{kind}: {message}"),
    })
}

/// The condition Serving: whether addresses are allocated. `ready` states whether the current spec is in force. Tools that
/// wait for `Ready` (kubectl, Flux, Helm, Argo CD) must not treat an edit without effect as done. Serving shows that
/// pods still get addresses.
fn serving(in_force: bool, ready: &ConditionState) -> ConditionState {
    match (in_force, ready.holds) {
        (true, true) => condition(SERVING, true, reason::ACCEPTED, &ready.message),
        (true, false) => condition(
            SERVING,
            true,
            reason::EARLIER_SPEC,
            "addresses are allocated by the spec before its last edit",
        ),
        (false, _) => condition(SERVING, false, ready.reason, &ready.message),
    }
}

/// The condition Stalled. While it is true, tools that use kstatus (Flux, Helm) report at once that the edit has failed.
///
/// Only an edit of this pool corrects a contradictory spec. A conflict ends with an edit of the other pool, or with the pods of
/// a block, and a refusal with pods or with a policy, so waiting is right. Two pools that are edited together may pass through
/// a conflict.
fn stalled(ready: &ConditionState) -> ConditionState {
    let holds = ready.reason == reason::INVALID_SPEC;
    let message = if ready.holds { "" } else { &ready.message };
    condition(STALLED, holds, ready.reason, message)
}

pub(super) fn condition(
    kind: &'static str,
    holds: bool,
    reason: &'static str,
    message: &str,
) -> ConditionState {
    ConditionState {
        kind,
        holds,
        reason,
        message: message.to_owned(),
    }
}

/// A condition that is True while `count` is above zero.
fn counter_condition(kind: &'static str, count: u64, reason: &'static str, subject: &str) -> ConditionState {
    let reason = if count > 0 { reason } else { reason::NONE };
    condition(kind, count > 0, reason, &format!("{count} {subject}"))
}

fn overlap(others: &[String]) -> ConditionState {
    let message = format!(
        "shares addresses with {}; a block belongs to the pool that claims it first",
        others.join(", ")
    );
    let (holds, reason) = if others.is_empty() {
        (false, reason::NONE)
    } else {
        (true, reason::SAME_BLOCK_LAYOUT)
    };
    condition(OVERLAP, holds, reason, if holds { &message } else { "" })
}

/// The conditions for a spec that does not take effect. The spec that was accepted before stays in force.
fn rejected(
    status: &mut IpPoolStatus,
    generation: Option<i64>,
    reason: &'static str,
    why: &str,
) -> (ConditionState, ConditionState, ConditionState) {
    status.observed_generation = generation;
    let ready = condition(READY, false, reason, why);
    let conflict = reason == reason::CONFLICT;
    (
        ready,
        condition(DEGRADED, true, reason, why),
        condition(
            OVERLAP,
            conflict,
            if conflict {
                reason::BLOCK_SIZE_CONFLICT
            } else {
                reason::NONE
            },
            if conflict { why } else { "" },
        ),
    )
}

/// Sets a condition. Returns whether its status or reason has changed. A new condition counts as changed
/// if it is True.
fn set(conditions: &mut Vec<Condition>, state: &ConditionState, generation: Option<i64>) -> bool {
    let status = if state.holds { "True" } else { "False" };
    let before = conditions
        .iter_mut()
        .find(|condition| condition.type_ == state.kind);
    let new = Condition {
        type_: state.kind.to_owned(),
        status: status.to_owned(),
        reason: state.reason.to_owned(),
        message: state.message.clone(),
        observed_generation: generation,
        last_transition_time: now(),
    };
    match before {
        None => {
            conditions.push(new);
            state.holds
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

/// The conditions that follow from the utilization.
fn usage_conditions(usage: &Usage) -> Vec<ConditionState> {
    let (counters, family) = (&usage.counters, usage.family);
    let message = format!(
        "{} of {} {family} addresses are in use, {} blocks, {} {family} addresses in no block",
        counters.used, counters.size, counters.blocks, counters.unclaimed
    );
    let reason = if usage.is_exhausted {
        reason::NO_ADDRESS_LEFT
    } else {
        reason::ADDRESSES_AVAILABLE
    };
    vec![
        condition(EXHAUSTED, usage.is_exhausted, reason, &message),
        counter_condition(
            EXCLUSION_OVER_LIVE,
            usage.excluded,
            reason::IN_USE,
            "attachments use excluded addresses; each pod keeps its address until it is deleted",
        ),
        counter_condition(
            SHRINK_PENDING,
            usage.outside,
            reason::BLOCKS_IN_USE,
            "blocks lie outside the ranges; each is freed when none of its addresses is in use",
        ),
    ]
}

/// Reports a pool of another address space with addresses of this one. That is right if the two spaces are separate
/// networks. Otherwise, for instance after a typing error in `addressSpace`, two pods get the same address.
fn overlap_elsewhere(accepted: &AcceptedPool, pools: &[Arc<IpPool>]) -> ConditionState {
    let overlaps = |pool: &&Arc<IpPool>| {
        pool.spec.address_space != accepted.spec.address_space
            && common_address(&accepted.spec, &pool.spec).is_some()
    };
    let Some(other) = pools.iter().filter(overlaps).min_by_key(|pool| pool.name_any()) else {
        return condition(OVERLAP_ELSEWHERE, false, reason::NONE, "");
    };
    let ip = common_address(&accepted.spec, &other.spec);
    let message = format!(
        "pool {} of address space {} also has {}, and this pool is in address space {}: two pods may get the same address, which is correct only if the two spaces are separate networks",
        other.name_any(),
        other.spec.address_space,
        ip.map(|ip| ip.to_string()).unwrap_or_default(),
        accepted.spec.address_space
    );
    condition(OVERLAP_ELSEWHERE, true, reason::OTHER_SPACE, &message)
}

/// The pools that `spec.fallback` names and that do not exist according to `is_there`.
fn missing_fallback(accepted: &AcceptedPool, is_there: impl Fn(&str) -> bool) -> ConditionState {
    let missing: BTreeSet<&str> = accepted
        .spec
        .fallback
        .iter()
        .map(String::as_str)
        .filter(|name| !is_there(name))
        .collect();
    if missing.is_empty() {
        return condition(FALLBACK_MISSING, false, reason::NONE, "");
    }
    let message = format!(
        "spec.fallback names pools that do not exist: {}; ADD fails for pods that need one of them",
        first_names(&missing)
    );
    condition(FALLBACK_MISSING, true, reason::NO_SUCH_POOL, &message)
}

/// Which nodes and addresses keep a pool that is being deleted.
fn deletion_message(pool: &str, blocks: &[Arc<IpBlock>], objects: usize) -> String {
    let reports = blocks.iter().filter_map(|block| block.status.as_ref());
    let used: i64 = reports.map(|status| status.used).sum();
    let nodes: BTreeSet<&str> = blocks
        .iter()
        .map(|block| block.spec.owner.node.as_str())
        .collect();
    format!(
        "being deleted; the pool is removed once no pod has an address of it and each address has rested (spec.cooldownSeconds): {used} addresses are in use in {} blocks (nodes: {}), {objects} are IPAddress objects; `rdmanet addresses --pool {pool}` names the pods",
        blocks.len(),
        first_names(&nodes)
    )
}

/// Joins `names` for a message. Of many names, only the first few appear.
fn first_names(names: &BTreeSet<&str>) -> String {
    let first: Vec<&str> = names.iter().copied().take(MAX_NAMES).collect();
    match (first.as_slice(), names.len().saturating_sub(MAX_NAMES)) {
        ([], _) => "none".to_owned(),
        (first, 0) => first.join(", "),
        (first, more) => format!("{} and {more} more", first.join(", ")),
    }
}

#[cfg(test)]
mod tests;
