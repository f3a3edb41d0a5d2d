// SPDX-License-Identifier: Apache-2.0
use super::super::tests::leader;
use super::*;
use api::testing::answering_clients;
use serde_json::{Value, json};
use std::sync::{Arc, Mutex};

/// A `StatefulSet` of 200 pods ran on nodes that are gone now.
const ADDRESSES: usize = 200;

/// The status of a pool in which nodes request the release of this many addresses.
fn status_with_requests(addresses: usize) -> IpPoolStatus {
    let names: Vec<String> = (0..addresses)
        .map(|i| format!("default-{:08x}", 0x0a01_0000 + i))
        .collect();
    let requests: serde_json::Map<String, Value> = names
        .chunks(50)
        .enumerate()
        .map(|(i, names)| (format!("node-{i}"), json!({ "addresses": names })))
        .collect();
    serde_json::from_value(json!({ "conditions": [], "requests": requests })).unwrap()
}

/// The object of a sticky address whose node has no Node object. A controller with a quarantine of an hour has marked it.
fn sticky_address(name: &str) -> Value {
    json!({
        "apiVersion": "rdmanet.io/v1alpha1", "kind": "IPAddress",
        "metadata": { "name": name, "resourceVersion": "7" },
        "spec": {
            "pool": "rail0", "address": "10.1.0.1", "block": "10.1.0.1/32", "state": "Orphaned", "quarantineSeconds": 3600,
            "node": { "node": "gone", "nodeUID": "u" },
            "holder": {
                "namespace": "ml", "statefulSet": "db", "pod": "db-0", "network": "rail0", "ifname": "net1",
            },
        },
    })
}

/// A leader whose API server has only the addresses, and the GETs that the leader sends.
fn leader_of_gone_nodes() -> (Leader, Arc<Mutex<usize>>) {
    let reads = Arc::new(Mutex::new(0));
    let count = reads.clone();
    let clients = answering_clients(move |_, uri, _| {
        *count.lock().unwrap() += 1;
        let path = uri.split('?').next().unwrap_or_default();
        match path.split_once("/ipaddresses/") {
            Some((_, name)) => (200, sticky_address(name)),
            None => (
                404,
                json!({ "kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": "NotFound", "code": 404 }),
            ),
        }
    });
    (leader(clients).0, reads)
}

/// Otherwise the quarantine of the 65th address begins when that of the first one has ended.
#[tokio::test]
async fn every_requested_address_is_observed_within_a_few_rounds() {
    let (mut leader, reads) = leader_of_gone_nodes();
    let pool = api::testing::pool("rail0", &json!({ "ranges": [{ "subnet": "10.1.0.0/24" }] }));
    let mut status = status_with_requests(ADDRESSES);
    for _ in 0..ADDRESSES.div_ceil(BATCH) {
        leader.release_requested(&pool, &mut status).await.unwrap();
    }
    assert_eq!(leader.releasing.len(), ADDRESSES);
    let sent = *reads.lock().unwrap();
    leader.release_requested(&pool, &mut status).await.unwrap();
    assert_eq!(*reads.lock().unwrap(), sent, "all addresses wait");
    assert_eq!(status, status_with_requests(ADDRESSES));
}

fn observed(since: Instant, quarantine: Option<u64>) -> Observed {
    Observed {
        version: "7".to_owned(),
        since,
        quarantine: quarantine.map(Duration::from_secs),
    }
}

#[test]
fn an_address_in_quarantine_is_not_read_until_the_quarantine_ends() {
    let start = Instant::now();
    let seen = HashMap::from([
        ("gone".to_owned(), observed(start, Some(600))),
        ("lost".to_owned(), observed(start, None)),
    ]);
    let read_after = |seconds: u64| {
        let names = ["gone", "lost", "new"].map(str::to_owned).into();
        let now = start + Duration::from_secs(seconds);
        next_batch(names, &seen, Duration::from_secs(30), now)
    };
    assert_eq!(read_after(29), ["new"]);
    assert_eq!(read_after(30), ["lost", "new"]);
    assert_eq!(read_after(599), ["lost", "new"]);
    assert_eq!(read_after(600), ["gone", "lost", "new"]);
}

#[test]
fn a_round_reads_a_bounded_number_of_addresses() {
    let names = (0..ADDRESSES).map(|i| format!("{i:03}")).collect();
    let batch = next_batch(names, &HashMap::new(), Duration::ZERO, Instant::now());
    assert_eq!(batch.len(), BATCH);
}

#[tokio::test]
async fn the_recorded_quarantine_of_a_sticky_address_counts_if_it_is_longer() {
    let (mut leader, _reads) = leader_of_gone_nodes();
    let name = "default-0a010000";
    // The quarantine of this controller has passed.
    let since = Instant::now().checked_sub(Duration::from_secs(900)).unwrap();
    leader.releasing.insert(name.to_owned(), observed(since, None));
    let progress = leader.release_one("rail0", name).await.unwrap();
    assert!(matches!(progress, Progress::Pending));
    assert_eq!(leader.releasing[name].quarantine, Some(Duration::from_secs(3600)));
}
