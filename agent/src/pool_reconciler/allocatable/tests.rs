// SPDX-License-Identifier: Apache-2.0
//! The free addresses of a node's blocks.

use super::super::testing::{commit_lease, file_of_earlier_boot, refusal, registered_node, replace_file};
use super::*;
use api::testing::accepted_pool;
use serde_json::json;

/// The free addresses of the block 10.1.0.0/28 of a pool with `spec`. The file has `reserved`, and leases have the addresses from
/// 10.1.0.1 to 10.1.0.8.
async fn free_beside_eight_leases(spec: &serde_json::Value, reserved: &[&str]) -> u64 {
    let accepted = accepted_pool("rail0", spec).unwrap();
    let (context, _, _dir) = registered_node(|_| refusal(404)).await;
    let mut file = file_of_earlier_boot(&context, &accepted);
    file.reserved = reserved.iter().map(|&entry| entry.to_owned()).collect();
    replace_file(&context, &file).await;
    let made = context.agent.stores.with(&context.pool, |store| {
        for host in 1..=8 {
            commit_lease(store, &format!("c{host}"), &format!("10.1.0.{host}"), false);
        }
        Ok(())
    });
    made.await.unwrap();
    let (holdings, usage) = context.holdings(&BTreeMap::new()).await.unwrap();
    let (name, cidr) = (&file.blocks[0].name, BlockCidr::of(file.blocks[0].cidr).unwrap());
    assert_eq!(usage[name].leased, 8);
    let free = Allocatable::of(Some(&file), &usage).free(name, cidr);
    assert_eq!(
        free_local(&accepted, Family::V4, holdings.file.as_ref(), &usage),
        free,
        "it is the only block"
    );
    free
}

/// Pods keep addresses that an edit excludes or reserves, or that a shorter range does not have any more.
#[tokio::test]
async fn an_unusable_address_in_use_does_not_reduce_the_free_addresses_of_a_block() {
    for range in [
        json!({ "subnet": "10.1.0.0/24", "gateway": "none", "exclude": ["10.1.0.0-10.1.0.7"] }),
        json!({ "subnet": "10.1.0.0/24", "gateway": "none", "start": "10.1.0.8" }),
    ] {
        let spec = json!({ "ranges": [range], "blockSize": { "v4": 16 } });
        assert_eq!(free_beside_eight_leases(&spec, &[]).await, 8 - 1);
    }
    let reserved = "10.1.0.0-10.1.0.7";
    let spec = json!({
        "ranges": [{ "subnet": "10.1.0.0/24", "gateway": "none" }], "blockSize": { "v4": 16 }, "reserved": [reserved],
    });
    assert_eq!(free_beside_eight_leases(&spec, &[reserved]).await, 8 - 1);
}

/// The spec does not reserve these addresses, but the file does.
#[tokio::test]
async fn an_address_that_the_node_withholds_is_not_free() {
    let spec =
        json!({ "ranges": [{ "subnet": "10.1.0.0/24", "gateway": "none" }], "blockSize": { "v4": 16 } });
    let free = free_beside_eight_leases(&spec, &[]).await;
    assert_eq!(free_beside_eight_leases(&spec, &["10.1.0.12"]).await, free - 1);
    assert_eq!(
        free_beside_eight_leases(&spec, &["10.1.0.2", "10.1.0.12-10.1.0.15"]).await,
        free - 4,
        "a pod has the first one"
    );
}

#[test]
fn resting_addresses_are_not_free() {
    let accepted = api::testing::small_pool();
    let writer = api::accepted_pool::Writer {
        owner: block::Owner {
            node: "n".into(),
            uid: "u".into(),
        },
        boot_id: "00000000-0000-4000-8000-000000000000".to_owned(),
        quarantine: std::time::Duration::from_secs(60),
    };
    let file = accepted.file(&writer, Some(Vec::new()), ipam::pool::Counters::default());
    let cidr = BlockCidr::of("10.1.0.16/28".parse().unwrap()).unwrap();
    let free = |file, leased, resting| {
        let used = Usage {
            leased,
            resting,
            ..Usage::default()
        };
        let usage = BTreeMap::from([("b".to_owned(), used)]);
        Allocatable::of(file, &usage).free("b", cidr)
    };
    assert_eq!(free(Some(&file), 0, 0), 16);
    assert_eq!(free(Some(&file), 2, 1), 16 - 2 - 1);
    assert_eq!(free(Some(&file), 15, 2), 0);
    assert_eq!(free(None, 0, 0), 0);
}
