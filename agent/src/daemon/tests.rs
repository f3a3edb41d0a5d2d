// SPDX-License-Identifier: Apache-2.0
use super::*;
use api::testing::{panicking_answering_clients, pool};
use clap::Parser;
use serde_json::{Value, json};

/// A time that only a hang reaches.
const HANG: Duration = Duration::from_secs(60);

/// The answer of an API server with the pool `rail0`.
fn answer(path: &str) -> Value {
    let items = if path.ends_with("/ippools") {
        vec![pool("rail0", &json!({ "ranges": [{ "subnet": "10.1.0.0/24" }] }))]
    } else {
        Vec::new()
    };
    json!({ "kind": "List", "apiVersion": "v1", "metadata": { "resourceVersion": "1" }, "items": items })
}

/// Otherwise no pod of the node would get an address of the pool, while the probes call the agent healthy.
#[tokio::test(flavor = "multi_thread")]
async fn a_panic_in_the_reconciler_of_a_pool_ends_the_agent() {
    let dir = tempfile::tempdir().unwrap();
    let words = ["agent", "--node", "n", "--data-dir", dir.path().to_str().unwrap()];
    let supervisor = Supervisor::default();
    // A round begins with the Node.
    let clients = panicking_answering_clients("/nodes/n", answer);
    let _started = start(Config::parse_from(words), clients, &supervisor);
    let stopped = tokio::time::timeout(HANG, supervisor.stop().cancelled());
    stopped.await.unwrap();
    let task = "reconciler of a pool";
    let how = "panicked";
    assert_eq!(supervisor.finish(HANG).await, Err(TaskEnded { task, how }));
}
