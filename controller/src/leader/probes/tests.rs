// SPDX-License-Identifier: Apache-2.0
use super::super::tests::{cache, space};
use super::*;
use crate::config::Config;
use api::testing::{answering_clients, pool};
use api::{IpPool, PoolEntry};
use clap::Parser;
use serde_json::{Value, json};
use std::sync::Mutex;
use tokio_util::sync::CancellationToken;

/// The pools of `wanted` whose blocks wait, and the written address space. The API server answers a write with `code`.
async fn enable(pools: Vec<IpPool>, wanted: &[&str], code: u16) -> (Vec<String>, Option<Value>) {
    let written = Arc::new(Mutex::new(None));
    let seen = written.clone();
    let clients = answering_clients(move |method, _, body| {
        assert_eq!(method, "PATCH");
        *seen.lock().unwrap() = Some(body.clone());
        match code {
            200 => (200, serde_json::to_value(space()).unwrap()),
            code => (
                code,
                json!({ "kind": "Status", "status": "Failure", "code": code }),
            ),
        }
    });
    let config = Config::try_parse_from(["rdmanet-controller", "--identity", "a"]).unwrap();
    let stop = CancellationToken::new();
    let context = Context::new(config, clients, cache(pools), &stop);
    let wanted = wanted.iter().copied().collect();
    let mut space = space();
    let other = PoolEntry {
        name: "other".to_owned(),
        ..space.spec.pools[0].clone()
    };
    space.spec.pools.insert(0, other);
    let spaces = [Arc::new(space)];
    let waiting = enable_probes(&context, &spaces, &wanted).await.unwrap();
    let written = written.lock().unwrap().take();
    (waiting.into_iter().collect(), written)
}

fn simple(name: &str) -> IpPool {
    pool(name, &json!({ "ranges": [{ "subnet": "10.1.0.0/24" }] }))
}

/// A node may claim the freed block for another pool, which has the same addresses.
#[tokio::test]
async fn probes_are_requested_for_each_pool_of_the_address_space() {
    let (_, written) = enable(vec![simple("rail0")], &["rail0"], 200).await;
    let spec = written.unwrap()["spec"].clone();
    assert_eq!(
        [&spec["pools"][0]["probe"], &spec["pools"][1]["probe"]],
        [true, true]
    );
    assert_eq!(spec["probe"], true, "for later pools");
}

#[tokio::test]
async fn only_the_blocks_of_a_pool_that_no_address_space_lists_wait() {
    let pools = vec![simple("rail0"), simple("unlisted")];
    let (waiting, written) = enable(pools, &["rail0", "unlisted"], 200).await;
    assert_eq!(waiting, ["unlisted"]);
    assert_eq!(written.unwrap()["spec"]["pools"][0]["probe"], true);
}

/// Otherwise the finalizer of the pool would stay for ever if a person has deleted the address space.
#[tokio::test]
async fn blocks_of_a_deleted_pool_do_not_wait() {
    let mut deleted = simple("deleted");
    let since = json!("2026-01-01T00:00:00Z");
    deleted.metadata.deletion_timestamp = serde_json::from_value(since).unwrap();
    let (waiting, written) = enable(vec![deleted], &["deleted", "gone"], 200).await;
    assert_eq!((waiting, written), (Vec::new(), None));
}

#[tokio::test]
async fn blocks_wait_if_another_process_has_changed_the_address_space() {
    let (waiting, _) = enable(vec![simple("rail0")], &["rail0"], 409).await;
    assert_eq!(waiting, ["rail0"]);
}
