// SPDX-License-Identifier: Apache-2.0

use super::*;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

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
async fn a_task_of_a_term_may_end_with_the_term_and_not_before() {
    let supervisor = Supervisor::default();
    let (running, runs) = tokio::sync::oneshot::channel();
    let term = CancellationToken::new();
    supervisor.spawn_until(term.clone(), "watch of blocks", async move {
        let _ = running.send(());
        std::future::pending::<()>().await;
    });
    runs.await.unwrap();
    term.cancel();
    supervisor.wait().await;
    assert!(!supervisor.stop().is_cancelled());

    let supervisor = Supervisor::default();
    supervisor.spawn_until(CancellationToken::new(), "watch of blocks", async {});
    assert_eq!(outcome_of(&supervisor).await.unwrap_err().how, "ended");
    let supervisor = Supervisor::default();
    supervisor.spawn_until(CancellationToken::new(), "watch of blocks", async {
        panic!("on purpose")
    });
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

/// The Rust files below a directory, without tests.
fn sources(directory: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(directory).unwrap();
    let paths = entries.map(|entry| entry.unwrap().path());
    paths
        .filter(|path| {
            !["tests.rs", "tests", "testing.rs"]
                .iter()
                .any(|name| path.ends_with(name))
        })
        .flat_map(|path| if path.is_dir() { sources(&path) } else { vec![path] })
        .collect()
}

#[test]
fn the_docs_list_every_task_without_a_supervisor() {
    let workspace = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    let crates = ["agent/src", "api/src", "controller/src"].map(|name| workspace.join(name));
    let spawns = |path: &PathBuf| {
        let source = std::fs::read_to_string(path).unwrap();
        let code = source.split("#[cfg(test)]").next().unwrap();
        ["tokio::spawn(", "JoinSet", "thread::spawn("]
            .iter()
            .any(|call| code.contains(call))
    };
    let all = crates.iter().flat_map(|directory| sources(directory));
    let found: BTreeSet<String> = all
        .filter(spawns)
        .map(|path| path.strip_prefix(workspace).unwrap().to_str().unwrap().to_owned())
        .collect();
    let page = std::fs::read_to_string(workspace.join("docs/design/api-server.md")).unwrap();
    let section = page.split("\n## A task that ends\n").nth(1).unwrap();
    let rows = section.split("\n## ").next().unwrap().lines();
    let listed: BTreeSet<String> = rows
        .filter_map(|row| Some(row.strip_prefix("| `")?.split('`').next()?.to_owned()))
        .collect();
    assert_eq!(found, listed);
}
