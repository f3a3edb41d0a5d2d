// SPDX-License-Identifier: Apache-2.0

use super::*;

async fn outcome_of(supervisor: &Supervisor) -> Result<(), TaskEnded> {
    supervisor.finish(Duration::MAX).await
}

#[tokio::test]
async fn a_task_that_panics_stops_the_agent() {
    let supervisor = Supervisor::default();
    let stop = supervisor.stop().clone();
    supervisor.spawn("pool", async { panic!("on purpose") });
    supervisor.spawn("other", async move { stop.cancelled().await });
    let failed = TaskEnded {
        task: "pool",
        how: "panicked",
    };
    assert_eq!(outcome_of(&supervisor).await, Err(failed));
}

#[tokio::test]
async fn a_task_that_ends_too_early_stops_the_agent() {
    let supervisor = Supervisor::default();
    supervisor.spawn("watch of pools", async {});
    let failed = outcome_of(&supervisor).await.unwrap_err();
    assert_eq!((failed.task, failed.how), ("watch of pools", "ended"));
}

#[tokio::test]
async fn a_brief_task_may_end_but_must_not_panic() {
    let supervisor = Supervisor::default();
    let (done, heard) = tokio::sync::oneshot::channel();
    supervisor.spawn_brief("request", async move {
        let _ = done.send(());
    });
    heard.await.unwrap();
    tokio::task::yield_now().await;
    assert!(!supervisor.stop().is_cancelled());
    supervisor.spawn_brief("request", async { panic!("on purpose") });
    assert_eq!(outcome_of(&supervisor).await.unwrap_err().how, "panicked");
}

#[tokio::test]
async fn a_task_that_ends_after_the_stop_is_no_failure() {
    let supervisor = Supervisor::default();
    let stop = supervisor.stop().clone();
    supervisor.spawn("socket", async move { stop.cancelled().await });
    supervisor.stop().cancel();
    assert_eq!(outcome_of(&supervisor).await, Ok(()));
}
