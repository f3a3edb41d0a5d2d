// SPDX-License-Identifier: Apache-2.0
//! Reports the use of this node's blocks to the API server: seldom, and only what has changed.

use super::allocatable::Allocatable;
use super::context::{PoolContext, Target};
use super::reconcile_block::BlockReconciler;
use crate::stagger;
use api::accepted_pool::AcceptedPool;
use api::block_layout::BlockCidr;
use api::convert::{block_record, cidr_of, now};
use api::requests::{ReconcileError, WriteResult};
use api::{BlockState, IpBlock, IpBlockStatus, IpPoolSpec};
use block::Usage;
use block::owner::NodeIdentity;
use common::cni::{Code, Error};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use std::collections::HashMap;
use std::net::IpAddr;
use std::time::Duration;
use tokio::time::Instant;

/// The approximate number of nodes per second that note an edit of a pool, or report pods that all started at once. If all nodes
/// wrote at the same moment, most requests would wait in the API server's queue until they time out and are retried.
const NOTES_A_SECOND: f64 = 100.0;

/// The last report of each block.
#[derive(Default)]
pub(super) struct Reports {
    last: HashMap<String, BlockReport>,
    /// The spec to which the generations in `last` belong. After a restore of etcd another spec may have the same generation.
    spec: Option<IpPoolSpec>,
    /// A generation of the pool, and when this node should note it.
    turn: Option<(i64, Instant)>,
    /// The earliest turn that has not come yet.
    next: Option<Instant>,
}

/// The last report of a block.
struct BlockReport {
    at: Instant,
    content: ReportedUse,
    /// The generation of the pool.
    generation: i64,
    /// Whether the report noted that generation. If not, the next change of the use is reported, and the report tries again.
    is_noted: bool,
    /// When this node should report the next change.
    turn: Option<Instant>,
}

/// The use of a block that a report shows.
#[derive(Clone, Copy, PartialEq, Eq)]
struct ReportedUse {
    used: Usage,
    /// The number of free addresses. It also changes when this node withholds an address, or no longer withholds it.
    free: u64,
}

impl BlockReport {
    /// When `content` should be reported. None if it has not changed, or if the last report is more recent than `every`.
    fn turn(&mut self, content: ReportedUse, every: Duration, blocks: i64, now: Instant) -> Option<Instant> {
        if self.content == content || now.duration_since(self.at) < every {
            return None;
        }
        Some(*self.turn.get_or_insert_with(|| now + delay(blocks)))
    }
}

impl Reports {
    /// Forgets all reports if they belong to another spec.
    fn forget_unless(&mut self, spec: &IpPoolSpec) {
        if self.spec.as_ref() != Some(spec) {
            self.last.clear();
            self.spec = Some(spec.clone());
        }
    }

    /// Whether the last report of block `name` has this generation.
    fn has_noted(&self, name: &str, generation: i64) -> bool {
        self.last
            .get(name)
            .is_some_and(|report| report.is_noted && report.generation == generation)
    }

    /// When this node should write `observedGeneration` for this generation of the pool.
    fn turn_to_note(&mut self, generation: i64, blocks: i64, now: Instant) -> Instant {
        let known = self.turn.filter(|(of, _)| *of == generation);
        let (_, turn) = *self
            .turn
            .insert(known.unwrap_or_else(|| (generation, now + delay(blocks))));
        turn
    }

    /// Whether the turn has come. If not, it is stored in `next`, so that the reconciler wakes up at that time and not at its next
    /// regular round: the rounds of many nodes coincide after an edit.
    fn has_come(&mut self, turn: Instant, now: Instant) -> bool {
        if turn > now {
            self.next = self.next.into_iter().chain([turn]).min();
        }
        turn <= now
    }

    /// The request for block `name` failed, so the API server may be overloaded: draws a new turn.
    fn postpone(&mut self, name: &str, blocks: i64, now: Instant) {
        if let Some(report) = self.last.get_mut(name) {
            report.turn = None;
        }
        if let Some((_, turn)) = &mut self.turn {
            *turn = now + delay(blocks);
        }
    }

    /// The earliest turn that the last round left open.
    pub(super) fn next(&mut self) -> Option<Instant> {
        self.next.take()
    }
}

/// How long this node waits before it reports something that many nodes may have to report now. `blocks`: the number of blocks of
/// the pool, of which each node has about one.
pub(super) fn delay(blocks: i64) -> Duration {
    stagger::delay(
        u64::try_from(blocks).unwrap_or(0),
        NOTES_A_SECOND,
        fastrand::f64(),
    )
}

/// The leases of a block.
#[derive(Default)]
struct OfBlock {
    /// The number of their addresses that the pool's ranges no longer contain.
    excluded: i64,
    /// When the oldest lease was made.
    oldest: Option<Time>,
}

/// The state of the pool that a round of reports is about.
#[derive(Clone, Copy)]
struct ReportScope<'a> {
    target: &'a Target,
    accepted: &'a AcceptedPool,
}

/// Reports the use of blocks.
pub(super) struct UsageReporter {
    context: PoolContext,
    reports: Reports,
}

impl UsageReporter {
    pub(super) fn new(context: PoolContext) -> Self {
        Self {
            context,
            reports: Reports::default(),
        }
    }

    /// The earliest turn that the last round left open.
    pub(super) fn next_turn(&mut self) -> Option<Instant> {
        self.reports.next()
    }

    /// Reports the blocks whose use has changed, and notes the generation of the pool that this node observes.
    pub(super) async fn report(
        &mut self,
        reconciler: &mut BlockReconciler,
        target: &Target,
    ) -> Result<(), ReconcileError> {
        let blocks = reconciler.known().all();
        let (holdings, usage) = self.context.holdings(&blocks).await?;
        let (Some(file), Some(accepted), Some(NodeIdentity::Registered(me))) =
            (&holdings.file, &target.accepted, self.context.agent.identity())
        else {
            if holdings.file.is_none() {
                self.context.agent.metrics.holds_nothing(&self.context.pool);
            }
            return Ok(());
        };
        let total: u64 = usage.values().map(|used| used.leased).sum();
        self.context
            .agent
            .metrics
            .holds(&self.context.pool, file.blocks.len(), total);
        // An interrupted round may begin here, before it writes the file. The objects of reserved addresses are those of
        // `accepted`, so no other generation may be noted.
        if file.generation != accepted.generation {
            return Ok(());
        }
        let scope = ReportScope { target, accepted };
        self.reports.last.retain(|name, _| blocks.contains_key(name));
        self.reports.forget_unless(&accepted.spec);
        let mine =
            |block: &IpBlock| block_record(block).owner == me && block.spec.state != BlockState::Shared;
        let allocatable = Allocatable::of(Some(file), &usage);
        let mut refused = None;
        for (name, block) in blocks.iter().filter(|(_, block)| mine(block)) {
            let content = ReportedUse {
                used: allocatable.used(name),
                free: cidr_of(block).map_or(0, |cidr| allocatable.free(name, cidr)),
            };
            if !self.is_due(scope, name, content) {
                continue;
            }
            if !self.reports.has_noted(name, accepted.generation)
                && let Some(ip) = publish_reserved(reconciler, target).await?
            {
                self.reports.postpone(name, target.blocks, Instant::now());
                refused.get_or_insert(ReconcileError::Local(self.not_published(ip)));
                continue;
            }
            let written = self.report_block(reconciler, scope, (name, block), content).await;
            if let Err(failure) = written {
                self.reports.postpone(name, target.blocks, Instant::now());
                if failure.is_unanswered() {
                    return Err(failure);
                }
                refused.get_or_insert(failure);
            }
        }
        refused.map_or(Ok(()), Err)
    }

    /// Whether this node should report the block now.
    fn is_due(&mut self, scope: ReportScope<'_>, name: &str, content: ReportedUse) -> bool {
        let ReportScope { target, accepted } = scope;
        let generation = accepted.generation;
        let now = Instant::now();
        let turn = match self.reports.last.get_mut(name) {
            Some(report) if report.generation == generation => {
                // The controller chooses from these reports which node should share.
                let misleads = target.has_shortage && content.free == 0 && report.content.free > 0;
                let every = if misleads {
                    Duration::ZERO
                } else {
                    self.context.agent.config.daemon.report_interval_of(target.blocks)
                };
                report.turn(content, every, target.blocks, now)
            }
            _ => Some(self.reports.turn_to_note(generation, target.blocks, now)),
        };
        turn.is_some_and(|turn| self.reports.has_come(turn, now))
    }

    async fn report_block(
        &mut self,
        reconciler: &mut BlockReconciler,
        scope: ReportScope<'_>,
        (name, block): (&str, &IpBlock),
        content: ReportedUse,
    ) -> Result<(), ReconcileError> {
        let accepted = scope.accepted;
        let has_noted = self.reports.has_noted(name, accepted.generation);
        let is_noted = has_noted || can_note(reconciler, accepted, block).await?;
        let before = block.status.as_ref();
        let before = before.and_then(|status| status.observed_generation);
        let leases = self.leases_of(accepted, cidr_of(block)).await?;
        let status = IpBlockStatus {
            used: i64::try_from(content.used.leased).unwrap_or(i64::MAX),
            free: i64::try_from(content.free).unwrap_or(i64::MAX),
            excluded: leases.excluded,
            oldest: leases.oldest,
            reported_at: Some(now()),
            observed_generation: is_noted.then_some(accepted.generation).or(before),
        };
        if let WriteResult::Applied(after) = scope.target.api.update_status(block, &status).await? {
            reconciler.known_mut().note(name, Some(after));
            let report = BlockReport {
                at: Instant::now(),
                content,
                generation: accepted.generation,
                is_noted,
                turn: None,
            };
            self.reports.last.insert(name.to_owned(), report);
        }
        Ok(())
    }

    async fn leases_of(
        &self,
        accepted: &AcceptedPool,
        cidr: Option<BlockCidr>,
    ) -> Result<OfBlock, ReconcileError> {
        let Some(cidr) = cidr else {
            return Ok(OfBlock::default());
        };
        let leases = self.context.agent.stores.leases(&self.context.pool).await?;
        let mut of_block = OfBlock::default();
        for stored in leases.intact {
            for ip in stored.lease.addresses().filter(|ip| cidr.network().contains(*ip)) {
                // A reserved address does not count: it is still allocated, by name.
                of_block.excluded += i64::from(accepted.ranges.range_of(ip).is_none());
                let since = stored.lease.since.parse().ok().map(Time);
                of_block.oldest = of_block.oldest.into_iter().chain(since).min();
            }
        }
        Ok(of_block)
    }

    /// The reason why a reservation is not noted yet. The other node may be about to delete its object, because the reservation
    /// is not noted. Then no object is left.
    fn not_published(&self, ip: IpAddr) -> Error {
        Error::new(
            Code::TRY_AGAIN,
            format!(
                "pool {}: the reservation of {ip} is not noted yet: a pod of this node has the address, and it has an object of another node; retried until that object is gone",
                self.context.pool
            ),
        )
    }
}

/// Creates an object for each reserved address that a pod of this node has, before this node notes the reservation: a node
/// that asks for the address by name gets it once the reservation is noted, unless an object is there. Returns an address
/// whose object could not be created.
async fn publish_reserved(
    reconciler: &mut BlockReconciler,
    target: &Target,
) -> Result<Option<IpAddr>, ReconcileError> {
    let Some(accepted) = &target.accepted else {
        return Ok(None);
    };
    let mut in_the_way = None;
    for family in accepted.ranges.families() {
        let reserved = accepted.ranges.reserved(family);
        if !reserved.is_empty() {
            in_the_way = reconciler
                .publisher_mut()
                .publish_leases(target, accepted, &reserved)
                .await?
                .or(in_the_way);
        }
    }
    Ok(in_the_way)
}

/// Whether this node may note the reservations of a block: no reserved address of it is taken without a readable lease. For such
/// an address no object can be created.
async fn can_note(
    reconciler: &mut BlockReconciler,
    accepted: &AcceptedPool,
    block: &IpBlock,
) -> Result<bool, ReconcileError> {
    let Some(cidr) = cidr_of(block) else {
        return Ok(true);
    };
    let reserved = accepted.ranges.reserved(cidr.family()).within(cidr.interval());
    if reserved.is_empty() {
        return Ok(true);
    }
    reconciler.publisher_mut().can_reserve(&reserved).await
}

#[cfg(test)]
mod tests;
