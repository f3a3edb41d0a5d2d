// SPDX-License-Identifier: Apache-2.0
//! The main loop of a worker: rounds, which run in the background, and answers, for which plugins wait.
//!
//! Invariant: a plugin request shortens the current round to [`api::patience::GRACE`]. A healthy API server still answers the
//! requests of the round in that time.

use super::inbox::{Heard, Inbox};
use super::rhythm::{Rhythm, Round};
use super::{Answer, Asking, Message, Question, Worker};
use crate::agent::Failure;
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
    Settle,
    /// Claims blocks ahead of need.
    Claim,
    /// Frees addresses of pods that are gone.
    Collect,
    /// Reports the use of blocks and the generation of the pool that this node observes.
    Tell,
}

impl Part {
    const ALL: [Self; 4] = [Self::Settle, Self::Claim, Self::Collect, Self::Tell];

    /// The next part.
    pub(super) fn next(self) -> Self {
        match self {
            Self::Settle => Self::Claim,
            Self::Claim => Self::Collect,
            Self::Collect => Self::Tell,
            Self::Tell => Self::Settle,
        }
    }

    /// All parts, beginning with this one.
    pub(super) fn and_others(self) -> impl Iterator<Item = Self> {
        std::iter::successors(Some(self), |part| Some(part.next())).take(Self::ALL.len())
    }
}

impl Worker {
    /// Runs until `stop`. It begins once the API server has listed pools and blocks (`told`), so that objects missing from a cold
    /// cache are not treated as deleted. After `stop` the current round has a moment left, and a plugin's request its full time.
    pub async fn run(
        mut self,
        messages: mpsc::Receiver<Message>,
        told: CancellationToken,
        stop: CancellationToken,
    ) {
        let mut inbox = Inbox::new(messages);
        tokio::select! {
            () = told.cancelled() => {}
            () = stop.cancelled() => return,
            () = self.put_off(&mut inbox) => return,
        }
        let mut rhythm = Rhythm::new(self.agent.config.tick);
        while inbox.is_open() {
            let round = self.round(&mut inbox, &stop).await;
            let mut until = Instant::now() + rhythm.after(round, fastrand::f64());
            if let (Round::Well, Some(turn)) = (round, self.mirrored.next()) {
                until = until.min(turn);
            }
            loop {
                if stop.is_cancelled() {
                    return;
                }
                if let Some(question) = inbox.next_question() {
                    self.attend(*question).await;
                    continue;
                }
                if inbox.has_news() && rhythm.hears_news() {
                    break;
                }
                tokio::select! {
                    () = stop.cancelled() => return,
                    () = sleep_until(until) => break,
                    _ = inbox.hear(), if inbox.is_open() => {}
                }
            }
        }
    }

    /// Before the first lists are complete, answers each plugin with the reason, but only when its time is over: the lists may
    /// complete at any moment. Returns when the inbox is closed.
    async fn put_off(&self, inbox: &mut Inbox) {
        while inbox.is_open() {
            let end = inbox.next_end();
            let time_is_over = async {
                match end {
                    Some(end) => sleep_until(end).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                _ = inbox.hear() => {}
                () = time_is_over => if let Some(question) = inbox.next_question().filter(|question| !self.is_missed(question)) {
                    let why = format!(
                        "pool {}: this node's agent has not heard of pools and blocks from the API server since it started; see its log, and whether the API server can be reached from this node",
                        self.pool
                    );
                    let reply = Reply::refused(Error::new(Code::API_UNREACHABLE, why));
                    self.agent.metrics.answered(&self.pool, question.request.verb, &reply);
                    let _ = question.answer.send(Answer::Reply(reply));
                },
            }
        }
    }

    /// Runs one round. If a plugin request arrives, the round ends soon, whatever the API server does, and the next round
    /// continues the work. A timed-out request is indistinguishable from one whose response was lost, so a round may end after
    /// any step (`api::patience`).
    async fn round(&mut self, inbox: &mut Inbox, stop: &CancellationToken) -> Round {
        let after_release = inbox.begin_round();
        let hurry = Hurry::default();
        if inbox.next_end().is_some() {
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
                    heard = inbox.hear(), if inbox.is_open() => if heard != Heard::News {
                        hurry.tell();
                    },
                }
            }
        };
        match done {
            Ok(()) => Round::Well,
            Err(failure) if hurry.is_told() && failure.is_unanswered() => {
                tracing::debug!(pool = %self.pool, error = %failure, "a round was cut short for a plugin and continues later");
                self.agent.metrics.cut(&self.pool);
                Round::Cut
            }
            Err(failure) => {
                tracing::warn!(pool = %self.pool, error = %failure, "the pool is not as it should be on this node");
                self.agent.metrics.failed(&self.pool);
                Round::Badly
            }
        }
    }

    /// The work of one round.
    async fn work(&mut self, after_release: bool) -> Result<(), Failure> {
        let released = if after_release {
            self.release_spooled().await
        } else {
            Ok(())
        };
        Box::pin(self.reconcile()).await.and(released)
    }

    /// Whether the plugin timed out before its request was handled.
    fn is_missed(&self, question: &Question) -> bool {
        if !question.answer.is_closed() {
            return false;
        }
        let attachment = question.request.attachment.as_ref();
        tracing::warn!(
            pool = %self.pool, attachment = attachment.map(|asked| asked.owner.to_string()),
            seconds = question.asked.elapsed().as_secs_f64(), "a plugin has given up before it was its turn"
        );
        self.agent.metrics.missed(&self.pool);
        true
    }

    /// Answers a plugin, unless it has timed out.
    async fn attend(&mut self, question: Question) {
        if self.is_missed(&question) {
            return;
        }
        let Question {
            request,
            answer,
            asked,
            told,
            waits,
        } = question;
        let since = asked.into_std();
        self.asking = (request.verb != Verb::Status).then_some(Asking { since, told });
        let said = patience::until(asked + QUESTION, self.answer(&request, waits)).await;
        self.asking = None;
        if let Answer::Reply(reply) = &said {
            self.agent.metrics.answered(&self.pool, request.verb, reply);
        }
        // The plugin may have timed out meanwhile.
        let _ = answer.send(said);
    }
}

#[cfg(test)]
mod tests;
