// SPDX-License-Identifier: Apache-2.0
//! Attachments in the journal of `cni-ipoib`. The collector lists and removes them; this agent decides.

use super::client::{self, ClientError};
use super::evidence::evidence;
use super::report;
use crate::agent::Agent;
use crate::suspects::Suspects;
use api::requests::ReconcileError;
use common::collector::{DeadAttachment, Reply};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// The label of the metrics.
const KIND: &str = "attachment";

/// The attachments whose DEL seems to be lost.
pub(super) struct Attachments {
    agent: Arc<Agent>,
    suspects: Suspects<DeadAttachment>,
    /// Whether the node has a collector, as far as this agent knows: one has listened. A cluster may leave the container out.
    is_present: bool,
    /// Why the last request for the list failed, already logged.
    last_error: Option<String>,
}

impl Attachments {
    pub(super) fn new(agent: Arc<Agent>) -> Self {
        Self {
            agent,
            suspects: Suspects::default(),
            is_present: false,
            last_error: None,
        }
    }

    /// Removes what is proven unused, and remembers what is suspect.
    pub(super) async fn collect(&mut self) {
        self.suspects.begin_round();
        let dead = match client::list(&self.agent.config.collector).await {
            Ok(dead) => dead,
            Err(error) => return self.report_silence(&error),
        };
        self.is_present = true;
        self.agent.metrics.collector_answers(true);
        if self.last_error.take().is_some() {
            tracing::info!(socket = %self.agent.config.collector.display(), "the collector answers");
        }
        if let Err(e) = self.collect_all(dead).await {
            report(&e, "attachments");
        }
    }

    async fn collect_all(&mut self, dead: Vec<DeadAttachment>) -> Result<(), ReconcileError> {
        let mut left = 0;
        for dead in dead {
            let Some(evidence) = evidence(&self.agent, &dead.pod, dead.replaced).await? else {
                continue;
            };
            let suspected = self.suspects.observe(&dead, Instant::now());
            let proven = suspected >= self.agent.config.daemon.observation_interval;
            if proven && !self.remove(&dead, suspected, &evidence).await {
                left += 1;
            }
        }
        self.agent.metrics.uncollected(left);
        Ok(())
    }

    /// Returns whether nothing of the attachment is left.
    async fn remove(&mut self, dead: &DeadAttachment, suspected: Duration, evidence: &str) -> bool {
        let DeadAttachment {
            network,
            attachment,
            pod,
            ..
        } = dead;
        let why = match client::collect(&self.agent.config.collector, dead, suspected).await {
            Ok(Reply::Collected) => {
                tracing::warn!(network, %attachment, pod = %pod.name, namespace = %pod.namespace, uid = %pod.uid, seconds = suspected.as_secs(), evidence, "collected an attachment without a pod");
                self.agent.metrics.collected(KIND);
                return true;
            }
            Ok(Reply::Kept(why) | Reply::Failed(why)) => why,
            Ok(other @ Reply::Dead(_)) => format!("unexpected reply {other:?}"),
            Err(error) => error.to_string(),
        };
        if self.suspects.is_news(dead, &why) {
            tracing::warn!(network, %attachment, pod = %pod.name, namespace = %pod.namespace, why, "removing an attachment without a pod failed");
        }
        false
    }

    /// Logs each reason once, and sets the count of what is left to 0: it is unknown, and the last count would stay until the agent
    /// ends. Such a round confirms no suspicion: two observations prove something only if no restart of the collector is between
    /// them.
    fn report_silence(&mut self, error: &ClientError) {
        self.agent.metrics.uncollected(0);
        self.is_present |= !matches!(error, ClientError::Absent);
        if self.is_present {
            self.agent.metrics.collector_answers(false);
        }
        let (why, socket) = (error.to_string(), self.agent.config.collector.display());
        if self.last_error.as_ref() == Some(&why) {
            return;
        }
        if matches!(error, ClientError::Absent) {
            tracing::info!(%socket, "no collector listens; attachments without a pod wait for DEL or GC");
        } else {
            tracing::warn!(%socket, error = why, "asking the collector failed");
        }
        self.last_error = Some(why);
    }
}
