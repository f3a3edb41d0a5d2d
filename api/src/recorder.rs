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

use k8s_openapi::api::core::v1::ObjectReference;
use kube::Client;
use kube::runtime::events::{Event, Recorder, Reporter};
use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// After this time `kube`'s recorder no longer increases the count of an Event.
const COUNTED: Duration = Duration::from_secs(6 * 60);

/// The burst for one object: each of eight rails may go down and come back.
const BURST: u32 = 16;

/// How long until one more Event may be published about the object.
const REFILL: Duration = Duration::from_secs(60);

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
    /// Publishes Events in the name of `reporter`.
    pub fn new(client: Client, reporter: Reporter) -> Self {
        Self {
            client,
            reporter,
            by_note: Mutex::default(),
            limits: Mutex::default(),
        }
    }

    /// Publishes an Event about `what`, or increases the count of an earlier one. Returns false if the limit of the
    /// object is reached and nothing was published.
    ///
    /// # Errors
    /// Those of the request.
    pub async fn publish(&self, event: &Event, what: &ObjectReference) -> Result<bool, kube::Error> {
        let may = {
            let mut limits = self.limits.lock().unwrap_or_else(PoisonError::into_inner);
            limits.take(&key(what), Instant::now())
        };
        if !may {
            return Ok(false);
        }
        let note = event.note.clone().unwrap_or_default();
        let recorder = self.recorder(note, Instant::now());
        recorder.publish(event, what).await.map(|()| true)
    }

    fn recorder(&self, note: String, now: Instant) -> Recorder {
        let mut all = self.by_note.lock().unwrap_or_else(PoisonError::into_inner);
        all.retain(|_, (_, used)| now.saturating_duration_since(*used) < COUNTED);
        let new = || Recorder::new(self.client.clone(), self.reporter.clone());
        let (recorder, used) = all.entry(note).or_insert_with(|| (new(), now));
        *used = now;
        recorder.clone()
    }
}

#[cfg(test)]
mod tests;
