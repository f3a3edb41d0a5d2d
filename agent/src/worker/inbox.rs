// SPDX-License-Identifier: Apache-2.0
//! Messages that a worker has received and not handled yet.

use super::{Answer, Message, Question};
use api::patience::QUESTION;
use ipam::agent::{Reply, Verb};
use std::collections::VecDeque;
use tokio::sync::mpsc;
use tokio::time::Instant;

/// The kind of a received message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Heard {
    /// A plugin waits for an answer.
    Question,
    /// There is background work.
    News,
    /// All senders are gone.
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

    /// Waits for a message. The call may be cancelled at any moment: received messages are stored.
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

    /// Whether more messages may arrive.
    pub(super) fn is_open(&self) -> bool {
        self.open
    }

    /// The question that has waited longest.
    pub(super) fn next_question(&mut self) -> Option<Box<Question>> {
        self.questions.pop_front()
    }

    /// When the oldest question must be answered.
    pub(super) fn next_end(&self) -> Option<Instant> {
        self.questions.front().map(|question| question.asked + QUESTION)
    }

    /// Whether something has changed since a round began.
    pub(super) fn has_news(&self) -> bool {
        self.news
    }

    /// Begins a round and clears the news. Returns whether plugins have released addresses that are objects.
    pub(super) fn begin_round(&mut self) -> bool {
        self.news = false;
        std::mem::take(&mut self.releases)
    }
}

#[cfg(test)]
mod tests;
