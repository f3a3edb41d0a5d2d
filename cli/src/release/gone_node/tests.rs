// SPDX-License-Identifier: Apache-2.0
//! The conditions for the release of a gone node's block.

use super::*;
use crate::cluster::tests::client;

fn orphan(quarantine: Option<i64>) -> IpBlock {
    serde_json::from_value(json!({
        "apiVersion": "rdmanet.io/v1alpha1", "kind": "IPBlock", "metadata": { "name": "default-4-0a010000-28" },
        "spec": {
            "pool": "rail0", "cidr": "10.1.0.0/28", "epoch": 1, "state": "Orphaned", "quarantineSeconds": quarantine,
            "owner": { "node": "a", "nodeUID": "1" }, "orphaned": { "by": "b", "since": "1970-01-01T00:10:00Z" },
        },
    }))
    .unwrap()
}

#[test]
fn a_block_is_released_only_after_the_quarantine_of_its_owner() {
    let at = |seconds| Timestamp::UNIX_EPOCH + Duration::from_secs(600 + seconds);
    for (quarantine, seconds) in [(None, 600_u64), (Some(120), 120), (Some(3600), 3600)] {
        let block = orphan(quarantine);
        let early = require_quarantine(&block, at(seconds - 10)).unwrap_err();
        assert!(
            early.to_string().contains("in quarantine for 11 s more"),
            "{early}"
        );
        assert!(require_quarantine(&block, at(seconds)).is_ok());
    }
    let backwards = require_quarantine(&orphan(Some(120)), Timestamp::UNIX_EPOCH);
    assert!(backwards.is_err(), "by a clock that is behind");
}

/// The controller wrote the time at which the block was orphaned. A clock that is set to local time may be hours ahead.
#[tokio::test]
async fn the_quarantine_is_measured_by_the_clock_of_the_api_server() {
    let early = "HTTP/1.1 200 OK\r\nDate: Thu, 01 Jan 1970 00:19:00 GMT\r\nContent-Length: 0\r\n\r\n";
    let snapshot = Snapshot::of(vec![], vec![orphan(None)], vec![]);
    let refused = release(&client(early), &snapshot, "a", true).await.unwrap_err();
    assert!(
        refused.to_string().contains("in quarantine for 61 s more"),
        "{refused}"
    );
}
