// SPDX-License-Identifier: Apache-2.0
//! The end of a reservation for all nodes.

use super::*;
use api::block_layout::BlockCidr;
use api::convert;
use std::time::Duration;

fn owner(node: &str) -> Owner {
    Owner {
        node: node.into(),
        uid: "1".into(),
    }
}

/// A block of node `a` with `noted` as its observed generation.
fn block(noted: Option<i64>) -> IpBlock {
    let cidr = BlockCidr::of("10.1.0.0/28".parse().unwrap()).unwrap();
    let mut block = convert::new_block("default-10.1.0.0-28", "rail0", cidr, &owner("a"), Duration::ZERO);
    block.status = noted.map(|noted| {
        serde_json::from_value(serde_json::json!({
            "used": 0, "free": 14, "excluded": 0, "observedGeneration": noted,
        }))
        .unwrap()
    });
    block
}

#[test]
fn a_reservation_ends_only_once_every_block_has_observed_the_edit() {
    let noted = |blocks: &[IpBlock]| noted_by_all(blocks, &owner("a"), 4);
    assert!(noted(&[block(Some(4)), block(Some(4))]));
    assert!(!noted(&[block(Some(4)), block(Some(3))]));
    assert!(!noted(&[block(Some(5))]), "this node does not use it any more");
    assert!(!noted(&[block(None)]), "a newly claimed block");
    assert!(noted(&[]), "without a block it allocates nothing");
}

#[test]
fn shared_and_foreign_blocks_do_not_delay_the_end_of_a_reservation() {
    let mut shared = block(None);
    shared.spec.state = BlockState::Shared;
    let mut another = block(None);
    another.spec.owner = convert::node_ref(&owner("b"));
    assert!(noted_by_all(&[shared, another, block(Some(4))], &owner("a"), 4));
}
