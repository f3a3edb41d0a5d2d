// SPDX-License-Identifier: Apache-2.0
//! How long a request to the API server may take, by who waits for its answer.
//!
//! Nobody waits for most of what an agent asks. Such a request gets as long as an API server that is short of time lets it wait
//! in its queue: who gives up sooner and comes again only makes the queue longer, and thousands of agents start at once. For a
//! plugin there is one end, that of its question, for all requests together. And work that nobody waits for may turn out to be
//! in somebody's way: then it has [`GRACE`] left.
//!
//! The patience belongs to the task and not to each call, so no function in between can lose it. Without a word nobody waits.
//!
//! Holds always: a request that is given up is what one is whose answer is lost. It may have taken effect, may do so yet, or
//! never; whoever sees an [`crate::cluster::Trouble`] goes on from what the API server says next. So it may be given up at any
//! moment, and the model in `agent/block` has a sender give up wherever it waits.

use std::time::Duration;
use tokio::sync::watch;
use tokio::time::{Instant, sleep, sleep_until};
use tokio_util::sync::CancellationToken;

/// How long a request may take that nobody waits for. The API server keeps one in its queue for a quarter of its
/// `--request-timeout` of 60 s, says 429 then, and kube's client asks again when it was told to; all of that is one request here.
pub const ALONE: Duration = Duration::from_secs(30);

/// How long all requests for one question may take, from when it was asked: less than [`ipam::agent::LIMIT`], so that the
/// plugin hears why there is no address.
pub const QUESTION: Duration = Duration::from_secs(4);

/// What is left for work that turns out to be in somebody's way: enough for an API server that is well, and little of
/// [`QUESTION`].
pub const GRACE: Duration = Duration::from_secs(1);

tokio::task_local! {
    static PATIENCE: Patience;
}

/// That of a task.
#[derive(Clone)]
enum Patience {
    /// Somebody waits until then.
    Until(Instant),
    /// Nobody waits, unless and until this says by when all is to be over.
    Unless(watch::Receiver<Option<Instant>>),
}

/// Why a request has no answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Impatience {
    /// No time was left to ask.
    Unasked,
    /// It was given up after this time.
    GivenUp(Duration),
}

/// Does `work`, whose requests have time until `end`, all together.
pub fn until<T>(end: Instant, work: impl Future<Output = T>) -> impl Future<Output = T> {
    PATIENCE.scope(Patience::Until(end), Box::pin(work))
}

/// Does `work` that nobody waits for; it has [`GRACE`] left from `stop` on.
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

/// Tells work that nobody waited for that somebody does.
pub struct Hurry(watch::Sender<Option<Instant>>);

impl Default for Hurry {
    fn default() -> Self {
        Self(watch::Sender::new(None))
    }
}

impl Hurry {
    /// Does `work` that nobody waits for, until [`Hurry::tell`].
    pub fn concerning<T>(&self, work: impl Future<Output = T>) -> impl Future<Output = T> {
        PATIENCE.scope(Patience::Unless(self.0.subscribe()), Box::pin(work))
    }

    /// All requests of the work, the one under way and those to come, have [`GRACE`] left; from the first call on.
    pub fn tell(&self) {
        self.0.send_if_modified(|end| {
            let first = end.is_none();
            end.get_or_insert_with(|| Instant::now() + GRACE);
            first
        });
    }

    /// Whether it was told.
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

/// What becomes of `request`, if that is known in time.
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
