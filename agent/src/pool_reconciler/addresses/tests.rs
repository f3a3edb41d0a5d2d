// SPDX-License-Identifier: Apache-2.0
use super::*;
use crate::pool_reconciler::testing::{
    address_object, asked, claimant, node_with, refusal, registered_node, scope_of,
};
use api::testing::accepted_pool;
use serde_json::json;
use std::sync::{Arc, Mutex};

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
    let scope = scope_of(&target, &accepted);
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
    let scope = scope_of(&target, &accepted);
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

/// Binds addresses of the reserved 10.1.0.5 and 10.1.0.21 in turn for a pod that keeps its address. The block of the first one is
/// `first`. That of the second one is shared. Returns the result and the changes of objects.
async fn bind_for_holder(
    first: serde_json::Value,
) -> (Result<Option<IpAddress>, Error>, Vec<serde_json::Value>) {
    let changes = Arc::new(Mutex::new(Vec::new()));
    let seen = changes.clone();
    let (context, target, _dir) = node_with(&[], move |uri, body| {
        if uri.contains("/ipblocks/") {
            let is_first = uri.contains("default-4-0a010000-28");
            return (
                200,
                if is_first {
                    first.clone()
                } else {
                    block("10.1.0.16/28", "rail0", "Shared")
                },
            );
        }
        let mut object = body.clone();
        object["metadata"]["resourceVersion"] = json!("1");
        object["metadata"]["uid"] = json!("1");
        seen.lock().unwrap().push(body.clone());
        (200, object)
    })
    .await;
    let spec = json!({
        "ranges": [{ "subnet": "10.1.0.0/24", "gateway": "none" }], "blockSize": { "v4": 16 },
        "reserved": ["10.1.0.5", "10.1.0.21"], "sticky": "StatefulSet",
    });
    let accepted = accepted_pool("rail0", &spec).unwrap();
    let scope = scope_of(&target, &accepted);
    let asked = asked("c1");
    let holder = json!({
        "namespace": "default", "statefulSet": "db", "pod": "db-0", "network": "rail", "ifname": "net1",
    });
    let claimant = Claimant {
        holder: serde_json::from_value(holder).unwrap(),
        ..claimant(&asked)
    };
    let numbers = ["10.1.0.5", "10.1.0.21"].map(|ip| bits(ip.parse().unwrap()));
    let mut addresses = Addresses::new(context);
    let bound = addresses
        .bind_one(scope, Family::V4, numbers.to_vec(), &claimant)
        .await;
    let changes = std::mem::take(&mut *changes.lock().unwrap());
    (bound, changes)
}

fn block(cidr: &str, pool: &str, state: &str) -> serde_json::Value {
    json!({
        "apiVersion": "rdmanet.io/v1alpha1", "kind": "IPBlock", "metadata": { "name": cidr.replace('/', "-") },
        "spec": {
            "pool": pool, "cidr": cidr, "owner": { "node": "m", "nodeUID": "v" }, "state": state, "epoch": 1,
        },
        "status": { "used": 1, "free": 13, "observedGeneration": 0 },
    })
}

/// The owner of the block may have a pod with the address, and needs the object for that pod.
#[tokio::test]
async fn a_first_address_of_a_holder_is_deleted_if_its_block_has_not_noted_it() {
    let (bound, changes) = bind_for_holder(block("10.1.0.0/28", "rail0", "Active")).await;
    assert_eq!(bound.unwrap().unwrap().spec.address, "10.1.0.21");
    let [created, deleted, _] = &changes[..] else {
        panic!("{changes:?}");
    };
    assert_eq!(created["spec"]["address"], "10.1.0.5");
    assert!(deleted["preconditions"].is_object(), "{deleted}");
}

#[tokio::test]
async fn a_search_passes_over_a_reserved_address_in_a_block_of_another_pool() {
    let (bound, _) = bind_for_holder(block("10.1.0.0/28", "rail1", "Active")).await;
    assert_eq!(bound.unwrap().unwrap().spec.address, "10.1.0.21");
}
