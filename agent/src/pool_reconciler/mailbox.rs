// SPDX-License-Identifier: Apache-2.0
//! Messages that a reconciler has received and not handled yet.

use super::{Message, PluginRequest, Response};
use api::deadline::PLUGIN_LIMIT;
use ipam::agent::{Reply, Verb};
use std::collections::VecDeque;
use tokio::sync::mpsc;
use tokio::time::Instant;

/// The kind of a received message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Received {
    /// A plugin waits for an answer.
    PluginRequest,
    /// There is background work.
    Change,
    /// All senders are gone.
    Closed,
}

/// The mailbox of a reconciler.
pub(super) struct Mailbox {
    messages: mpsc::Receiver<Message>,
    requests: VecDeque<Box<PluginRequest>>,
    changed: bool,
    releases: bool,
    open: bool,
}

impl Mailbox {
    pub(super) fn new(messages: mpsc::Receiver<Message>) -> Self {
        Self {
            messages,
            requests: VecDeque::new(),
            changed: false,
            releases: false,
            open: true,
        }
    }

    /// Waits for a message. The call may be cancelled at any moment: received messages are stored.
    pub(super) async fn receive(&mut self) -> Received {
        match self.messages.recv().await {
            None => {
                self.open = false;
                Received::Closed
            }
            Some(Message::Reconcile) => {
                self.changed = true;
                Received::Change
            }
            Some(Message::Request(request)) if request.request.verb == Verb::Release => {
                (self.changed, self.releases) = (true, true);
                let _ = request.answer.send(Response::Reply(Reply::Done));
                Received::Change
            }
            Some(Message::Request(request)) => {
                self.requests.push_back(request);
                Received::PluginRequest
            }
        }
    }

    /// Whether more messages may arrive.
    pub(super) fn is_open(&self) -> bool {
        self.open
    }

    /// The request that has waited longest.
    pub(super) fn next_request(&mut self) -> Option<Box<PluginRequest>> {
        self.requests.pop_front()
    }

    /// The deadline of the oldest request.
    pub(super) fn next_deadline(&self) -> Option<Instant> {
        self.requests.front().map(|request| request.asked + PLUGIN_LIMIT)
    }

    /// Whether something has changed since a round began.
    pub(super) fn has_change(&self) -> bool {
        self.changed
    }

    /// Begins a round and clears the change. Returns whether plugins have released addresses that are objects.
    pub(super) fn begin_round(&mut self) -> bool {
        self.changed = false;
        std::mem::take(&mut self.releases)
    }
}

#[cfg(test)]
mod tests;
