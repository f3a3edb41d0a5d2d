// SPDX-License-Identifier: Apache-2.0
//! The main loop of a reconciler: rounds, which run in the background, and answers, for which plugins wait.
//!
//! Invariant: a plugin request shortens the current round to [`api::patience::GRACE`]. A healthy API server still answers the
//! requests of the round in that time.

use super::backoff::{Backoff, Round};
use super::mailbox::{Mailbox, Received};
use super::{Message, PendingRequest, PluginRequest, PoolReconciler, Response};
use crate::agent::ReconcileError;
use api::patience::{self, Hurry, QUESTION};
use common::cni::{Code, Error};
use ipam::agent::{Reply, Verb};
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep_until};
use tokio_util::sync::CancellationToken;

/// A part of a round. If a plugin waits, the requests of one part may use up the time of the whole round. So the next round
/// begins with the next part.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Part {
    /// Takes the next steps of each block and updates the file.
    Blocks,
    /// Claims blocks ahead of need.
    Claim,
    /// Frees addresses of pods that are gone.
    Collect,
    /// Reports the use of blocks and the generation of the pool that this node observes.
    Report,
}

impl Part {
    const ALL: [Self; 4] = [Self::Blocks, Self::Claim, Self::Collect, Self::Report];

    /// The next part.
    pub(super) fn next(self) -> Self {
        match self {
            Self::Blocks => Self::Claim,
            Self::Claim => Self::Collect,
            Self::Collect => Self::Report,
            Self::Report => Self::Blocks,
        }
    }

    /// All parts, beginning with this one.
    pub(super) fn and_others(self) -> impl Iterator<Item = Self> {
        std::iter::successors(Some(self), |part| Some(part.next())).take(Self::ALL.len())
    }
}

impl PoolReconciler {
    /// Runs until `stop`. It begins once the API server has listed pools and blocks (`told`), so that objects missing from a cold
    /// cache are not treated as deleted. After `stop` the current round has a moment left, and a plugin's request its full time.
    pub async fn run(
        mut self,
        messages: mpsc::Receiver<Message>,
        told: CancellationToken,
        stop: CancellationToken,
    ) {
        let mut mailbox = Mailbox::new(messages);
        tokio::select! {
            () = told.cancelled() => {}
            () = stop.cancelled() => return,
            () = self.postpone(&mut mailbox) => return,
        }
        let mut backoff = Backoff::new(self.agent.config.tick);
        while mailbox.is_open() {
            let round = self.round(&mut mailbox, &stop).await;
            let mut until = Instant::now() + backoff.after(round, fastrand::f64());
            if let (Round::Succeeded, Some(turn)) = (round, self.reports.next()) {
                until = until.min(turn);
            }
            loop {
                if stop.is_cancelled() {
                    return;
                }
                if let Some(question) = mailbox.next_request() {
                    self.handle_request(*question).await;
                    continue;
                }
                if mailbox.has_change() && backoff.may_wake() {
                    break;
                }
                tokio::select! {
                    () = stop.cancelled() => return,
                    () = sleep_until(until) => break,
                    _ = mailbox.receive(), if mailbox.is_open() => {}
                }
            }
        }
    }

    /// Before the first lists are complete, answers each plugin with the reason, but only when its time is over: the lists may
    /// complete at any moment. Returns when the mailbox is closed.
    async fn postpone(&self, mailbox: &mut Mailbox) {
        while mailbox.is_open() {
            let end = mailbox.next_deadline();
            let time_is_over = async {
                match end {
                    Some(end) => sleep_until(end).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                _ = mailbox.receive() => {}
                () = time_is_over => if let Some(question) = mailbox.next_request().filter(|question| !self.has_timed_out(question)) {
                    let why = format!(
                        "pool {}: this node's agent has not heard of pools and blocks from the API server since it started; see its log, and whether the API server can be reached from this node",
                        self.pool
                    );
                    let reply = Reply::refused(Error::new(Code::API_UNREACHABLE, why));
                    self.agent.metrics.answered(&self.pool, question.request.verb, &reply);
                    let _ = question.answer.send(Response::Reply(reply));
                },
            }
        }
    }

    /// Runs one round. If a plugin request arrives, the round ends soon, whatever the API server does, and the next round
    /// continues the work. A timed-out request is indistinguishable from one whose response was lost, so a round may end after
    /// any step (`api::patience`).
    async fn round(&mut self, mailbox: &mut Mailbox, stop: &CancellationToken) -> Round {
        let after_release = mailbox.begin_round();
        let hurry = Hurry::default();
        if mailbox.next_deadline().is_some() {
            // A plugin already waits when the round begins.
            hurry.tell();
        }
        let done = {
            let mut work = std::pin::pin!(hurry.concerning(self.work(after_release)));
            loop {
                tokio::select! {
                    biased;
                    done = &mut work => break done,
                    () = stop.cancelled(), if !hurry.is_told() => hurry.tell(),
                    heard = mailbox.receive(), if mailbox.is_open() => if heard != Received::Change {
                        hurry.tell();
                    },
                }
            }
        };
        match done {
            Ok(()) => Round::Succeeded,
            Err(failure) if hurry.is_told() && failure.is_unanswered() => {
                tracing::debug!(pool = %self.pool, error = %failure, "reconcile round interrupted by a plugin request");
                self.agent.metrics.round_interrupted(&self.pool);
                Round::Interrupted
            }
            Err(failure) => {
                tracing::warn!(pool = %self.pool, error = %failure, "reconcile round failed");
                self.agent.metrics.round_failed(&self.pool);
                Round::Failed
            }
        }
    }

    /// The work of one round.
    async fn work(&mut self, after_release: bool) -> Result<(), ReconcileError> {
        let released = if after_release {
            self.release_ended().await
        } else {
            Ok(())
        };
        Box::pin(self.reconcile()).await.and(released)
    }

    /// Whether the plugin timed out before its request was handled.
    fn has_timed_out(&self, question: &PluginRequest) -> bool {
        if !question.answer.is_closed() {
            return false;
        }
        let attachment = question.request.attachment.as_ref();
        tracing::warn!(
            pool = %self.pool, attachment = attachment.map(|asked| asked.owner.to_string()),
            seconds = question.asked.elapsed().as_secs_f64(), "plugin request timed out before it was handled"
        );
        self.agent.metrics.request_timed_out(&self.pool);
        true
    }

    /// Answers a plugin, unless it has timed out.
    async fn handle_request(&mut self, question: PluginRequest) {
        if self.has_timed_out(&question) {
            return;
        }
        let PluginRequest {
            request,
            answer,
            asked,
            told,
            waits,
        } = question;
        let since = asked.into_std();
        self.pending = (request.verb != Verb::Status).then_some(PendingRequest { since, told });
        let said = patience::until(asked + QUESTION, self.answer(&request, waits)).await;
        self.pending = None;
        if let Response::Reply(reply) = &said {
            self.agent.metrics.answered(&self.pool, request.verb, reply);
        }
        // The plugin may have timed out meanwhile.
        let _ = answer.send(said);
    }
}

#[cfg(test)]
mod tests;
