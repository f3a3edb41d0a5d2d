// SPDX-License-Identifier: Apache-2.0
//! The order of the writes of a round.

use super::super::tests::{caches, recording_clients};
use super::*;
use crate::config::Config;
use clap::Parser;
use kube::runtime::reflector::store;
use serde_json::json;
use std::time::Duration;

/// The writes of one round with these objects. The API server answers a write of an address space with `code`.
async fn writes(blocks: Vec<IpBlock>, addresses: Vec<IpAddress>, code: u16) -> Vec<String> {
    let (clients, writes) = recording_clients(code);
    let config = Config::try_parse_from(["rdmanet-controller", "--identity", "a"]).unwrap();
    let context = Arc::new(Context::new(
        config,
        clients,
        store().0,
        &CancellationToken::new(),
    ));
    let mut collector = OrphanCollector::new(context, watch::channel(true).1, watch::channel(()).0);
    let inputs = Inputs {
        caches: caches(blocks),
        addresses: addresses.into_iter().map(Arc::new).collect(),
    };
    collector.collect(&inputs).await.unwrap();
    std::mem::take(&mut writes.lock().unwrap())
}

/// A node that claims the block of the address later does not know of the address.
#[tokio::test]
async fn an_address_of_a_gone_node_is_orphaned_only_after_probes_are_requested() {
    let address = || {
        serde_json::from_value(json!({
            "metadata": { "name": "default-4-0a010003", "resourceVersion": "5" },
            "spec": {
                "pool": "rail0", "address": "10.1.0.3", "block": "10.1.0.0/28", "state": "Bound",
                "node": { "node": "gone", "nodeUID": "1" },
                "attachment": { "containerID": "c1", "ifname": "net1", "network": "net" },
            },
        }))
        .unwrap()
    };
    let requested = writes(Vec::new(), vec![address()], 200).await;
    assert_eq!(requested, ["PATCH addressspaces", "PATCH ipaddresses"]);
    assert_eq!(
        writes(Vec::new(), vec![address()], 409).await,
        ["PATCH addressspaces"]
    );
}

/// A controller before this one, with a longer quarantine, may have marked it as orphaned.
#[test]
fn the_longer_of_two_quarantines_counts_for_an_address() {
    let config =
        Config::try_parse_from(["rdmanet-controller", "--identity", "a", "--quarantine=10m"]).unwrap();
    for (recorded, expected) in [(None, 600), (Some(60), 600), (Some(3600), 3600)] {
        let address = serde_json::from_value(json!({
            "metadata": { "name": "default-4-0a010003" },
            "spec": {
                "pool": "rail0", "address": "10.1.0.3", "block": "10.1.0.0/28", "state": "Orphaned",
                "node": { "node": "gone", "nodeUID": "1" }, "quarantineSeconds": recorded,
            },
        }));
        let orphan = Orphan::Address(Arc::new(address.unwrap()));
        let quarantine = orphan.quarantine(&config);
        assert_eq!(quarantine.unused, Duration::from_secs(expected), "{recorded:?}");
    }
}

/// The agent that claimed the block may have had a longer quarantine. The gone node used the block for so long.
#[test]
fn the_longer_of_two_quarantines_counts_for_a_block() {
    let config =
        Config::try_parse_from(["rdmanet-controller", "--identity", "a", "--quarantine=10m"]).unwrap();
    for (recorded, expected) in [(None, 600), (Some(60), 600), (Some(3600), 3600)] {
        let block = serde_json::from_value(json!({
            "metadata": { "name": "default-4-0a010000-28" },
            "spec": {
                "pool": "rail0", "cidr": "10.1.0.0/28", "state": "Orphaned", "epoch": 1,
                "owner": { "node": "gone", "nodeUID": "1" }, "quarantineSeconds": recorded,
            },
        }));
        let orphan = Orphan::Block(Arc::new(block.unwrap()));
        assert_eq!(
            orphan.wait(&config),
            Some(Duration::from_secs(expected)),
            "{recorded:?}"
        );
    }
}

/// The agent of the new registration deletes the block.
#[tokio::test]
async fn probes_are_requested_for_a_block_that_an_agent_has_orphaned() {
    let block = serde_json::from_value(json!({
        "metadata": { "name": "default-4-0a010000-28", "resourceVersion": "5" },
        "spec": {
            "pool": "rail0", "cidr": "10.1.0.0/28", "state": "Orphaned", "epoch": 1,
            "owner": { "node": "here", "nodeUID": "earlier" },
        },
    }));
    let written = writes(vec![block.unwrap()], Vec::new(), 200).await;
    assert_eq!(written, ["PATCH addressspaces"]);
}
