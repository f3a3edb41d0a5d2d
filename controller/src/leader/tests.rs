// SPDX-License-Identifier: Apache-2.0
use super::*;
use crate::config::Config;
use api::client::Clients;
use api::supervisor::TaskEnded;
use api::testing::{answering_clients, panicking_clients, silent_clients};
use clap::Parser;
use serde_json::{Value, json};
use std::sync::Mutex;

/// A leader of an API server with these clients, and its supervisor.
fn leader(clients: Clients) -> (Leader, Supervisor) {
    let supervisor = Supervisor::default();
    let config = Config::try_parse_from(["rdmanet-controller", "--identity", "a"]).unwrap();
    let context = Arc::new(Context::new(config, clients, store().0, supervisor.stop()));
    let (elected, changed) = (watch::channel(true).1, watch::channel(()).1);
    let leader = Leader::new(context, supervisor.clone(), elected, changed);
    (leader, supervisor)
}

/// Its caches would be stale, and the other replica would not take over.
#[tokio::test]
async fn a_leader_whose_watch_panics_stops_the_process() {
    let watches = [
        ("/ipblocks", "watch of blocks"),
        ("/nodes", "watch of nodes"),
        ("/addressspaces", "watch of address spaces"),
    ];
    for (resource, task) in watches {
        let (leader, supervisor) = leader(panicking_clients(resource));
        let _caches = leader.watch().await;
        assert!(supervisor.stop().is_cancelled(), "{task}");
        let how = "panicked";
        let ended = supervisor.finish(Duration::MAX).await;
        assert_eq!(ended, Err(TaskEnded { task, how }));
    }
}

#[tokio::test]
async fn a_leader_that_drops_its_caches_ends_its_watches_and_goes_on() {
    let (leader, supervisor) = leader(silent_clients());
    assert!(leader.watch().now_or_never().is_none());
    supervisor.wait().await;
    assert!(!supervisor.stop().is_cancelled());
}

/// The pool `rail0` of generation 6, whose spec is invalid, while an earlier spec has the number 4.
fn pool_with_an_invalid_edit() -> IpPool {
    let spec = |size: i64| json!({ "ranges": [{ "subnet": "10.1.0.0/24" }], "blockSize": { "v4": size } });
    let mut pool = api::testing::pool("rail0", &spec(3));
    pool.metadata.generation = Some(6);
    pool.metadata.resource_version = Some("9".to_owned());
    pool.finalizers_mut().push(accept::FINALIZER.to_owned());
    let status =
        json!({ "observedGeneration": 4, "acceptedGeneration": 4, "conditions": [], "accepted": spec(16) });
    pool.status = Some(serde_json::from_value(status).unwrap());
    pool
}

/// The address space `default` with the pool `rail0`, whose spec of this number has blocks of 16.
fn space_with(number: i64, last: &str) -> Value {
    json!({
        "apiVersion": "rdmanet.io/v1alpha1", "kind": "AddressSpace",
        "metadata": { "name": "default", "resourceVersion": "7" },
        "spec": { "pools": [{
            "name": "rail0", "uid": "uid-rail0", "generation": number, "shiftV4": 4, "shiftV6": 0,
            "stretches": [{ "first": "10.1.0.0", "last": last }],
        }] },
    })
}

/// What the address space lists after a round with such a pool, if the round wrote it.
async fn written_space(space: Value) -> Option<Value> {
    let written = Arc::new(Mutex::new(None));
    let seen = written.clone();
    let clients = answering_clients(move |method, uri, body| {
        let status = |code| json!({ "kind": "Status", "status": "Failure", "code": code });
        match method {
            "PATCH" if uri.contains("/addressspaces/") => {
                *seen.lock().unwrap() = Some(body["spec"]["pools"].clone());
                (200, space.clone())
            }
            "GET" if uri.contains("/addressspaces/") => (200, space.clone()),
            "GET" => (200, json!({ "kind": "List", "metadata": {}, "items": [] })),
            _ => (409, status(409)),
        }
    });
    let (mut leader, _supervisor) = leader(clients);
    Box::pin(leader.reconcile(&pool_with_an_invalid_edit()))
        .await
        .unwrap();
    written.lock().unwrap().take()
}

/// Otherwise every claim would be rejected until a valid edit: the list names a newer spec than nodes have.
#[tokio::test]
async fn the_spec_in_force_is_listed_again_after_a_listed_spec_was_not_accepted() {
    let pools = written_space(space_with(5, "10.1.0.255")).await.unwrap();
    assert_eq!(pools[0]["generation"], 4);
    let whole = json!([{ "first": "10.1.0.0", "last": "10.1.0.255" }]);
    assert_eq!(pools[0]["stretches"], whole);
    // The listed spec has removed a range.
    let pools = written_space(space_with(5, "10.1.0.127")).await.unwrap();
    assert_eq!(
        (&pools[0]["generation"], &pools[0]["stretches"]),
        (&json!(4), &whole)
    );
    assert_eq!(written_space(space_with(4, "10.1.0.255")).await, None);
}

/// Another pool may have got addresses that the listed spec had removed.
#[tokio::test]
async fn the_spec_in_force_is_not_listed_again_over_addresses_of_another_pool() {
    let mut space = space_with(5, "10.1.0.127");
    let mut other = space["spec"]["pools"][0].clone();
    other["name"] = json!("other");
    other["uid"] = json!("uid-other");
    other["shiftV4"] = json!(5);
    other["stretches"] = json!([{ "first": "10.1.0.128", "last": "10.1.0.255" }]);
    space["spec"]["pools"].as_array_mut().unwrap().insert(0, other);
    assert_eq!(written_space(space).await, None);
}
