// SPDX-License-Identifier: Apache-2.0
//! Starts the tasks of a daemon (agent or controller) and ends the process when one of them fails.
//!
//! A task that panics takes its part of the daemon with it: the reconciler of a pool, the plugin socket, a watch. Without this
//! module the process would go on, and its probes would report it healthy. With it, the process ends and the kubelet
//! restarts it. A daemon may stop after any step, so nothing is lost.
//!
//! Invariant: while [`Supervisor::stop`] is not cancelled, every task that was started with [`Supervisor::spawn`] runs, and no
//! task of the supervisor has panicked.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

/// Starts tasks and watches them. Clones share the same tasks.
#[derive(Clone, Debug, Default)]
pub struct Supervisor {
    stop: CancellationToken,
    tasks: TaskTracker,
    failed: Arc<Mutex<Option<TaskEnded>>>,
}

/// A task has ended before the daemon was stopped.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("task {task:?} has {how}; the process ends, so that it is started again")]
pub struct TaskEnded {
    /// The name of the task.
    pub task: &'static str,
    /// `panicked` or `ended`.
    pub how: &'static str,
}

/// Reports the end of a task when it is dropped, which happens in a panic too.
struct Guard {
    supervisor: Supervisor,
    task: &'static str,
    /// Whether the task was allowed to end, once it has ended by itself.
    ended: Option<bool>,
}

impl Guard {
    /// Marks the task as ended by itself. Because this is a method, the task captures the whole guard. If the task
    /// assigned the field, it would capture only the field, and the rest of the guard would be dropped before the task
    /// begins.
    fn finish(&mut self, may_end: bool) {
        self.ended = Some(may_end);
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        if self.ended == Some(true) || self.supervisor.stop.is_cancelled() {
            return;
        }
        let how = if self.ended.is_some() { "ended" } else { "panicked" };
        let failed = TaskEnded { task: self.task, how };
        tracing::error!(task = failed.task, how, "a task failed; stopping the process");
        self.supervisor
            .failed
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .get_or_insert(failed);
        self.supervisor.stop.cancel();
    }
}

impl Supervisor {
    /// A supervisor whose tasks stop with `stop`.
    pub fn new(stop: CancellationToken) -> Self {
        Self {
            stop,
            ..Self::default()
        }
    }

    /// Cancelled when the daemon stops, for whatever reason.
    pub fn stop(&self) -> &CancellationToken {
        &self.stop
    }

    /// Runs `work` until [`Self::stop`], wherever it waits then.
    pub fn until_stopped<W: Future<Output = ()> + Send>(
        &self,
        work: W,
    ) -> impl Future<Output = ()> + Send + use<W> {
        let stop = self.stop.clone();
        async move {
            stop.run_until_cancelled(work).await;
        }
    }

    /// Starts a task that runs until [`Self::stop`]. If it ends before, the daemon stops.
    pub fn spawn(&self, task: &'static str, work: impl Future<Output = ()> + Send + 'static) {
        self.start(task, async {
            work.await;
            false
        });
    }

    /// Starts a task that may end at any time. If it panics, the daemon stops.
    pub fn spawn_brief(&self, task: &'static str, work: impl Future<Output = ()> + Send + 'static) {
        self.start(task, async {
            work.await;
            true
        });
    }

    /// Starts a task that runs until `end`, wherever it waits then. If it ends before, the daemon stops.
    pub fn spawn_until(
        &self,
        end: CancellationToken,
        task: &'static str,
        work: impl Future<Output = ()> + Send + 'static,
    ) {
        self.start(task, async move { end.run_until_cancelled(work).await.is_none() });
    }

    /// `work` returns whether the task was allowed to end.
    fn start(&self, task: &'static str, work: impl Future<Output = bool> + Send + 'static) {
        let mut guard = Guard {
            supervisor: self.clone(),
            task,
            ended: None,
        };
        self.tasks.spawn(async move {
            let may_end = work.await;
            guard.finish(may_end);
        });
    }

    /// Waits until all tasks have ended, once [`Self::stop`] is cancelled.
    pub async fn wait(&self) {
        self.tasks.close();
        self.tasks.wait().await;
    }

    /// Waits for [`Self::stop`], and then until all tasks have ended, but not longer than `limit`.
    ///
    /// # Errors
    /// [`TaskEnded`]: the task that failed first.
    pub async fn finish(&self, limit: Duration) -> Result<(), TaskEnded> {
        self.stop.cancelled().await;
        if timeout(limit, self.wait()).await.is_err() {
            tracing::warn!(
                ?limit,
                "stopping without waiting for a task that did not end in time"
            );
        }
        self.outcome()
    }

    /// The first task that failed.
    ///
    /// # Errors
    /// [`TaskEnded`], if there is one.
    fn outcome(&self) -> Result<(), TaskEnded> {
        let failed = self.failed.lock().unwrap_or_else(PoisonError::into_inner);
        failed.clone().map_or(Ok(()), Err)
    }
}

#[cfg(test)]
mod tests;
