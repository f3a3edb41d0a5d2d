// SPDX-License-Identifier: Apache-2.0
//! The Node condition that reports whether the node's links have carrier, for schedulers and administrators.
//!
//! Invariant: two writes are at least [`EVERY`] apart, however often links change. After the last change either the condition has
//! the current state, or the log has the reason why it could not be written.

use super::Scope;
use super::memory::Memory;
use super::sight::{self, Sight};
use super::verdict::{Judge, Verdict};
use crate::agent::{Agent, Failure};
pub use api::links::{kind, reason};
use api::requests::{ApiError, NodeCondition};
use block::owner::NodeIdentity;
use common::rdma::Sysfs;
use std::time::Duration;
use tokio::sync::Notify;
use tokio::time::sleep;

/// The shortest time between two writes. A shorter `--mirror` makes it shorter.
pub const EVERY: Duration = Duration::from_secs(10);

/// The longest pause after a rejected write. The role may be granted while the agent runs.
const REFUSED: Duration = Duration::from_secs(300);

/// The longest pause after a write without an answer.
const UNANSWERED: Duration = Duration::from_secs(60);

/// The maximum number of writes per second to Nodes, of all agents together, when a switch or the subnet manager restarts and all
/// nodes report a change. The API server sends each write to every watch of Nodes.
const WRITES_A_SECOND: f64 = 200.0;

/// How long a node with this `chance` (0 to 1) waits before it reports something that all nodes may have to report. `nodes`: the
/// number of nodes of the cluster.
pub fn turn(nodes: u64, chance: f64) -> Duration {
    let nodes = u32::try_from(nodes).unwrap_or(u32::MAX);
    let all = f64::from(nodes) / WRITES_A_SECOND;
    // In a small cluster all nodes may write at once.
    if all < 1.0 {
        Duration::ZERO
    } else {
        Duration::from_secs_f64(all * chance)
    }
}

/// Checks the links after each event (`heard`), and now and then without one. Writes the condition if it differs.
pub(super) async fn keep(agent: &Agent, heard: &Notify) {
    let every = agent.config.mirror.min(EVERY);
    let mut memory = Memory::read(&agent.config.data_dir);
    let mut teller = Teller::default();
    let mut pause = Duration::ZERO;
    loop {
        // A change that lasts only a moment is reported by Events and metrics alone.
        sleep(every / 10 + std::mem::take(&mut pause)).await;
        let rest = match sight().await {
            Ok(sight) => {
                let verdict = judge(agent, &sight, &mut memory);
                let calm = verdict.as_ref().is_none_or(|verdict| verdict.well);
                match teller.tell(agent, verdict).await {
                    Ok(true) => {
                        sleep(every).await;
                        continue;
                    }
                    // The state of an RDMA port may change without an event about its link.
                    Ok(false) if !calm => every,
                    Ok(false) => agent.config.confirm_every(),
                    Err(e) => {
                        sleep(teller.after(&e, every)).await;
                        continue;
                    }
                }
            }
            Err(e) => {
                tracing::warn!(error = e, "the links cannot be looked at; trying again");
                every
            }
        };
        tokio::select! {
            // All nodes of a fabric may see the same event now. The condition is computed after the pause.
            () = heard.notified() => pause = turn(agent.known_nodes(), fastrand::f64()),
            () = sleep(rest) => {}
        }
    }
}

async fn sight() -> Result<Sight, String> {
    let looked = tokio::task::spawn_blocking(|| sight::look(&Sysfs::host())).await;
    looked.unwrap_or_else(|e| Err(format!("the thread ended: {e}")))
}

fn judge(agent: &Agent, sight: &Sight, memory: &mut Memory) -> Option<Verdict> {
    let scope = &agent.config.links;
    let judge = Judge {
        sight,
        scope,
        seen: memory.seen(),
    };
    let (verdict, carrying) = (judge.verdict(), judge.carrying());
    if *scope == Scope::Rdma {
        memory.add(carrying);
    }
    verdict
}

/// The new condition; none if the Node should have no such condition.
fn wanted(scope: &Scope, verdict: Option<Verdict>, is_told: bool) -> Option<NodeCondition> {
    let (status, reason, message) = match verdict {
        Some(verdict) if verdict.well => ("True", verdict.reason, verdict.message),
        Some(verdict) => ("False", verdict.reason, verdict.message),
        None if !is_told || *scope == Scope::Nothing => return None,
        None => (
            "Unknown",
            reason::NO_LINKS,
            format!("no link of this node counts (--links {scope}): they are gone, in pods, or set down"),
        ),
    };
    Some(NodeCondition {
        status: status.to_owned(),
        reason: reason.to_owned(),
        message,
    })
}

/// Writes the condition, and remembers its failures.
#[derive(Default)]
struct Teller {
    /// The current condition was read from the API server once.
    asked: bool,
    failures: u32,
    /// The last logged reason why nothing is written.
    complaint: Option<String>,
}

impl Teller {
    /// Writes `verdict` into the condition if that differs. Returns whether a write was needed. If no link counts and the Node
    /// never had the condition, none is created. With `--links none` an existing condition is removed.
    async fn tell(&mut self, agent: &Agent, verdict: Option<Verdict>) -> Result<bool, Failure> {
        let told = || agent.node_condition(kind::LINKS_READY);
        // Only this agent writes the condition.
        if verdict.is_none() && self.asked && told().is_none() {
            return Ok(false);
        }
        agent.look_at_node(agent.config.confirm_every()).await?;
        self.asked = true;
        let wanted = wanted(&agent.config.links, verdict, told().is_some());
        if agent.me().is_none_or(|me| matches!(me, NodeIdentity::Gone(_))) || told() == wanted {
            return Ok(false);
        }
        agent.tell_node(kind::LINKS_READY, wanted.clone()).await?;
        if let Some(wanted) = wanted {
            let (status, reason) = (wanted.status, wanted.reason);
            let condition = kind::LINKS_READY;
            tracing::info!(condition, status, reason, "{}", wanted.message);
        }
        if self.complaint.take().is_some() {
            tracing::info!("condition {} is written again", kind::LINKS_READY);
        }
        self.failures = 0;
        Ok(true)
    }

    /// How long to wait after a failure. Each failure is logged once.
    fn after(&mut self, failure: &Failure, every: Duration) -> Duration {
        self.failures = self.failures.saturating_add(1);
        let complaint = failure.to_string();
        if self.complaint.as_ref() != Some(&complaint) {
            tracing::warn!(
                error = complaint,
                "condition {} is not written; the agent does everything else, and tries again now and then: ClusterRole rdmanet-agent of conf/rbac may patch nodes/status, and --links none asks for no condition",
                kind::LINKS_READY
            );
            self.complaint = Some(complaint);
        }
        let most = match failure {
            Failure::Api(ApiError::Rejected { .. }) => REFUSED,
            _ => UNANSWERED,
        };
        let doubled = every.saturating_mul(1 << self.failures.min(10));
        // Spreads out the retries of the agents of a cluster.
        doubled.min(most.max(every)).mul_f64(0.75 + fastrand::f64() / 2.0)
    }
}

#[cfg(test)]
mod tests;
