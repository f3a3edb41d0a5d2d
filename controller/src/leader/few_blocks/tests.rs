// SPDX-License-Identifier: Apache-2.0
use super::*;
use serde_json::{Value, json};

fn found(spec: &Value, nodes: u128) -> ConditionState {
    few_blocks(&api::testing::accepted_pool("rail0", spec).unwrap(), nodes)
}

#[test]
fn a_pool_with_fewer_blocks_than_nodes_reports_both_numbers_and_the_remedy() {
    let usual = json!({ "ranges": [{ "subnet": "10.1.0.0/24", "gateway": "none" }] });
    let few = found(&usual, 36);
    assert!(few.holds && few.reason == reason::FEWER_BLOCKS_THAN_NODES);
    assert_eq!(
        few.message,
        "spec.ranges have 4 IPv4 blocks of 64 addresses, and the pool selects 36 nodes, so 32 nodes have no block of their own and ask the API server for each address; set spec.nodeSelector to the nodes that need addresses, add a range, or make a new pool with blockSize.v4: 4"
    );
    assert!(found(&usual, 5).holds);
    assert!(!found(&usual, 4).holds, "a block for each");
    let mut falls_back = usual.clone();
    falls_back["fallback"] = json!(["rail1"]);
    let message = found(&falls_back, 36).message;
    assert!(message.contains("use the pools of spec.fallback;"), "{message}");
    let mut narrow = usual.clone();
    narrow["nodeSelector"] = json!({ "matchLabels": { "rail": "0" } });
    let message = found(&narrow, 36).message;
    assert!(message.contains("narrow spec.nodeSelector"), "{message}");
}

#[test]
fn the_advised_block_size_gives_each_node_a_block() {
    for nodes in 1..=254 {
        for prefix in [24, 27] {
            let subnet = format!("10.1.0.0/{prefix}");
            let spec = |size: u128| json!({ "ranges": [{ "subnet": subnet, "gateway": "none" }], "blockSize": { "v4": size } });
            let few = found(&spec(64), nodes);
            let advised = few.message.split_once("blockSize.v4: ").map(|(_, size)| size);
            let Some(size) = advised else {
                assert!(!few.holds || nodes > 30, "{nodes}: {}", few.message);
                continue;
            };
            assert!(
                !found(&spec(size.parse().unwrap()), nodes).holds,
                "{nodes}: {}",
                few.message
            );
        }
    }
}

#[test]
fn the_family_with_the_fewest_blocks_is_compared_with_the_nodes() {
    let mut spec = json!({
        "ranges": [{ "subnet": "10.1.0.0/16", "gateway": "none" }, { "subnet": "fd00::/118", "gateway": "none" }],
        "blockSize": { "v4": 16, "v6": 256 },
    });
    let few = found(&spec, 9);
    assert!(
        few.holds && few.message.contains(" 4 IPv6 blocks of 256 addresses"),
        "{}",
        few.message
    );
    assert!(few.message.ends_with("blockSize.v6: 64"), "{}", few.message);
    spec["allocation"] = json!("PerAddress");
    assert!(!found(&spec, 9).holds);
}

#[test]
fn nodes_are_counted_again_after_an_edit_and_after_a_while() {
    let accepted = api::testing::small_pool();
    let mut edited = accepted.clone();
    edited.generation = 4;
    let (mut counts, hour) = (NodeCounts::default(), Duration::from_secs(3600));
    assert_eq!(counts.of(&accepted, hour, || 5), 5);
    assert_eq!(counts.of(&accepted, hour, || 6), 5);
    assert_eq!(counts.of(&edited, hour, || 7), 7);
    assert_eq!(counts.of(&edited, Duration::ZERO, || 8), 8);
    counts.forget("rail0");
    assert_eq!(counts.of(&edited, hour, || 9), 9);
}
