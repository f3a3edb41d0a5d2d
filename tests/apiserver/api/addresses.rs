// SPDX-License-Identifier: Apache-2.0
//! The validation rules of address objects, which apply to every client.

use crate::{address, changed, refusal};
use api::IpAddress;
use apiserver::Server;
use apiserver::objects::try_create;
use kube::api::{Api, PostParams};
use serde_json::{Value, json};

async fn create(value: &Value) -> Result<IpAddress, kube::Error> {
    let api: Api<IpAddress> = Api::all(Server::shared().admin().await);
    try_create(&api, value.clone()).await
}

#[tokio::test]
async fn the_name_of_an_address_object_must_encode_its_address() {
    create(&address("a-0a000005", "10.0.0.5", "n")).await.unwrap();
    create(&address("a-fd000000000000000000000000000005", "fd00::5", "n"))
        .await
        .unwrap();
    create(&address("a-00000000000000000000000000000001", "::1", "n"))
        .await
        .unwrap();
    for (name, ip) in [
        ("a-0a000006", "10.0.0.5"),
        ("a-5", "10.0.0.5"),
        ("a-0a000005", "fd00::5"),
        ("a-fd000000000000000000000000000006", "fd00::5"),
    ] {
        let message = refusal(create(&address(name, ip, "n")).await).message;
        assert!(message.contains("the name of an address is"), "{name}: {message}");
    }
    let message = refusal(create(&address("a-0a000005", "10.0.0.05", "n")).await).message;
    assert!(message.contains("is not an IP address"), "{message}");
}

#[tokio::test]
async fn an_address_object_can_be_created_only_once() {
    create(&address("once-0a000005", "10.0.0.5", "n1")).await.unwrap();
    let status = refusal(create(&address("once-0a000005", "10.0.0.5", "n2")).await);
    assert_eq!(status.reason, "AlreadyExists");
}

#[tokio::test]
async fn a_kept_address_must_name_its_holder() {
    let kept = changed(
        address("kept-0a000005", "10.0.0.5", "n"),
        &[("/spec/state", json!("Kept"))],
    );
    let message = refusal(create(&kept).await).message;
    assert!(message.contains("one that is Kept its holder"), "{message}");
    let holder = json!({ "namespace": "train", "statefulSet": "db", "pod": "db-0", "network": "rail0", "ifname": "net1" });
    create(&changed(kept, &[("/spec/holder", holder)])).await.unwrap();
}

#[tokio::test]
async fn a_bound_address_cannot_pass_to_another_node() {
    let api: Api<IpAddress> = Api::all(Server::shared().admin().await);
    let mut bound = create(&address("bound-0a000005", "10.0.0.5", "n1"))
        .await
        .unwrap();
    bound.spec.node.node = "n2".to_owned();
    let message = refusal(
        api.replace("bound-0a000005", &PostParams::default(), &bound)
            .await,
    )
    .message;
    assert!(message.contains("only while it is Kept or Orphaned"), "{message}");
}
