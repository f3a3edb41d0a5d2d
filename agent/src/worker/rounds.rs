// SPDX-License-Identifier: Apache-2.0
//! What a worker does in turn: rounds, for which nobody waits, and answers, for which plugins do.
//!
//! Holds always: no plugin waits for a round longer than [`crate::patience::GRACE`], and what plugins ask while a round is under
//! way does not keep it from the requests that an API server which is well answers in that time.

use super::inbox::{Heard, Inbox};
use super::rhythm::{Rhythm, Round};
use super::{Message, Question, Worker};
use crate::agent::Failure;
use crate::patience::{self, Hurry, QUESTION};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

impl Worker {
    /// Works until `stop`; what has begun then has a moment left, and a question its time.
    pub async fn run(mut self, messages: mpsc::Receiver<Message>, stop: CancellationToken) {
        let mut inbox = Inbox::new(messages);
        let mut rhythm = Rhythm::new(self.agent.config.tick);
        while inbox.is_open() {
            let round = self.round(&mut inbox, &stop).await;
            let until = tokio::time::Instant::now() + rhythm.after(round, fastrand::f64());
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
                    () = tokio::time::sleep_until(until) => break,
                    _ = inbox.hear(), if inbox.is_open() => {}
                }
            }
        }
    }

    /// One round. A plugin that asks meanwhile has it end soon, whatever the API server does; the next round goes on, since
    /// every step may be the last one: a request that is given up is one whose answer is lost (`crate::patience`).
    async fn round(&mut self, inbox: &mut Inbox, stop: &CancellationToken) -> Round {
        let after_release = inbox.begin_round();
        let hurry = Hurry::default();
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
                tracing::debug!(pool = %self.pool, error = %failure, "a round was in the way and goes on later");
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
        self.reconcile().await.and(released)
    }

    /// Answers a plugin, unless it has given up.
    async fn attend(&mut self, question: Question) {
        let Question {
            request,
            answer,
            asked,
        } = question;
        if answer.is_closed() {
            let attachment = request.attachment.as_ref().map(|asked| asked.owner.to_string());
            tracing::warn!(
                pool = %self.pool, attachment, seconds = asked.elapsed().as_secs_f64(),
                "a plugin has given up before it was its turn"
            );
            self.agent.metrics.missed(&self.pool);
            return;
        }
        let reply = patience::until(asked + QUESTION, self.answer(&request)).await;
        self.agent.metrics.answered(&self.pool, request.verb, &reply);
        // The plugin may have given up meanwhile.
        let _ = answer.send(reply);
    }
}
