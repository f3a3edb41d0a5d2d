// SPDX-License-Identifier: Apache-2.0
//! Publishes Kubernetes Events about objects.
//!
//! Invariant: a repeated Event increases the count of the earlier one, and a different message makes a new Event.
//! `kube`'s recorder compares only reason and object: it would publish the second link that a node lost under the name of
//! the first.
//!
//! Invariant: about one object, `BURST` Events are published at once, and one more after each `REFILL`. `kube`'s recorder
//! has no limit. client-go has a limit of this kind for each source and object (`tools/events`, `EventCorrelator`: 25,
//! then one in 5 minutes).

use crate::client::Clients;
use crate::deadline::Deadline;
use k8s_openapi::api::core::v1::ObjectReference;
use kube::Client;
use kube::runtime::events::{Event, EventType, Recorder, Reporter};
use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// After this time `kube`'s recorder no longer increases the count of an Event.
const SERIES_TIMEOUT: Duration = Duration::from_secs(6 * 60);

/// The burst for one object: each of eight rails may go down and come back.
const BURST: u32 = 16;

/// How long until one more Event may be published about the object.
const REFILL: Duration = Duration::from_secs(60);

/// The most characters of a note. The API server rejects more than 1024 bytes.
const NOTE: usize = 1000;

/// An Event to publish.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewEvent {
    /// Whether a person should look at it.
    pub is_warning: bool,
    /// One word for programs.
    pub reason: &'static str,
    /// A sentence for people.
    pub note: String,
}

/// Publishes Events.
pub struct Events {
    client: Client,
    reporter: Reporter,
    by_note: Mutex<HashMap<String, (Recorder, Instant)>>,
    limits: Mutex<Limits>,
}

/// How many Events may be published about each object.
#[derive(Default)]
struct Limits(HashMap<String, Bucket>);

/// The remaining Events for one object.
struct Bucket {
    left: u32,
    /// When `left` was last updated.
    at: Instant,
}

impl Bucket {
    fn refill(&mut self, now: Instant) {
        let since = now.saturating_duration_since(self.at);
        let more = u32::try_from(since.as_secs() / REFILL.as_secs()).unwrap_or(BURST);
        if more > 0 {
            self.left = self.left.saturating_add(more).min(BURST);
            self.at += REFILL * more.min(BURST);
        }
        if self.left == BURST {
            self.at = now;
        }
    }
}

impl Limits {
    /// Whether another Event about `object` may be published.
    fn take(&mut self, object: &str, now: Instant) -> bool {
        self.0.retain(|_, bucket| {
            bucket.refill(now);
            bucket.left < BURST
        });
        let full = || Bucket { left: BURST, at: now };
        let bucket = self.0.entry(object.to_owned()).or_insert_with(full);
        let may = bucket.left > 0;
        bucket.left = bucket.left.saturating_sub(1);
        may
    }
}

/// The key of an object in [`Limits`].
fn key(what: &ObjectReference) -> String {
    let part = |part: &Option<String>| part.clone().unwrap_or_default();
    format!(
        "{}/{}/{}",
        part(&what.kind),
        part(&what.namespace),
        part(&what.name)
    )
}

impl Events {
    /// Publishes Events in the name of the program `controller`. `instance`: its node or replica.
    pub fn new(clients: &Clients, controller: &str, instance: &str) -> Self {
        Self {
            client: clients.for_libraries(),
            reporter: Reporter {
                controller: controller.to_owned(),
                instance: Some(instance.to_owned()),
            },
            by_note: Mutex::default(),
            limits: Mutex::default(),
        }
    }

    /// Publishes an Event about `what`, or increases the count of an earlier one. A failure is only logged.
    pub async fn publish(&self, deadline: &Deadline, what: &ObjectReference, event: NewEvent) {
        let NewEvent {
            is_warning,
            reason,
            note,
        } = event;
        if !self.may_publish(what) {
            tracing::debug!(reason, "Event not published: the limit of its object is reached");
            return;
        }
        let note: String = note.chars().take(NOTE).collect();
        let recorder = self.recorder(note.clone(), Instant::now());
        let is_node = what.kind.as_deref() == Some("Node");
        let event = Event {
            type_: if is_warning {
                EventType::Warning
            } else {
                EventType::Normal
            },
            reason: reason.to_owned(),
            note: Some(note),
            action: if is_node { "Watch" } else { "Allocate" }.to_owned(),
            secondary: None,
        };
        match deadline.limit(recorder.publish(&event, what)).await {
            Ok(Ok(())) => {}
            Ok(Err(e)) => tracing::debug!(reason, error = %e, "publishing an Event failed"),
            Err(_) => tracing::debug!(reason, "publishing an Event timed out"),
        }
    }

    /// Whether the limit of the object leaves room for another Event.
    fn may_publish(&self, what: &ObjectReference) -> bool {
        let mut limits = self.limits.lock().unwrap_or_else(PoisonError::into_inner);
        limits.take(&key(what), Instant::now())
    }

    fn recorder(&self, note: String, now: Instant) -> Recorder {
        let mut all = self.by_note.lock().unwrap_or_else(PoisonError::into_inner);
        all.retain(|_, (_, used)| now.saturating_duration_since(*used) < SERIES_TIMEOUT);
        let new = || Recorder::new(self.client.clone(), self.reporter.clone());
        let (recorder, used) = all.entry(note).or_insert_with(|| (new(), now));
        *used = now;
        recorder.clone()
    }
}

#[cfg(test)]
mod tests;
