// SPDX-License-Identifier: Apache-2.0
use super::*;
use crate::testing::block;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use k8s_openapi::jiff::Timestamp;
use serde_json::{from_value, json};

fn of(blocks: &[(&str, &str)]) -> Snapshot {
    let objects = blocks.iter().map(|(cidr, node)| block("rail0", cidr, node));
    Snapshot::of(
        Vec::new(),
        objects.map(|object| from_value(object).unwrap()).collect(),
        Vec::new(),
    )
}

#[test]
fn every_address_finds_the_blocks_that_contain_it() {
    let snapshot = of(&[
        ("10.1.0.16/28", "a"),
        ("10.1.0.0/24", "b"),
        ("10.1.0.16/30", "c"),
        ("10.1.1.0/28", "d"),
        ("10.1.0.32/32", "e"),
    ]);
    for last in 0..=u8::MAX {
        for third in 0..3 {
            let ip = IpAddr::from([10, 1, third, last]);
            let found: Vec<&str> = snapshot.blocks_with(ip).map(Block::name).collect();
            let all = snapshot.blocks().iter().filter(|block| block.cidr.contains(ip));
            let mut expected: Vec<&Block> = all.collect();
            expected.sort_by_key(|block| block.cidr.prefix());
            let expected: Vec<&str> = expected.into_iter().map(Block::name).collect();
            assert_eq!(found, expected, "{ip}");
        }
    }
    assert_eq!(snapshot.blocks_with("fd00::1".parse().unwrap()).count(), 0);
}

/// A bad image, a lack of memory or a node that is full leaves the pod, and no agent that works.
#[test]
fn only_an_agent_that_is_ready_counts() {
    let pod = |node: &str, ready: &str| {
        from_value(json!({
            "metadata": { "name": "agent", "labels": { "app.kubernetes.io/name": "rdmanet-agent" } },
            "spec": { "nodeName": node, "containers": [] },
            "status": { "conditions": [{ "type": "Ready", "status": ready }] },
        }))
        .unwrap()
    };
    let mut deleted: Pod = pod("deleted", "True");
    deleted.metadata.deletion_timestamp = Some(Time(Timestamp::UNIX_EPOCH));
    let pods = [
        pod("ready", "True"),
        pod("restarting", "False"),
        // One pod replaces the other.
        pod("updated", "False"),
        pod("updated", "True"),
        deleted,
    ];
    let mut snapshot = Snapshot {
        agents: agents(&pods),
        ..Snapshot::default()
    };
    let ready = ["ready", "updated", "restarting", "deleted", "without"].map(|node| snapshot.has_agent(node));
    assert_eq!(ready, [true, true, false, false, false]);
    assert!(snapshot.has_any_agent() && snapshot.agents.contains_key("deleted"));
    snapshot.agents = agents(&pods[1..2]);
    assert!(!snapshot.has_any_agent());
}
