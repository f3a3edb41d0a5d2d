// SPDX-License-Identifier: Apache-2.0
//! The end of a reservation for all nodes.

use super::super::pool_file::PoolFileWriter;
use super::super::testing::{file_of_earlier_boot, own_block, registered_node, replace_file};
use super::*;
use api::block_layout::BlockCidr;
use api::convert;
use api::testing::accepted_pool;
use kube::ResourceExt;
use serde_json::json;
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

/// A later edit may include the address again while its pod lives.
#[tokio::test]
async fn an_address_with_an_object_is_held_back_while_the_spec_excludes_it() {
    let object = json!({
        "apiVersion": "rdmanet.io/v1alpha1", "kind": "IPAddress", "metadata": { "name": "default-0a010005" },
        "spec": {
            "pool": "rail0", "address": "10.1.0.5", "block": "10.1.0.0/28", "state": "Bound",
            "node": { "node": "b", "nodeUID": "2" },
        },
    });
    let list = json!({
        "apiVersion": "rdmanet.io/v1alpha1", "kind": "IPAddressList", "metadata": {}, "items": [object],
    });
    let (context, mut target, _dir) = registered_node(move |_| (200, list.clone())).await;
    let range = json!({ "subnet": "10.1.0.0/24", "gateway": "none", "exclude": ["10.1.0.5"] });
    let accepted = accepted_pool("rail0", &json!({ "ranges": [range], "blockSize": { "v4": 16 } })).unwrap();
    let mut file = file_of_earlier_boot(&context, &accepted);
    file.reserved = vec!["10.1.0.5".to_owned()];
    replace_file(&context, &file).await;
    target.accepted = Some(accepted);
    let mut noted = own_block();
    noted.status = block(Some(3)).status;
    let mut known = KnownBlocks::new(context.clone());
    known.note(&noted.name_any(), Some(noted));

    let mut writer = PoolFileWriter::new(context.clone());
    writer.write(&known, &target, false).await.unwrap();
    let file = context.file().await.unwrap().unwrap();
    assert_eq!(file.reserved, ["10.1.0.5"]);
}
