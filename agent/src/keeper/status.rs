// SPDX-License-Identifier: Apache-2.0
//! What people get to read of a pool: its numbers and conditions.

use super::Keeper;
use super::accept::Accepted;
use crate::agent::Failure;
use crate::api::pool::condition::{DEGRADED, EXCLUSION_OVER_LIVE, EXHAUSTED, OVERLAP, READY, SHRINK_PENDING};
use crate::api::pool::reason;
use crate::api::{AddressState, BlockState, Counters, IpBlock, IpPool, IpPoolStatus};
use crate::cluster::{Written, swap_status};
use crate::ground::Ground;
use crate::object::{cell, now};
use ipam::range::Family;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::{Resource, ResourceExt};
use std::sync::Arc;
use std::time::Instant;

/// A condition without its times.
struct Finding {
    kind: &'static str,
    holds: bool,
    reason: &'static str,
    message: String,
}

/// The blocks of a pool in numbers.
#[derive(Default)]
struct Sums {
    blocks: u64,
    used: i64,
    free_in_blocks: i64,
    claimed: u128,
    excluded: i64,
    outside: u64,
}

impl Keeper {
    /// Tells what became of the spec, and the numbers of what is in force.
    pub(super) async fn tell(&mut self, pool: &IpPool, accepted: Accepted) -> Result<(), Failure> {
        let before = pool.status.clone().unwrap_or_default();
        let mut status = before.clone();
        let generation = pool.metadata.generation;
        let (ready, degraded, overlap) = match &accepted {
            Accepted::Later => return Ok(()),
            Accepted::Yes(ground, others) => {
                status.accepted = Some(ground.spec.clone());
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
        let mut findings = vec![ready, degraded, overlap];
        let in_force = match accepted {
            Accepted::Yes(ground, _) => Some(*ground),
            _ => Ground::accepted(pool)?,
        };
        if let Some(ground) = in_force {
            let blocks = self.of_pool(ground.name.as_str());
            findings.extend(self.numbers(&blocks, &ground, &mut status));
            self.share(&ground, &blocks, &mut status);
            self.tend_shared(&ground, &blocks).await?;
        }
        self.write(pool, &before, status, findings).await
    }

    /// Answers the wish for addresses of a pool before its turn has come. What else is told of it waits for that.
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
        self.write(pool, &before, status, findings).await
    }

    /// A pool that is being deleted says who keeps it.
    pub(super) async fn tell_farewell(
        &mut self,
        pool: &IpPool,
        blocks: &[IpBlock],
        addresses: usize,
    ) -> Result<(), Failure> {
        let before = pool.status.clone().unwrap_or_default();
        let nodes: Vec<&str> = blocks
            .iter()
            .map(|block| block.spec.owner.node.as_str())
            .take(5)
            .collect();
        let message = format!(
            "being deleted; it goes when its addresses are not in use any more: {} blocks ({}), {addresses} addresses by name",
            blocks.len(),
            nodes.join(", ")
        );
        let ready = finding(READY, false, reason::DELETING, &message);
        self.write(pool, &before, before.clone(), vec![ready]).await
    }

    fn of_pool(&self, name: &str) -> Vec<Arc<IpBlock>> {
        let blocks = self.blocks().into_iter();
        blocks.filter(|block| block.spec.pool == name).collect()
    }

    fn numbers(&self, blocks: &[Arc<IpBlock>], ground: &Ground, status: &mut IpPoolStatus) -> Vec<Finding> {
        let sums = self.sum(blocks, ground);
        let bound = self
            .addresses
            .iter()
            .filter(|a| a.spec.pool == ground.name.as_str() && a.spec.state != AddressState::Orphaned);
        let by_name = i64::try_from(bound.count()).unwrap_or(i64::MAX);
        let used = sums.used.saturating_add(by_name);
        let taken_by_name = if ground.has_blocks() {
            0
        } else {
            u128::try_from(by_name).unwrap_or_default()
        };
        let all: u128 = ground
            .grids
            .iter()
            .map(crate::grid::Grid::addresses)
            .fold(0, u128::saturating_add);
        let free = all.saturating_sub(sums.claimed).saturating_sub(taken_by_name);
        let clip = |number: u128| i64::try_from(number).unwrap_or(i64::MAX);
        let counters = Counters {
            size: clip(ground.size()),
            used,
            free: clip(free),
            blocks: i64::try_from(sums.blocks).unwrap_or(i64::MAX),
            oldest: blocks
                .iter()
                .filter_map(|block| block.status.as_ref()?.oldest.clone())
                .min(),
        };
        let exhausted = free == 0 && sums.free_in_blocks == 0;
        let message = format!(
            "{used} of {} addresses are in use, {} blocks, {free} addresses in no block",
            counters.size, sums.blocks
        );
        status.counters = Some(counters);
        live(&sums, exhausted, &message)
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
        // Numbers alone wait their turn: every agent watches pools, and where there are many the numbers come in slowly.
        let numbers_only = changes.is_empty()
            && status.accepted == before.accepted
            && status.sharing == before.sharing
            && status.wanted == before.wanted
            && status.observed_generation == before.observed_generation;
        let name = pool.name_any();
        let blocks = status.counters.as_ref().map_or(0, |counters| counters.blocks);
        let every = self.agent.config.tell_every(blocks);
        let recent = self.told.get(&name).is_some_and(|at| at.elapsed() < every);
        if numbers_only && recent {
            return Ok(());
        }
        let mut wanted = pool.clone();
        wanted.status = Some(status);
        if swap_status(&self.agent.cluster.pools, &wanted).await? == Written::Late {
            // Somebody has written meanwhile, such as a node its wish: the watch tells.
            return Ok(());
        }
        self.told.insert(name, Instant::now());
        for change in changes {
            let warning = change.holds != (change.kind == READY);
            tracing::info!(
                pool = pool.name_any(),
                condition = change.kind,
                holds = change.holds,
                reason = change.reason,
                "{}",
                change.message
            );
            if warning || change.kind == READY {
                self.agent
                    .tell(
                        &pool.object_ref(&()),
                        warning,
                        change.reason,
                        format!("{}: {}", change.kind, change.message),
                    )
                    .await;
            }
        }
        Ok(())
    }
}

impl Keeper {
    fn sum(&self, blocks: &[Arc<IpBlock>], ground: &Ground) -> Sums {
        let mut sums = Sums::default();
        for block in blocks {
            sums.blocks += 1;
            let shared = block.spec.state == BlockState::Shared;
            // Those of a shared block are counted one by one, as objects.
            if let Some(status) = block.status.as_ref().filter(|_| !shared) {
                sums.used = sums.used.saturating_add(status.used);
            }
            let Some(cell) = cell(block) else { continue };
            if !ground.has(cell) {
                sums.outside += 1;
                continue;
            }
            let usable = ground
                .grid(Family::of(cell.cidr().ip()))
                .map_or(0, |grid| grid.usable(cell).count());
            sums.claimed = sums.claimed.saturating_add(usable);
            let free = match (&block.status, block.spec.state) {
                (_, BlockState::Shared) => {
                    i64::try_from(self.free_of_shared(ground, block)).unwrap_or(i64::MAX)
                }
                (Some(status), BlockState::Active) => status.free,
                (Some(_), BlockState::Draining | BlockState::Orphaned) => 0,
                // Not told yet: it may have some.
                (None, _) => 1,
            };
            sums.free_in_blocks = sums.free_in_blocks.saturating_add(free);
            let excluded = block.status.as_ref().map_or(0, |status| status.excluded);
            sums.excluded = sums.excluded.saturating_add(excluded);
        }
        sums
    }
}

fn finding(kind: &'static str, holds: bool, reason: &'static str, message: &str) -> Finding {
    Finding {
        kind,
        holds,
        reason,
        message: message.to_owned(),
    }
}

/// One that holds while `count` of something are there.
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

/// A spec that does not take effect: what was accepted before stays in force.
fn refused(
    status: &mut IpPoolStatus,
    generation: Option<i64>,
    reason: &'static str,
    why: &str,
) -> (Finding, Finding, Finding) {
    status.observed_generation = generation;
    let before = status.accepted.is_some();
    let ready = if before {
        finding(
            READY,
            true,
            reason::EARLIER_SPEC,
            "addresses are given as the spec said before its last edit",
        )
    } else {
        finding(READY, false, reason, why)
    };
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

/// Puts a finding among the conditions. Returns whether it holds now and did not, or the other way round, or for another
/// reason.
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

/// The conditions that follow from what lives.
fn live(sums: &Sums, exhausted: bool, message: &str) -> Vec<Finding> {
    vec![
        finding(
            EXHAUSTED,
            exhausted,
            if exhausted {
                reason::NO_ADDRESS_LEFT
            } else {
                reason::ROOM
            },
            message,
        ),
        counted(
            EXCLUSION_OVER_LIVE,
            u64::try_from(sums.excluded).unwrap_or_default(),
            reason::IN_USE,
            "attachments have addresses that are not given any more; each is kept until its pod ends",
        ),
        counted(
            SHRINK_PENDING,
            sums.outside,
            reason::BLOCKS_IN_USE,
            "blocks lie outside the ranges and go when nothing in them is in use",
        ),
    ]
}
