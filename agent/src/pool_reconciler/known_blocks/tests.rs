// SPDX-License-Identifier: Apache-2.0

use super::*;
use crate::pool_reconciler::testing::{node_with, own_block, refusal};

const MOMENT: Duration = Duration::from_secs(1);

fn noted(version: u64, there: bool) -> KnownBlock {
    let block = there.then(|| {
        let spec = serde_json::json!({
            "apiVersion": "rdmanet.io/v1alpha1", "kind": "IPBlock", "metadata": {"name": "default-4-0a000000-29"},
            "spec": {"addressSpace": "default", "pool": "p", "cidr": "10.0.0.0/29", "epoch": 1, "state": "Active",
                     "owner": {"node": "n", "nodeUID": "u"}},
        });
        serde_json::from_value(spec).unwrap()
    });
    KnownBlock {
        version,
        block,
        at: Instant::now(),
    }
}

#[test]
fn a_written_block_overrides_the_watch_until_the_watch_reports_it() {
    assert!(noted(7, true).is_news(Some(6), MOMENT));
    assert!(noted(7, true).is_news(None, MOMENT));
    assert!(!noted(7, true).is_news(Some(7), MOMENT));
    assert!(noted(7, false).is_news(Some(7), MOMENT));
    assert!(!noted(7, false).is_news(Some(8), MOMENT));
    assert!(!noted(7, false).is_news(None, MOMENT));
}

/// The watch reported the block and its deletion before this reconciler's next round. In a chaos run, the block then
/// stayed in a file without an object for ever.
#[test]
fn a_written_block_that_the_watch_never_reports_is_forgotten() {
    assert!(!noted(7, true).is_news(None, WATCH_LAG));
}

/// The controller waits for the quarantine that the block records. Without a look at the cluster, the node must stop before that.
#[tokio::test]
async fn the_shortest_quarantine_of_a_block_limits_how_long_a_node_uses_its_blocks() {
    let (context, _target, _dir) = node_with(&["--quarantine", "10m"], |_, _| refusal(404)).await;
    for (recorded, expected) in [
        (vec![], 600),
        (vec![None, Some(3600)], 600),
        (vec![Some(3600), Some(300), Some(1200)], 300),
    ] {
        let mut known = KnownBlocks::new(context.clone());
        for (number, seconds) in recorded.iter().enumerate() {
            let mut block = own_block();
            block.spec.quarantine_seconds = *seconds;
            known.note(&format!("default-4-0a0100{number}0-28"), Some(block));
        }
        assert_eq!(known.quarantine(), Duration::from_secs(expected), "{recorded:?}");
    }
}
