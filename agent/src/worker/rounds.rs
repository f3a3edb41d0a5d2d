// SPDX-License-Identifier: Apache-2.0
//! What a worker does in turn: rounds, for which nobody waits, and answers, for which plugins do.
//!
//! Holds always: no plugin waits for a round longer than [`crate::patience::GRACE`], and what plugins ask while a round is under
//! way does not keep it from the requests that an API server which is well answers in that time.

use super::inbox::{Heard, Inbox};
use super::rhythm::{Rhythm, Round};
use super::{Answer, Asking, Message, Question, Worker};
use crate::agent::Failure;
use crate::patience::{self, Hurry, QUESTION};
use common::cni::{Code, Error};
use ipam::agent::{Reply, Verb};
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep_until};
use tokio_util::sync::CancellationToken;

/// A part of a round. Requests of one part may use up the time of a round that plugins wait for; so each part has its turn to be
/// the first one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Part {
    /// Blocks go the steps that they have to go, and the file follows.
    Settle,
    /// Blocks are claimed ahead of need.
    Claim,
    /// Addresses of pods that are gone are freed.
    Collect,
    /// The use of blocks is told, and edits of the pool are noted.
    Tell,
}

impl Part {
    const ALL: [Self; 4] = [Self::Settle, Self::Claim, Self::Collect, Self::Tell];

    /// The part that comes after this one.
    pub(super) fn next(self) -> Self {
        match self {
            Self::Settle => Self::Claim,
            Self::Claim => Self::Collect,
            Self::Collect => Self::Tell,
            Self::Tell => Self::Settle,
        }
    }

    /// All parts, this one first.
    pub(super) fn and_others(self) -> impl Iterator<Item = Self> {
        std::iter::successors(Some(self), |part| Some(part.next())).take(Self::ALL.len())
    }
}

impl Worker {
    /// Works from when the API server has `told` of pools and blocks, so that what is only not told yet is not taken for gone,
    /// until `stop`; what has begun then has a moment left, and a question its time.
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

    /// Tells plugins why there is no answer, each when its time is over and not before: there may be one any moment. Ends when
    /// nobody is left that may ask.
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

    /// One round. A plugin that asks meanwhile has it end soon, whatever the API server does; the next round goes on, since
    /// every step may be the last one: a request that is given up is one whose answer is lost (`crate::patience`).
    async fn round(&mut self, inbox: &mut Inbox, stop: &CancellationToken) -> Round {
        let after_release = inbox.begin_round();
        let hurry = Hurry::default();
        if inbox.next_end().is_some() {
            // Asked before anything was told.
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
            Err(failure) if hurry.is_told() && failure.is_silence() => {
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

    /// Whatever a round has to do.
    async fn work(&mut self, after_release: bool) -> Result<(), Failure> {
        let released = if after_release {
            self.release_spooled().await
        } else {
            Ok(())
        };
        Box::pin(self.reconcile()).await.and(released)
    }

    /// Whether the plugin has given up before it was its turn.
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

    /// Answers a plugin, unless it has given up.
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
        // The plugin may have given up meanwhile.
        let _ = answer.send(said);
    }
}

#[cfg(test)]
mod tests;
