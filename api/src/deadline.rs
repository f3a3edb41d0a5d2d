// SPDX-License-Identifier: Apache-2.0
//! Time limits of requests to the API server. The limit depends on whether a plugin waits for the result.
//!
//! Most requests are background work. Such a request gets as much time as an overloaded API server may keep it in its
//! queue. A client that times out earlier and retries only makes that queue longer, and thousands of agents start at
//! once. If a plugin waits, one deadline covers all requests on its behalf. If background work turns out to delay a
//! plugin or a shutdown, [`GRACE`] remains for it.
//!
//! Invariant: each request has a deadline, because [`crate::requests::Requests`] cannot be made without one.
//!
//! Invariant: a timed-out request is indistinguishable from one whose response was lost. It may have taken effect, may do
//! so later, or never. After a [`crate::requests::ApiError`], the caller continues from the state that the API server
//! returns next. So a request may be abandoned at any moment. In the model in `agent/block`, a sender may abandon its
//! request wherever it waits.

use std::time::Duration;
use tokio::sync::watch;
use tokio::time::{Instant, sleep_until, timeout};
use tokio_util::sync::CancellationToken;

/// The limit of a background request. The API server keeps a request in its queue for a quarter of its
/// `--request-timeout` of 60 s and then returns 429. kube's client retries after the time in `Retry-After`. Here all of
/// that is one request.
pub const BACKGROUND_LIMIT: Duration = Duration::from_secs(30);

/// The limit of all API requests for one plugin request together, counted from when the agent accepted the connection.
/// It is shorter than [`ipam::agent::LIMIT`], so that the plugin still receives the reason why there is no address.
pub const PLUGIN_LIMIT: Duration = Duration::from_secs(4);

/// The time left for background work once a plugin or a shutdown waits for it. A healthy API server answers in that time,
/// and it is a small part of [`PLUGIN_LIMIT`].
pub const GRACE: Duration = Duration::from_secs(1);

/// When requests time out.
#[derive(Clone, Debug)]
pub enum Deadline {
    /// All requests time out at this moment. A plugin waits for them.
    At(Instant),
    /// Each request times out after [`BACKGROUND_LIMIT`]. The channel carries the moment at which all of them time out
    /// once the work was interrupted.
    Background(watch::Receiver<Option<Instant>>),
}

/// A request that has no response in time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TimedOut {
    /// The deadline had passed before the request was sent.
    NotSent,
    /// The request had no response after this time.
    After(Duration),
}

/// Background work that a plugin request or a shutdown may interrupt.
#[derive(Debug)]
pub struct BackgroundWork(watch::Sender<Option<Instant>>);

impl Default for BackgroundWork {
    fn default() -> Self {
        Self(watch::Sender::new(None))
    }
}

impl BackgroundWork {
    /// The deadline of the requests of the work.
    pub fn deadline(&self) -> Deadline {
        Deadline::Background(self.0.subscribe())
    }

    /// Limits all requests of the work, the current one and later ones, to [`GRACE`] from the first call on.
    pub fn interrupt(&self) {
        self.0.send_if_modified(|end| {
            let first = end.is_none();
            end.get_or_insert_with(|| Instant::now() + GRACE);
            first
        });
    }

    /// Whether [`Self::interrupt`] was called.
    pub fn is_interrupted(&self) -> bool {
        self.0.borrow().is_some()
    }
}

impl Deadline {
    /// The deadline of background work that nothing interrupts.
    pub fn background() -> Self {
        BackgroundWork::default().deadline()
    }

    /// The deadline of background work that is interrupted when `stop` is cancelled.
    pub fn until_stopped(stop: CancellationToken) -> Self {
        let work = BackgroundWork::default();
        let deadline = work.deadline();
        tokio::spawn(async move {
            stop.cancelled().await;
            work.interrupt();
        });
        deadline
    }

    /// Returns the result of `request`, unless it times out.
    ///
    /// # Errors
    /// [`TimedOut`].
    pub async fn limit<T>(&self, request: impl Future<Output = T>) -> Result<T, TimedOut> {
        let begun = Instant::now();
        if self.end().is_some_and(|end| end <= begun) {
            return Err(TimedOut::NotSent);
        }
        tokio::select! {
            biased;
            done = request => Ok(done),
            () = self.passes() => Err(TimedOut::After(begun.elapsed())),
        }
    }

    fn end(&self) -> Option<Instant> {
        match self {
            Self::At(end) => Some(*end),
            Self::Background(end) => *end.borrow(),
        }
    }

    /// Waits until a request that begins now has timed out.
    async fn passes(&self) {
        let end = match self {
            Self::At(end) => return sleep_until(*end).await,
            Self::Background(end) => end,
        };
        let mut end = end.clone();
        let interrupted = async {
            match end.wait_for(Option::is_some).await.map(|end| *end) {
                Ok(Some(end)) => sleep_until(end).await,
                _ => std::future::pending().await,
            }
        };
        let _ = timeout(BACKGROUND_LIMIT, interrupted).await;
    }
}

#[cfg(test)]
mod tests;
