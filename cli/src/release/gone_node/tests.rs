// SPDX-License-Identifier: Apache-2.0
//! The conditions for the release of what a gone node has left.

use super::*;
use crate::cluster::tests::client;
use crate::testing::{address, orphaned, with};

/// A response at 00:19:00.
const RESPONSE: &str = "HTTP/1.1 200 OK\r\nDate: Thu, 01 Jan 1970 00:19:00 GMT\r\nContent-Length: 0\r\n\r\n";

fn orphan() -> IpBlock {
    serde_json::from_value(json!({
        "apiVersion": "rdmanet.io/v1alpha1", "kind": "IPBlock", "metadata": { "name": "default-4-0a010000-28" },
        "spec": {
            "pool": "rail0", "cidr": "10.1.0.0/28", "epoch": 1, "state": "Orphaned",
            "owner": { "node": "a", "nodeUID": "1" }, "orphaned": { "by": "b", "since": "1970-01-01T00:10:00Z" },
        },
    }))
    .unwrap()
}

/// The error of a release of node `a`, which is gone.
async fn refusal(mut snapshot: Snapshot) -> String {
    snapshot.nodes.remove("a");
    release(&client(RESPONSE), &snapshot, "a", true)
        .await
        .unwrap_err()
        .to_string()
}

/// The controller wrote the time at which the block was orphaned. A clock that is set to local time may be hours ahead.
#[tokio::test]
async fn the_quarantine_is_measured_by_the_clock_of_the_api_server() {
    let refused = refusal(Snapshot::of(vec![], vec![orphan()], vec![])).await;
    assert!(refused.contains("in quarantine for 61 s more"), "{refused}");
}

/// In a pool without blocks, no block of the node is in quarantine.
#[tokio::test]
async fn an_address_of_a_gone_node_is_not_released_during_its_quarantine() {
    let object = orphaned("rail0", "10.1.0.80", "a", "p", "1970-01-01T00:10:00Z");
    let addresses = vec![serde_json::from_value(object).unwrap()];
    let refused = refusal(Snapshot::of(vec![], vec![], addresses)).await;
    assert!(
        refused.contains("10.1.0.80 is in quarantine for 61 s more"),
        "{refused}"
    );
}

#[tokio::test]
async fn a_registered_node_is_not_released_and_the_refusal_names_the_missing_agent() {
    let mut snapshot = with(&[], &[]);
    for (is_ready, cause) in [
        (true, "so its agent returns its blocks"),
        (
            false,
            "only its agent may return its blocks, but none is ready there",
        ),
    ] {
        snapshot.agents.insert("a".to_owned(), is_ready);
        let refused = release(&client(RESPONSE), &snapshot, "a", true).await;
        let refused = refused.unwrap_err().to_string();
        assert!(refused.contains(cause), "{refused}");
    }
}

/// The controller has not seen yet that the node is gone.
#[tokio::test]
async fn a_gone_node_with_a_bound_address_is_not_released() {
    let refused = refusal(with(&[], &[address("rail0", "10.1.0.80", "a", "p")])).await;
    assert!(
        refused.contains("10.1.0.80 (IPAddress default-10.1.0.80) is Bound to pod ml/p on node a"),
        "{refused}"
    );
}

#[tokio::test]
async fn a_gone_node_with_a_block_that_is_not_orphaned_is_not_released() {
    for state in [BlockState::Active, BlockState::Draining] {
        let mut block = orphan();
        (block.spec.state, block.spec.orphaned) = (state, None);
        let refused = refusal(Snapshot::of(vec![], vec![block], vec![])).await;
        let expected = format!(
            "block 10.1.0.0/28 (IPBlock default-4-0a010000-28) of node a, which is gone, is {state:?}, and its quarantine has not begun"
        );
        assert!(refused.starts_with(&expected), "{refused}");
    }
}

#[test]
fn a_block_that_was_never_reported_is_not_described_as_unused() {
    let mut block = orphan();
    let described = |block: &IpBlock| {
        let snapshot = Snapshot::of(vec![], vec![block.clone()], vec![]);
        Orphans::of(&snapshot, "a").describe()
    };
    assert_eq!(described(&block), ["block 10.1.0.0/28 was never reported"]);
    let annotations = block.metadata.annotations.get_or_insert_default();
    annotations.insert("rdmanet.io/in-use".to_owned(), "true".to_owned());
    assert_eq!(
        described(&block),
        ["block 10.1.0.0/28 was never reported, and pods had addresses of it when its node claimed it"]
    );
    block.status = Some(api::IpBlockStatus {
        used: 2,
        ..Default::default()
    });
    assert_eq!(
        described(&block),
        ["block 10.1.0.0/28 had 2 addresses in use in its last report"]
    );
}
