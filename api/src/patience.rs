// SPDX-License-Identifier: Apache-2.0
//! Time limits of requests to the API server. The limit depends on whether a plugin waits for the result.
//!
//! Most requests are background work. Such a request gets as much time as an overloaded API server may keep it in its
//! queue. A client that times out earlier and retries only makes that queue longer, and thousands of agents start at
//! once. If a plugin waits, one deadline covers all requests for its question. If background work turns out to delay a
//! plugin or a shutdown, [`GRACE`] remains for it.
//!
//! The limit belongs to the task and not to each call, so no function in between can lose it. A task without a limit is
//! background work.
//!
//! Invariant: a timed-out request is indistinguishable from one whose response was lost. It may have taken effect, may do
//! so later, or never. After a [`crate::requests::ApiError`], the caller continues from the state that the API server
//! returns next. So a request may be abandoned at any moment. In the model in `agent/block`, a sender may abandon its
//! request wherever it waits.

use std::time::Duration;
use tokio::sync::watch;
use tokio::time::{Instant, sleep, sleep_until};
use tokio_util::sync::CancellationToken;

/// The limit of a background request. The API server keeps a request in its queue for a quarter of its
/// `--request-timeout` of 60 s and then returns 429. kube's client retries after the time in `Retry-After`. Here all of
/// that is one request.
pub const ALONE: Duration = Duration::from_secs(30);

/// The limit of all requests for one question of a plugin together, counted from when the agent accepted the connection.
/// It is shorter than [`ipam::agent::LIMIT`], so that the plugin still receives the reason why there is no address.
pub const QUESTION: Duration = Duration::from_secs(4);

/// The time left for background work once a plugin or a shutdown waits for it. A healthy API server answers in that time,
/// and it is a small part of [`QUESTION`].
pub const GRACE: Duration = Duration::from_secs(1);

tokio::task_local! {
    static PATIENCE: Patience;
}

/// The limit of a task.
#[derive(Clone)]
enum Patience {
    /// A plugin waits until this deadline.
    Until(Instant),
    /// Background work. The channel carries a deadline once [`Hurry::tell`] was called.
    Unless(watch::Receiver<Option<Instant>>),
}

/// Why a request has no response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Impatience {
    /// The deadline had passed before the request was sent.
    Unasked,
    /// The request timed out after this time.
    GivenUp(Duration),
}

/// Runs `work`. All its requests together have time until `end`.
pub fn until<T>(end: Instant, work: impl Future<Output = T>) -> impl Future<Output = T> {
    PATIENCE.scope(Patience::Until(end), Box::pin(work))
}

/// Runs background `work`. Once `stop` is cancelled, [`GRACE`] remains for it.
pub async fn until_stopped<T>(stop: &CancellationToken, work: impl Future<Output = T>) -> T {
    let hurry = Hurry::default();
    let mut work = std::pin::pin!(hurry.concerning(work));
    tokio::select! {
        biased;
        done = &mut work => return done,
        () = stop.cancelled() => hurry.tell(),
    }
    work.await
}

/// Signals background work that a plugin request or a shutdown is waiting for it.
pub struct Hurry(watch::Sender<Option<Instant>>);

impl Default for Hurry {
    fn default() -> Self {
        Self(watch::Sender::new(None))
    }
}

impl Hurry {
    /// Runs `work` as background work until [`Hurry::tell`] is called.
    pub fn concerning<T>(&self, work: impl Future<Output = T>) -> impl Future<Output = T> {
        PATIENCE.scope(Patience::Unless(self.0.subscribe()), Box::pin(work))
    }

    /// Limits all requests of the work, the current one and later ones, to [`GRACE`] from the first call on.
    pub fn tell(&self) {
        self.0.send_if_modified(|end| {
            let first = end.is_none();
            end.get_or_insert_with(|| Instant::now() + GRACE);
            first
        });
    }

    /// Whether [`Hurry::tell`] was called.
    pub fn is_told(&self) -> bool {
        self.0.borrow().is_some()
    }
}

impl Patience {
    fn end(&self) -> Option<Instant> {
        match self {
            Self::Until(end) => Some(*end),
            Self::Unless(hurry) => *hurry.borrow(),
        }
    }

    async fn ends(self) {
        match self {
            Self::Until(end) => sleep_until(end).await,
            Self::Unless(mut hurry) => {
                let told = async {
                    match hurry.wait_for(Option::is_some).await.map(|end| *end) {
                        Ok(Some(end)) => sleep_until(end).await,
                        _ => std::future::pending().await,
                    }
                };
                tokio::select! {
                    () = sleep(ALONE) => {}
                    () = told => {}
                }
            }
        }
    }
}

/// Returns the result of `request`, or why it came too late.
pub async fn limited<T>(request: impl Future<Output = T>) -> Result<T, Impatience> {
    let patience = PATIENCE
        .try_with(Clone::clone)
        .unwrap_or_else(|_| Patience::Unless(watch::Sender::new(None).subscribe()));
    let begun = Instant::now();
    if patience.end().is_some_and(|end| end <= begun) {
        return Err(Impatience::Unasked);
    }
    tokio::select! {
        biased;
        done = request => Ok(done),
        () = patience.ends() => Err(Impatience::GivenUp(begun.elapsed())),
    }
}

#[cfg(test)]
mod tests;
