// SPDX-License-Identifier: Apache-2.0
//! What a worker has been told and has not seen to yet.

use super::{Answer, Message, Question};
use crate::patience::QUESTION;
use ipam::agent::{Reply, Verb};
use std::collections::VecDeque;
use tokio::sync::mpsc;
use tokio::time::Instant;

/// What was told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Heard {
    /// A plugin waits for an answer.
    Question,
    /// There is something to do for which nobody waits.
    News,
    /// Nobody will tell anything any more.
    Nothing,
}

/// The inbox of a worker.
pub(super) struct Inbox {
    messages: mpsc::Receiver<Message>,
    questions: VecDeque<Box<Question>>,
    news: bool,
    releases: bool,
    open: bool,
}

impl Inbox {
    pub(super) fn new(messages: mpsc::Receiver<Message>) -> Self {
        Self {
            messages,
            questions: VecDeque::new(),
            news: false,
            releases: false,
            open: true,
        }
    }

    /// Waits until something is told. What was heard is kept, so this may be given up at any moment.
    pub(super) async fn hear(&mut self) -> Heard {
        match self.messages.recv().await {
            None => {
                self.open = false;
                Heard::Nothing
            }
            Some(Message::Look) => {
                self.news = true;
                Heard::News
            }
            Some(Message::Ask(question)) if question.request.verb == Verb::Release => {
                (self.news, self.releases) = (true, true);
                let _ = question.answer.send(Answer::Reply(Reply::Done));
                Heard::News
            }
            Some(Message::Ask(question)) => {
                self.questions.push_back(question);
                Heard::Question
            }
        }
    }

    /// Whether anybody may tell something still.
    pub(super) fn is_open(&self) -> bool {
        self.open
    }

    /// The question that has waited longest.
    pub(super) fn next_question(&mut self) -> Option<Box<Question>> {
        self.questions.pop_front()
    }

    /// By when whoever has waited longest is to have an answer.
    pub(super) fn next_end(&self) -> Option<Instant> {
        self.questions.front().map(|question| question.asked + QUESTION)
    }

    /// Whether something has changed since a round began.
    pub(super) fn has_news(&self) -> bool {
        self.news
    }

    /// A round begins: whatever was told is news no longer. Returns whether plugins have released addresses that are objects.
    pub(super) fn begin_round(&mut self) -> bool {
        self.news = false;
        std::mem::take(&mut self.releases)
    }
}

#[cfg(test)]
mod tests;
