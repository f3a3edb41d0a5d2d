// SPDX-License-Identifier: Apache-2.0
//! Events, as people read them on an object.
//!
//! Holds always: what is told again is counted on the Event that tells it, and what differs by a word is an Event of its own.
//! `kube`'s recorder goes by reason and object alone: the second link that a node lost would be told under the name of the
//! first.

use k8s_openapi::api::core::v1::ObjectReference;
use kube::Client;
use kube::runtime::events::{Event, Recorder, Reporter};
use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// For longer than this `kube`'s recorder does not count on an Event.
const COUNTED: Duration = Duration::from_secs(6 * 60);

/// Makes Events.
pub struct Events {
    client: Client,
    reporter: Reporter,
    by_note: Mutex<HashMap<String, (Recorder, Instant)>>,
}

impl Events {
    /// Makes them as `reporter`.
    pub fn new(client: Client, reporter: Reporter) -> Self {
        Self {
            client,
            reporter,
            by_note: Mutex::default(),
        }
    }

    /// Makes one about `what`, or counts on.
    ///
    /// # Errors
    /// Those of the request.
    pub async fn publish(&self, event: &Event, what: &ObjectReference) -> Result<(), kube::Error> {
        let note = event.note.clone().unwrap_or_default();
        let recorder = self.recorder(note, Instant::now());
        recorder.publish(event, what).await
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
