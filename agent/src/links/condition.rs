// SPDX-License-Identifier: Apache-2.0
//! The Node condition that reports whether the node's links have carrier, for schedulers and administrators.
//!
//! Invariant: two writes are at least [`EVERY`] apart, however often links change. After the last change either the condition has
//! the current state, or the log has the reason why it could not be written.

use super::evaluate::{Evaluator, LinkStatus};
use super::history::CarrierHistory;
use super::ports::{self, LinkPorts};
use crate::agent::Agent;
use crate::config::LinkScope;
use crate::stagger;
use api::deadline::Deadline;
pub use api::links::{kind, reason};
use api::requests::{ApiError, NodeCondition, ReconcileError, Requests};
use block::owner::NodeIdentity;
use common::rdma::Sysfs;
use std::collections::BTreeSet;
use std::time::Duration;
use tokio::sync::Notify;
use tokio::time::sleep;

/// The shortest time between two writes. A shorter `--report-interval` makes it shorter.
pub const EVERY: Duration = Duration::from_secs(10);

/// The longest pause after a rejected write. The role may be granted while the agent runs.
const REFUSED: Duration = Duration::from_secs(300);

/// The longest pause after a write without an answer.
const UNANSWERED: Duration = Duration::from_secs(60);

/// The maximum number of writes per second to Nodes, of all agents together, when a switch or the subnet manager restarts and all
/// nodes report a change. The API server sends each write to every watch of Nodes.
const WRITES_A_SECOND: f64 = 200.0;

/// How long a node with this random `chance` (0 to 1) waits before it reports something that all nodes may have to report.
pub fn delay(agent: &Agent, chance: f64) -> Duration {
    turn(agent.known_nodes(), every(agent), chance)
}

/// The delay in a cluster of this number of nodes. The number is 0 if no pool has blocks, from which the agent would know it.
fn turn(nodes: u64, every: Duration, chance: f64) -> Duration {
    match nodes {
        0 => every.mul_f64(chance),
        nodes => stagger::delay(nodes, WRITES_A_SECOND, chance),
    }
}

/// The shortest time between two writes of this agent.
fn every(agent: &Agent) -> Duration {
    agent.config.daemon.report_interval.min(EVERY)
}

/// Checks the links after each event (`changed`), and now and then without one. Writes the condition if it differs.
pub(super) async fn run(agent: &Agent, changed: &Notify) {
    let every = every(agent);
    let mut seen = Observed::new(agent);
    let mut writer = ConditionWriter::default();
    let api = agent.clients.requests(Deadline::background());
    let mut pause = Duration::ZERO;
    loop {
        // A change that lasts only a moment is reported by Events and metrics alone.
        sleep(every / 10 + std::mem::take(&mut pause)).await;
        let rest = match ports().await {
            Ok(ports) => {
                let status = seen.evaluate(agent, &ports);
                let calm = status.as_ref().is_none_or(|status| status.healthy);
                match writer.write(agent, &api, status).await {
                    Ok(true) => {
                        sleep(every).await;
                        continue;
                    }
                    // The state of an RDMA port may change without an event about its link.
                    Ok(false) if !calm => every,
                    Ok(false) => agent.config.confirm_every(),
                    Err(e) => {
                        sleep(writer.after(&e, every)).await;
                        continue;
                    }
                }
            }
            Err(e) => {
                tracing::warn!(error = e, "reading links failed; retrying");
                every
            }
        };
        tokio::select! {
            // All nodes of a fabric may see the same event now. The condition is computed after the pause.
            () = changed.notified() => pause = delay(agent, fastrand::f64()),
            () = sleep(rest) => {}
        }
    }
}

async fn ports() -> Result<LinkPorts, String> {
    let looked = tokio::task::spawn_blocking(|| ports::look(&Sysfs::host())).await;
    looked.unwrap_or_else(|e| Err(format!("the thread ended: {e}")))
}

/// The links of earlier rounds.
struct Observed {
    history: CarrierHistory,
    /// The links that the metrics serve as expected to have carrier.
    expected: BTreeSet<String>,
}

impl Observed {
    fn new(agent: &Agent) -> Self {
        Self {
            history: CarrierHistory::read(&agent.config.data_dir),
            expected: BTreeSet::new(),
        }
    }

    fn evaluate(&mut self, agent: &Agent, ports: &LinkPorts) -> Option<LinkStatus> {
        let scope = &agent.config.links;
        let evaluator = Evaluator {
            ports,
            scope,
            seen: self.history.seen(),
        };
        let (status, carrying) = (evaluator.status(), evaluator.carrying());
        let expected = evaluator.expected();
        agent.metrics.expect_links(&self.expected, &expected);
        self.expected = expected;
        if *scope == LinkScope::Rdma {
            self.history.add(carrying);
        }
        status
    }
}

/// The new condition; none if the Node should have no such condition.
fn wanted(scope: &LinkScope, status: Option<LinkStatus>, is_set: bool) -> Option<NodeCondition> {
    let (status, reason, message) = match status {
        Some(status) if status.healthy => ("True", status.reason, status.message),
        Some(status) => ("False", status.reason, status.message),
        None if !is_set || *scope == LinkScope::Nothing => return None,
        None => (
            "Unknown",
            reason::NO_LINKS,
            format!("no link matches --links {scope}: the links are gone, in pods, or set down"),
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
struct ConditionWriter {
    /// The current condition was read from the API server once.
    asked: bool,
    failures: u32,
    /// The last logged reason why nothing is written.
    problem: Option<String>,
}

impl ConditionWriter {
    /// Writes `status` into the condition if that differs. Returns whether a write was needed. If no link counts and the Node
    /// never had the condition, none is created. With `--links none` an existing condition is removed.
    async fn write(
        &mut self,
        agent: &Agent,
        api: &Requests,
        status: Option<LinkStatus>,
    ) -> Result<bool, ReconcileError> {
        let current = || agent.node_condition(kind::LINKS_READY);
        // Only this agent writes the condition.
        if status.is_none() && self.asked && current().is_none() {
            return Ok(false);
        }
        agent.refresh_node(api, agent.config.confirm_every()).await?;
        self.asked = true;
        let wanted = wanted(&agent.config.links, status, current().is_some());
        if agent
            .identity()
            .is_none_or(|me| matches!(me, NodeIdentity::Gone(_)))
            || current() == wanted
        {
            return Ok(false);
        }
        agent
            .write_node_condition(api, kind::LINKS_READY, wanted.clone())
            .await?;
        if let Some(wanted) = wanted {
            tracing::info!(
                condition = kind::LINKS_READY,
                status = wanted.status,
                reason = wanted.reason,
                text = wanted.message,
                "wrote a Node condition"
            );
        }
        if self.problem.take().is_some() {
            tracing::info!(
                condition = kind::LINKS_READY,
                "writing a Node condition works again"
            );
        }
        self.failures = 0;
        Ok(true)
    }

    /// How long to wait after a failure. Each failure is logged once.
    fn after(&mut self, failure: &ReconcileError, every: Duration) -> Duration {
        self.failures = self.failures.saturating_add(1);
        let problem = failure.to_string();
        if self.problem.as_ref() != Some(&problem) {
            tracing::warn!(
                condition = kind::LINKS_READY,
                error = problem,
                "writing a Node condition failed; retrying: ClusterRole rdmanet-agent in conf/rbac may patch nodes/status, and --links none turns the condition off"
            );
            self.problem = Some(problem);
        }
        let most = match failure {
            ReconcileError::Api(ApiError::Rejected { .. }) => REFUSED,
            _ => UNANSWERED,
        };
        let doubled = every.saturating_mul(1 << self.failures.min(10));
        // Spreads out the retries of the agents of a cluster.
        doubled.min(most.max(every)).mul_f64(0.75 + fastrand::f64() / 2.0)
    }
}

#[cfg(test)]
mod tests;
