// SPDX-License-Identifier: Apache-2.0
//! The loop of a pool: rounds, which run in the background, and plugin requests, for which plugins wait.
//!
//! Invariant: a plugin request shortens the current round to [`api::deadline::GRACE`]. A healthy API server still answers the
//! requests of the round in that time.

use super::backoff::{Backoff, Round};
use super::mailbox::{Mailbox, Received};
use super::{Message, PoolReconciler};
use api::deadline::BackgroundWork;
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep_until};
use tokio_util::sync::CancellationToken;

/// A running reconciler and its messages.
struct RunLoop {
    reconciler: PoolReconciler,
    mailbox: Mailbox,
    backoff: Backoff,
    stop: CancellationToken,
}

impl PoolReconciler {
    /// Runs until `stop`. It begins once the API server has listed pools and blocks (`listed`), so that objects missing from a
    /// cold cache are not treated as deleted. After `stop` the current round has a moment left, and a plugin's request its full
    /// time.
    pub(crate) async fn run(
        self,
        messages: mpsc::Receiver<Message>,
        listed: CancellationToken,
        stop: CancellationToken,
    ) {
        let mut run = RunLoop {
            backoff: Backoff::new(self.context.agent.config.daemon.reconcile_interval),
            mailbox: Mailbox::new(messages),
            reconciler: self,
            stop: stop.clone(),
        };
        tokio::select! {
            () = listed.cancelled() => {}
            () = stop.cancelled() => return,
            () = run.postpone() => return,
        }
        while run.mailbox.is_open() && !stop.is_cancelled() {
            let round = run.round().await;
            run.wait_after(round).await;
        }
    }
}

impl RunLoop {
    /// Before the first lists are complete, answers each plugin with the reason, but only when its time is over: the lists may
    /// complete at any moment. Returns when the mailbox is closed.
    async fn postpone(&mut self) {
        while self.mailbox.is_open() {
            let deadline = self.mailbox.next_deadline();
            let time_is_over = async {
                match deadline {
                    Some(deadline) => sleep_until(deadline).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                _ = self.mailbox.receive() => {}
                () = time_is_over => if let Some(request) = self.mailbox.next_request() {
                    self.reconciler.reject_unlisted(*request);
                },
            }
        }
    }

    /// Runs one round. If a plugin request arrives, the round ends soon, whatever the API server does, and the next round
    /// continues the work. A timed-out request is indistinguishable from one whose response was lost, so a round may end after
    /// any step (`api::deadline`).
    async fn round(&mut self) -> Round {
        let after_release = self.mailbox.begin_round();
        let background = BackgroundWork::default();
        let api = self
            .reconciler
            .context
            .agent
            .clients
            .requests(background.deadline());
        if self.mailbox.next_deadline().is_some() {
            // A plugin already waits when the round begins.
            background.interrupt();
        }
        let done = {
            let mut work = std::pin::pin!(self.reconciler.work(&api, after_release));
            loop {
                tokio::select! {
                    biased;
                    done = &mut work => break done,
                    () = self.stop.cancelled(), if !background.is_interrupted() => background.interrupt(),
                    received = self.mailbox.receive(), if self.mailbox.is_open() => if received != Received::Change {
                        background.interrupt();
                    },
                }
            }
        };
        let context = &self.reconciler.context;
        match done {
            Ok(()) => Round::Succeeded,
            Err(_) if self.stop.is_cancelled() => Round::Interrupted,
            Err(failure) if background.is_interrupted() && failure.is_unanswered() => {
                tracing::debug!(pool = %context.pool, error = %failure, "reconcile round interrupted by a plugin request");
                context.agent.metrics.round_interrupted(&context.pool);
                Round::Interrupted
            }
            Err(failure) => {
                tracing::warn!(pool = %context.pool, error = %failure, "reconcile round failed");
                context.agent.metrics.round_failed(&context.pool);
                if failure.is_refusal() {
                    Round::Refused
                } else {
                    Round::Failed
                }
            }
        }
    }

    /// Answers plugin requests until the next round is due, or until `stop`.
    async fn wait_after(&mut self, round: Round) {
        let mut until = Instant::now() + self.backoff.after(round, fastrand::f64());
        if let (Round::Succeeded, Some(turn)) = (round, self.reconciler.usage.next_turn()) {
            until = until.min(turn);
        }
        while !self.stop.is_cancelled() {
            if let Some(request) = self.mailbox.next_request() {
                self.reconciler.handle(*request).await;
                continue;
            }
            if self.mailbox.has_change() && self.backoff.may_wake() {
                return;
            }
            tokio::select! {
                () = self.stop.cancelled() => return,
                () = sleep_until(until) => return,
                _ = self.mailbox.receive(), if self.mailbox.is_open() => {}
            }
        }
    }
}

#[cfg(test)]
mod tests;
