// SPDX-License-Identifier: Apache-2.0
//! What keeps the controller from its start.

use super::*;
use api::supervisor::TaskEnded;
use api::testing::{panicking_answering_clients, silent_clients};
use clap::Parser;
use serde_json::{Value, json};
use std::time::Duration;

/// Agents have this flag too and start with any value of it, because they do not act on it.
#[tokio::test]
async fn a_controller_does_not_start_with_a_quarantine_in_use_that_is_too_short() {
    let flags = [
        "controller",
        "--identity",
        "c",
        "--listen",
        "127.0.0.1:0",
        "--quarantine-in-use",
        "5m",
    ];
    let stop = CancellationToken::new();
    stop.cancel();
    let refused = run(Config::parse_from(flags), silent_clients(), stop).await;
    assert_eq!(
        refused.unwrap_err().to_string(),
        "--quarantine-in-use 5m is too short: it must not be shorter than --quarantine; set 10m or more"
    );
}

/// A time that only a hang reaches.
const HANG: Duration = Duration::from_secs(60);

/// The answer of an API server whose Lease this replica holds. A block is left of the Node `gone`.
fn answer(path: &str) -> Value {
    if path.contains("/leases") {
        return json!({
            "apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
            "metadata": { "name": "rdmanet-controller", "resourceVersion": "1" },
            "spec": { "holderIdentity": "c", "leaseDurationSeconds": 3600, "renewTime": "2999-01-01T00:00:00.000000Z" },
        });
    }
    let node = json!({ "apiVersion": "v1", "kind": "Node", "metadata": { "name": "here", "uid": "1" } });
    let block = json!({
        "apiVersion": "rdmanet.io/v1alpha1", "kind": "IPBlock",
        "metadata": { "name": "default-4-0a010000-28", "resourceVersion": "1" },
        "spec": {
            "pool": "rail0", "cidr": "10.1.0.0/28", "state": "Active", "epoch": 1,
            "owner": { "node": "gone", "nodeUID": "2" },
        },
    });
    let items = match path.rsplit('/').next() {
        Some("nodes") => vec![node],
        Some("ipblocks") => vec![block],
        _ => Vec::new(),
    };
    json!({ "kind": "List", "apiVersion": "v1", "metadata": { "resourceVersion": "1" }, "items": items })
}

/// Otherwise the replica would keep its Lease without one of its works. Each has a task, so a long step of one delays no other.
#[tokio::test(flavor = "multi_thread")]
async fn a_panic_in_any_work_of_a_leader_ends_the_controller() {
    for (path, task) in [
        ("/leases", "leader election"),
        ("/nodes/gone", "orphan collector"),
        ("/ipaddresses", "leader"),
    ] {
        let flags = ["controller", "--identity", "c", "--reconcile-interval", "100ms"];
        let supervisor = Supervisor::default();
        let clients = panicking_answering_clients(path, answer);
        let _context = start(Config::parse_from(flags), clients, &supervisor);
        let stopped = tokio::time::timeout(HANG, supervisor.stop().cancelled());
        stopped.await.unwrap();
        let ended = supervisor.finish(HANG).await;
        let how = "panicked";
        assert_eq!(ended, Err(TaskEnded { task, how }));
    }
}
