// SPDX-License-Identifier: Apache-2.0
//! The validation rules of blocks, which apply to every client. These tests use an administrator, whom no policy
//! restricts.

use crate::{block, changed, refusal};
use api::IpBlock;
use apiserver::Server;
use apiserver::objects::try_create;
use kube::ResourceExt;
use kube::api::{Api, DeleteParams, PostParams};
use serde_json::{Value, json};

async fn api() -> Api<IpBlock> {
    Api::all(Server::shared().admin().await)
}

async fn create(value: &Value) -> Result<IpBlock, kube::Error> {
    try_create(&api().await, value.clone()).await
}

/// Changes the current version of the block.
async fn replace(name: &str, changes: &[(&str, Value)]) -> Result<IpBlock, kube::Error> {
    let api = api().await;
    let now = serde_json::to_value(api.get(name).await.unwrap()).unwrap();
    api.replace(
        name,
        &PostParams::default(),
        &serde_json::from_value(changed(now, changes)).unwrap(),
    )
    .await
}

#[tokio::test]
async fn the_name_of_a_block_must_encode_its_cidr() {
    for (name, cidr) in [
        ("b-4-0a010240-26", "10.1.2.64/26"),
        ("b-4-0a000000-32", "10.0.0.0/32"),
        ("b-c-6-fd000000000000000000000000000400-118", "fd00::400/118"),
        ("b-6-20010db80000000000000001000a0000-112", "2001:db8::1:a:0/112"),
        ("b-6-00000000000000000001000200030000-112", "::1:2:3:0/112"),
        (
            "b-6-20010db8000100020003000400050000-112",
            "2001:db8:1:2:3:4:5:0/112",
        ),
        ("b-6-20010000000000000000000000000000-16", "2001::/16"),
    ] {
        let made = create(&block(name, cidr, "n"))
            .await
            .unwrap_or_else(|e| panic!("{name}: {e}"));
        api()
            .await
            .delete(&made.name_any(), &DeleteParams::default())
            .await
            .unwrap();
    }
    for (name, cidr) in [
        ("b-4-0a010241-26", "10.1.2.64/26"),
        ("b-4-0a010240-27", "10.1.2.64/26"),
        ("b-6-0a010240-26", "10.1.2.64/26"),
        ("b-4-a010240-26", "10.1.2.64/26"),
        ("b-4-0a010240", "10.1.2.64/26"),
        ("b", "10.1.2.64/26"),
        ("b-6-fd000000000000000000000000000401-118", "fd00::400/118"),
        ("b-6-fd00-118", "fd00::400/118"),
        ("b-4-0a010240-26", "10.1.2.64/26x"),
        ("b-4-0a010241-26", "10.1.2.65/26"),
    ] {
        let status = refusal(create(&block(name, cidr, "n")).await);
        assert!(
            status.message.contains("the name of a block is") || status.message.contains("is not a network"),
            "{name} {cidr}: {}",
            status.message
        );
    }
}

#[tokio::test]
async fn a_second_create_of_a_block_is_refused() {
    let claimed = block("second-4-0a000000-26", "10.0.0.0/26", "n1");
    create(&claimed).await.unwrap();
    let status = refusal(create(&block("second-4-0a000000-26", "10.0.0.0/26", "n2")).await);
    assert_eq!(status.code, 409);
    assert_eq!(status.reason, "AlreadyExists");
}

#[tokio::test]
async fn a_block_changes_its_owner_only_while_orphaned_and_with_the_next_epoch() {
    let name = "passing-4-0a000000-26";
    create(&block(name, "10.0.0.0/26", "n1")).await.unwrap();
    let n2 = ("/spec/owner", json!({ "node": "n2", "nodeUID": "u2" }));
    let epoch = |n: i64| ("/spec/epoch", json!(n));
    let state = |s: &str| ("/spec/state", json!(s));

    let message = refusal(replace(name, &[n2.clone(), epoch(2)]).await).message;
    assert!(message.contains("only while it is Orphaned"), "{message}");
    let message = refusal(replace(name, &[epoch(3)]).await).message;
    assert!(message.contains("epoch stays or grows by one"), "{message}");
    replace(name, &[state("Draining")]).await.unwrap();
    let message = refusal(replace(name, &[epoch(0)]).await).message;
    assert!(message.contains("epoch"), "{message}");
    replace(name, &[state("Orphaned")]).await.unwrap();
    let message = refusal(replace(name, &[n2.clone(), state("Active")]).await).message;
    assert!(message.contains("it must grow by one"), "{message}");
    let message = refusal(replace(name, &[state("Active")]).await).message;
    assert!(message.contains("it must grow by one"), "{message}");
    let taken = replace(name, &[n2, state("Active"), epoch(2)]).await.unwrap();
    assert_eq!((taken.spec.owner.node.as_str(), taken.spec.epoch), ("n2", 2));
}

#[tokio::test]
async fn a_shared_block_stays_shared_and_a_block_cannot_change_its_pool() {
    let name = "staying-4-0a000000-26";
    create(&block(name, "10.0.0.0/26", "n1")).await.unwrap();
    let message = refusal(replace(name, &[("/spec/pool", json!("other"))]).await).message;
    assert!(
        message.contains("pool and cidr of a block cannot be changed"),
        "{message}"
    );
    replace(name, &[("/spec/state", json!("Shared"))]).await.unwrap();
    let message = refusal(
        replace(
            name,
            &[("/spec/state", json!("Active")), ("/spec/epoch", json!(2))],
        )
        .await,
    )
    .message;
    assert!(message.contains("stays Shared"), "{message}");
}

#[tokio::test]
async fn an_update_from_an_old_resource_version_is_refused() {
    let name = "swapped-4-0a000000-26";
    let old = create(&block(name, "10.0.0.0/26", "n1")).await.unwrap();
    replace(name, &[("/spec/state", json!("Draining"))])
        .await
        .unwrap();
    let status = refusal(api().await.replace(name, &PostParams::default(), &old).await);
    assert_eq!(status.reason, "Conflict");
}

#[tokio::test]
async fn a_delete_with_an_old_resource_version_is_refused() {
    let name = "returned-4-0a000000-26";
    let old = create(&block(name, "10.0.0.0/26", "n1")).await.unwrap();
    replace(name, &[("/spec/state", json!("Draining"))])
        .await
        .unwrap();
    let exactly = DeleteParams::default().preconditions(kube::api::Preconditions {
        uid: old.uid(),
        resource_version: old.resource_version(),
    });
    let status = refusal(api().await.delete(name, &exactly).await);
    assert_eq!(status.reason, "Conflict");
}
