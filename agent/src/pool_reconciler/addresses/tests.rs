// SPDX-License-Identifier: Apache-2.0
use super::*;
use crate::pool_reconciler::testing::{address_object, asked, claimant, refusal, registered_node};
use api::testing::accepted_pool;
use serde_json::json;

const IP: &str = "10.1.0.5";

/// Binds the address while its object of `pool` exists, with the node and the attachment of the request.
async fn bind_beside_an_object_of(pool: &'static str) -> Result<IpAddress, Error> {
    let (context, target, _dir) = registered_node(move |uri| {
        let mut address = address_object(IP, "c1", "n");
        address["spec"]["pool"] = json!(pool);
        let block = json!({
            "apiVersion": "rdmanet.io/v1alpha1", "kind": "IPBlock",
            "metadata": { "name": "default-4-0a010000-28" },
            "spec": {
                "pool": "rail0", "cidr": "10.1.0.0/28", "owner": { "node": "m", "nodeUID": "v" },
                "state": "Shared", "epoch": 1,
            },
        });
        if uri.contains("/ipblocks/") {
            (200, block)
        } else if uri.contains("/ipaddresses/") {
            (200, address)
        } else {
            refusal(409)
        }
    })
    .await;
    let accepted = target.accepted.clone().unwrap();
    let scope = RequestScope {
        target: &target,
        accepted: &accepted,
        pending: None,
    };
    let mut addresses = Addresses::new(context);
    addresses
        .bind(scope, IP.parse().unwrap(), &claimant(&asked("c1")))
        .await
}

#[tokio::test]
async fn an_address_object_of_a_lost_response_is_used() {
    let bound = bind_beside_an_object_of("rail0").await.unwrap();
    assert_eq!(bound.spec.address, IP);
}

/// The agent of the node deletes that object when the other pool has no lease of it.
#[tokio::test]
async fn an_address_object_of_another_pool_for_the_same_attachment_is_in_use() {
    let refused = bind_beside_an_object_of("rail1").await.unwrap_err();
    assert_eq!(refused.code, Code::ADDRESS_IN_USE, "{}", refused.msg);
}

/// The agent of that block never notes what this pool reserves.
#[tokio::test]
async fn a_reserved_address_in_a_block_of_another_pool_is_refused_with_that_pool() {
    let block = json!({
        "apiVersion": "rdmanet.io/v1alpha1", "kind": "IPBlock", "metadata": { "name": "default-4-0a010000-28" },
        "spec": {
            "pool": "rail1", "cidr": "10.1.0.0/28", "owner": { "node": "m", "nodeUID": "v" },
            "state": "Active", "epoch": 1,
        },
        "status": { "used": 1, "free": 13, "observedGeneration": 7 },
    });
    let (context, target, _dir) = registered_node(move |_| (200, block.clone())).await;
    let spec = json!({
        "ranges": [{ "subnet": "10.1.0.0/24", "gateway": "none" }], "blockSize": { "v4": 16 }, "reserved": [IP],
    });
    let accepted = accepted_pool("rail0", &spec).unwrap();
    let scope = RequestScope {
        target: &target,
        accepted: &accepted,
        pending: None,
    };
    let addresses = Addresses::new(context);
    let refused = addresses.require_noted(scope, IP.parse().unwrap());
    let refused = refused.await.unwrap_err();
    assert_eq!(refused.code, Code::TRY_AGAIN);
    for piece in [
        "10.1.0.0/28 of pool rail1",
        "node m",
        "remove the common addresses",
    ] {
        assert!(refused.msg.contains(piece), "{piece}: {}", refused.msg);
    }
    assert!(!refused.msg.contains("check that agent"), "{}", refused.msg);
}
