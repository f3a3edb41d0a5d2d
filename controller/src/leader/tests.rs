// SPDX-License-Identifier: Apache-2.0
use super::*;
use crate::config::Config;
use api::client::Clients;
use api::supervisor::TaskEnded;
use api::testing::{answering_clients, panicking_clients, silent_clients};
use clap::Parser;
use kube::Resource;
use serde_json::{Value, json};
use std::sync::Mutex;

/// A complete cache of these objects.
pub(super) fn cache<K>(objects: Vec<K>) -> Store<K>
where
    K: Resource<DynamicType = ()> + Clone + 'static,
{
    let (cache, mut writer) = store();
    writer.apply_watcher_event(&Event::Init);
    for object in objects {
        writer.apply_watcher_event(&Event::InitApply(object));
    }
    writer.apply_watcher_event(&Event::InitDone);
    cache
}

/// The address space `default`, which lists `rail0` without a request for probes.
pub(super) fn space() -> AddressSpace {
    serde_json::from_value(json!({
        "apiVersion": "rdmanet.io/v1alpha1", "kind": "AddressSpace",
        "metadata": { "name": "default", "resourceVersion": "7" },
        "spec": { "pools": [
            { "name": "rail0", "uid": "uid-rail0", "generation": 1, "shiftV4": 4, "shiftV6": 0, "stretches": [] },
        ] },
    }))
    .unwrap()
}

/// Caches of these blocks, of the Node `here`, and of the address space of [`space`].
pub(super) fn caches(blocks: Vec<IpBlock>) -> Arc<Caches> {
    let node = json!({ "apiVersion": "v1", "kind": "Node", "metadata": { "name": "here", "uid": "2" } });
    Arc::new(Caches {
        blocks: cache(blocks),
        nodes: cache(vec![serde_json::from_value(node).unwrap()]),
        spaces: cache(vec![space()]),
        _end: CancellationToken::new().drop_guard(),
    })
}

/// Clients of an API server without objects, and the writes that it receives, as `METHOD RESOURCE`. It answers a write of an address
/// space with `code`, and any other write with a conflict.
pub(super) fn recording_clients(code: u16) -> (Clients, Arc<Mutex<Vec<String>>>) {
    let writes = Arc::new(Mutex::new(Vec::new()));
    let seen = writes.clone();
    let clients = answering_clients(move |method, uri, _| {
        if method == "GET" && uri.contains("/nodes/") {
            return (404, json!({ "kind": "Status", "code": 404 }));
        }
        if method == "GET" {
            return (200, json!({ "kind": "List", "metadata": {}, "items": [] }));
        }
        let resource = uri.split("/v1alpha1/").last().unwrap().split('/').next().unwrap();
        seen.lock().unwrap().push(format!("{method} {resource}"));
        match (resource, code) {
            ("addressspaces", 200) => (200, serde_json::to_value(space()).unwrap()),
            _ => (409, json!({ "kind": "Status", "status": "Failure", "code": 409 })),
        }
    });
    (clients, writes)
}

/// A pool called `name` whose spec is in force.
pub(super) fn in_force(name: &str, spec: &Value) -> IpPool {
    let status =
        json!({ "observedGeneration": 1, "acceptedGeneration": 1, "conditions": [], "accepted": spec });
    IpPool {
        status: Some(serde_json::from_value(status).unwrap()),
        ..api::testing::pool(name, spec)
    }
}

/// A leader of an API server with these clients and without pools, and its supervisor.
pub(super) fn leader(clients: Clients) -> (Leader, Supervisor) {
    leader_of(clients, vec![])
}

/// The same with these pools.
pub(super) fn leader_of(clients: Clients, pools: Vec<IpPool>) -> (Leader, Supervisor) {
    let supervisor = Supervisor::default();
    let config = Config::try_parse_from(["rdmanet-controller", "--identity", "a"]).unwrap();
    let context = Arc::new(Context::new(config, clients, cache(pools), supervisor.stop()));
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

/// The writes of a round with `pool`, by URI. The API server has this address space and these blocks, and rejects each status.
async fn writes_of(pool: &IpPool, space: Value, blocks: Value) -> HashMap<String, Value> {
    let written = Arc::new(Mutex::new(HashMap::new()));
    let seen = written.clone();
    let clients = answering_clients(move |method, uri, body| {
        let list = |items: Value| (200, json!({ "kind": "List", "metadata": {}, "items": items }));
        if method != "GET" {
            let path = uri
                .trim_end_matches('?')
                .rsplit("v1alpha1/")
                .next()
                .unwrap_or_default();
            seen.lock().unwrap().insert(path.to_owned(), body.clone());
        }
        match method {
            "GET" | "PATCH" if uri.contains("/addressspaces/") => (200, space.clone()),
            "GET" if uri.contains("/addressspaces") => list(json!([space])),
            "GET" if uri.contains("/ipblocks") => list(blocks.clone()),
            "GET" => list(json!([])),
            _ => (409, json!({ "kind": "Status", "status": "Failure", "code": 409 })),
        }
    });
    let (mut leader, _supervisor) = leader(clients);
    Box::pin(leader.reconcile(pool)).await.unwrap();
    std::mem::take(&mut written.lock().unwrap())
}

/// What the address space lists after a round with a pool whose edit is invalid, if the round wrote it.
async fn written_space(space: Value) -> Option<Value> {
    let writes = writes_of(&pool_with_an_invalid_edit(), space, json!([])).await;
    Some(writes.get("addressspaces/default")?["spec"]["pools"].clone())
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

/// The first number of a new pool `rail0`, beside this entry of an earlier pool of the name and a block with this report.
async fn first_number(entry: Option<i64>, uid: &str, noted: Option<i64>) -> i64 {
    let mut pool = pool_with_an_invalid_edit();
    pool.spec.block_size.v4 = 16;
    pool.metadata.generation = Some(1);
    pool.status = None;
    let mut space = space_with(entry.unwrap_or_default(), "10.1.0.255");
    space["spec"]["pools"][0]["uid"] = json!(uid);
    if entry.is_none() {
        space["spec"]["pools"] = json!([]);
    }
    let blocks = json!([{
        "apiVersion": "rdmanet.io/v1alpha1", "kind": "IPBlock",
        "metadata": { "name": "default-4-0a010000-28" },
        "spec": {
            "pool": "rail0", "cidr": "10.1.0.0/28", "owner": { "node": "n", "nodeUID": "u" }, "state": "Active",
            "epoch": 1, "quarantineSeconds": 60,
        },
        "status": { "used": 0, "free": 16, "observedGeneration": noted },
    }]);
    let writes = writes_of(&pool, space, if noted.is_some() { blocks } else { json!([]) }).await;
    let number = writes["ippools/rail0/status"]["status"]["acceptedGeneration"].clone();
    if let Some(space) = writes.get("addressspaces/default") {
        assert_eq!(space["spec"]["pools"][0]["generation"], number);
    }
    number.as_i64().unwrap()
}

/// Otherwise a report about the earlier pool would count as one about the new pool, and a node could use a reserved address while
/// the owner of its block allocates it.
#[tokio::test]
async fn a_pool_created_again_has_another_number_than_every_spec_of_the_earlier_one() {
    assert_eq!(first_number(None, "", None).await, 1);
    assert_eq!(first_number(None, "", Some(1)).await, 1001);
    assert_eq!(first_number(None, "", Some(1001)).await, 1002);
    // A node may report the number in the list later.
    assert_eq!(first_number(Some(1), "uid-earlier", None).await, 1001);
    assert_eq!(first_number(Some(2000), "uid-earlier", Some(7)).await, 2001);
    // The pool itself is listed, and its status was not written yet.
    assert_eq!(first_number(Some(1001), "uid-rail0", None).await, 1001);
    // No node reports such a number, and no number would be left above it.
    assert_eq!(first_number(None, "", Some(i64::MAX)).await, 1);
}

/// A pool with the same addresses may be created later, while a pod of a gone node still has one of them.
#[tokio::test]
async fn the_space_of_a_deleted_pool_still_requests_probes() {
    let written = Arc::new(Mutex::new(Value::Null));
    let seen = written.clone();
    let clients = answering_clients(move |method, _, body| {
        if method == "GET" {
            return (404, json!({ "kind": "Status", "code": 404 }));
        }
        *seen.lock().unwrap() = body.clone();
        (200, serde_json::to_value(space()).unwrap())
    });
    let (mut leader, _supervisor) = leader(clients);
    let mut space = space();
    // As a controller before 28 November 2026 wrote it.
    space.spec.pools[0].probe = true;
    leader.caches = Some(Arc::new(Caches {
        blocks: cache(Vec::new()),
        nodes: cache(Vec::new()),
        spaces: cache(vec![space]),
        _end: CancellationToken::new().drop_guard(),
    }));
    leader.unlist().await.unwrap();
    let spec = written.lock().unwrap()["spec"].clone();
    assert_eq!((&spec["pools"], &spec["probe"]), (&json!([]), &json!(true)));
}
