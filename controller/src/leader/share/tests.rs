// SPDX-License-Identifier: Apache-2.0
//! Which owners are asked to share a block.

use super::*;
use serde_json::json;

/// A block of node a, whose report shows `free` addresses.
fn block(free: u64) -> IpBlock {
    let block = json!({
        "metadata": { "name": "default-4-0a4f0008-30" },
        "spec": {
            "pool": "small", "cidr": "10.79.0.8/30", "state": "Active", "epoch": 1, "quarantineSeconds": 600,
            "owner": { "node": "a", "nodeUID": "a" },
        },
        "status": { "used": 4 - free, "free": free },
    });
    serde_json::from_value(block).unwrap()
}

#[test]
fn an_owner_without_a_free_address_is_asked_again_once_it_has_one() {
    let mut requests = ShareRequests::default();
    requests.blocks.insert(block(4).name_any(), Instant::now());
    let timeout = Duration::from_secs(60);
    let asked = requests.candidate(&block(4), &[]);
    assert!(asked.is_awaited(timeout));
    assert_eq!(batch::next(&[asked], None, timeout), Vec::<&Candidate>::new());
    // Pods of the owner took all addresses before it could share the block. Later, one of them was deleted.
    let declined = requests.candidate(&block(0), &[block(0).name_any()]);
    assert_eq!(batch::next(&[declined], None, timeout), Vec::<&Candidate>::new());
    let freed = requests.candidate(&block(1), &[]);
    assert_eq!(batch::next(std::slice::from_ref(&freed), None, timeout), [&freed]);
}
