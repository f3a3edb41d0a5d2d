// SPDX-License-Identifier: Apache-2.0
//! The match of objects and leases.

use super::super::testing::{
    damage_lease, file_of_earlier_boot, node_with, refusal, registered_node, replace_file, touch_address,
};
use super::*;
use api::testing::accepted_pool;
use common::cni::{CniResult, ContainerId, IfName};
use ipam::config::Space;
use ipam::store::Sandbox;
use serde_json::{Value, json};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tempfile::TempDir;

const IP: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(10, 0, 0, 9));

fn lease(inode: u64, api: Vec<IpAddr>) -> StoredLease {
    StoredLease {
        lease: Lease {
            owner: Attachment {
                container_id: ContainerId::try_from("c1".to_owned()).unwrap(),
                ifname: IfName::try_from("net1".to_owned()).unwrap(),
            },
            network: "rail0".to_owned(),
            sandbox: Sandbox::default(),
            api,
            space: Space::default(),
            since: String::new(),
            since_boot: Duration::ZERO,
            result: CniResult::default(),
        },
        inode,
    }
}

#[test]
fn an_existing_address_object_belongs_to_no_lease_until_it_is_renewed() {
    let mut published = Published::default();
    assert!(!published.has(IP, &lease(1, Vec::new())));
    published.note(IP, &lease(1, Vec::new()));
    assert!(published.has(IP, &lease(1, Vec::new())));
}

#[test]
fn the_object_of_an_earlier_lease_does_not_belong_to_the_next_lease() {
    let mut published = Published::default();
    published.note(IP, &lease(1, Vec::new()));
    assert!(!published.has(IP, &lease(2, Vec::new())));
}

#[test]
fn a_lease_allocated_through_the_api_server_has_an_address_object() {
    assert!(Published::default().has(IP, &lease(1, vec![IP])));
}

/// The object of [`IP`], which is kept for `db-0` since its pod ended on `node`.
fn kept_on(node: &str) -> Value {
    json!({
        "apiVersion": "rdmanet.io/v1alpha1", "kind": "IPAddress",
        "metadata": { "name": "default-4-0a000009", "resourceVersion": "7" },
        "spec": {
            "pool": "rail0", "address": IP, "block": "10.0.0.0/28", "state": "Kept",
            "node": { "node": node, "nodeUID": "earlier" },
            "pod": { "namespace": "default", "name": "db-0", "uid": "ended" },
            "holder": {
                "namespace": "default", "statefulSet": "db", "pod": "db-0", "network": "rail0", "ifname": "net1",
            },
        },
    })
}

/// The response of an API server that has this object of [`IP`] and the pod `db-0`, and accepts each change of the object.
fn answer_with_kept(kept: &Value, (uri, body): (&str, &Value)) -> (u16, Value) {
    let set = json!({ "apiVersion": "apps/v1", "kind": "StatefulSet", "name": "db", "uid": "1", "controller": true });
    if uri.contains("/pods/") {
        let metadata =
            json!({ "name": "db-0", "namespace": "default", "uid": "living", "ownerReferences": [set] });
        return (
            200,
            json!({ "apiVersion": "v1", "kind": "Pod", "metadata": metadata }),
        );
    }
    if uri.contains("/ipaddresses/") {
        let mut object = kept.clone();
        if !body.is_null() {
            object["spec"] = body["spec"].clone();
        }
        return (200, object);
    }
    refusal(409)
}

/// The last write for a lease of `db-0` on [`IP`], whose object is kept on `node`. `is_listed`: the object is one of this node.
async fn write_for_kept(node: &str, is_listed: bool) -> Value {
    let mut stored = lease(1, vec![IP]);
    stored.lease.sandbox.pod = Some("default/db-0".to_owned());
    stored.lease.sandbox.uid = Some("living".to_owned());
    writes_for_kept(stored, node, is_listed).await.pop().unwrap()
}

/// The writes for a lease on [`IP`], whose object is kept for `db-0` on `node`. `is_listed`: the object is one of this node.
async fn writes_for_kept(stored: StoredLease, node: &str, is_listed: bool) -> Vec<Value> {
    let (kept, written) = (kept_on(node), Arc::new(Mutex::new(Vec::new())));
    let (there, seen) = (kept.clone(), written.clone());
    let (context, target, _dir) = node_with(&[], move |uri, body| {
        if !body.is_null() {
            seen.lock().unwrap().push(body.clone());
        }
        answer_with_kept(&there, (uri, body))
    })
    .await;
    let accepted = accepted_pool(
        "rail0",
        &json!({ "ranges": [{ "subnet": "10.0.0.0/24" }], "reserved": ["10.0.0.0/28"], "sticky": "StatefulSet" }),
    )
    .unwrap();
    let object = serde_json::from_value(kept).unwrap();
    let there = BTreeMap::from_iter(is_listed.then_some((IP, object)));
    let mut publisher = Publisher::new(context);
    let conflict = publisher
        .write_missing(&target, &accepted, vec![(IP, stored)], &there)
        .await;
    assert_eq!(conflict.unwrap(), None);
    std::mem::take(&mut written.lock().unwrap())
}

/// Asserts that the write binds the kept object to the pod of the lease.
fn assert_bound(written: &Value) {
    assert_eq!(written["metadata"]["resourceVersion"], "7");
    let spec = &written["spec"];
    assert_eq!(spec["state"], "Bound");
    assert_eq!(spec["node"], json!({ "node": "n", "nodeUID": "u" }));
    assert_eq!(spec["attachment"]["containerID"], "c1");
    assert_eq!(spec["pod"]["uid"], "living");
    assert_eq!(spec["holder"], kept_on("n")["spec"]["holder"]);
}

/// In the restored etcd the pod of the lease has not started yet.
#[tokio::test]
async fn a_kept_address_that_a_lease_has_is_bound_to_the_pod_of_the_lease_again() {
    assert_bound(&write_for_kept("n", true).await);
}

/// In the restored etcd the earlier pod has ended on another node.
#[tokio::test]
async fn an_address_kept_on_another_node_is_bound_to_the_pod_whose_lease_has_it() {
    assert_bound(&write_for_kept("other", false).await);
}

/// The address was kept for `db-0` before this node noted that it is reserved. An agent may bind it for its holder only, and then
/// change the holder in its own object.
#[tokio::test]
async fn an_address_kept_for_another_pod_is_bound_to_the_pod_that_has_it() {
    let plain = || {
        let mut stored = lease(1, Vec::new());
        stored.lease.sandbox.pod = Some("default/app".to_owned());
        stored
    };
    let elsewhere = writes_for_kept(plain(), "other", false).await;
    let holders: Vec<&Value> = elsewhere.iter().map(|object| &object["spec"]["holder"]).collect();
    // The refused CREATE comes first.
    assert_eq!(
        holders,
        [&Value::Null, &kept_on("n")["spec"]["holder"], &Value::Null]
    );
    let here = writes_for_kept(plain(), "n", true).await;
    for last in [elsewhere.last(), here.last()] {
        let spec = &last.unwrap()["spec"];
        assert_eq!(spec["state"], "Bound");
        assert_eq!(spec["node"], json!({ "node": "n", "nodeUID": "u" }));
        assert_eq!(
            (&spec["pod"]["name"], &spec["holder"]),
            (&json!("app"), &Value::Null)
        );
    }
}

/// A publisher of a node with the block 10.1.0.0/28, and the addresses of the block. No object exists.
async fn publisher() -> (Publisher, Target, TempDir, IntervalSet) {
    let none = serde_json::json!({ "kind": "List", "metadata": {}, "items": [] });
    let (context, target, dir) = registered_node(move |_| (200, none.clone())).await;
    let file = file_of_earlier_boot(&context, target.accepted.as_ref().unwrap());
    replace_file(&context, &file).await;
    let block = BlockCidr::of("10.1.0.0/28".parse().unwrap());
    let all = block.map(BlockCidr::interval).into_iter().collect();
    (Publisher::new(context), target, dir, all)
}

#[tokio::test]
async fn an_address_without_a_readable_lease_counts_as_one_without_an_object() {
    let (mut publisher, target, dir, all) = publisher().await;
    let block = BlockCidr::of("10.1.0.0/28".parse().unwrap());
    assert!(publisher.can_share(block).await.unwrap());
    assert!(publisher.can_reserve(&all).await.unwrap());

    damage_lease(&publisher.context, &dir, "10.1.0.3").await;
    // In no block of this node.
    touch_address(&dir, "10.1.0.40");
    let unpublished = publisher.unpublished(&target.api, block).await.unwrap();
    assert_eq!((unpublished.taken, unpublished.resting), (1, 0));
    assert!(!publisher.can_share(block).await.unwrap());
    assert!(!publisher.can_reserve(&all).await.unwrap());
}

#[tokio::test]
async fn an_unreadable_lease_needs_an_object_if_it_is_reserved_or_in_no_block_of_the_node() {
    let (mut publisher, target, dir, _) = publisher().await;
    damage_lease(&publisher.context, &dir, "10.1.0.3").await;
    touch_address(&dir, "10.1.0.40");
    let ip: IpAddr = "10.1.0.3".parse().unwrap();
    let context = publisher.context.clone();
    let own = file_of_earlier_boot(&context, target.accepted.as_ref().unwrap());
    let (mut reserved, mut lost) = (own.clone(), own);
    reserved.reserved = vec![ip.to_string()];
    lost.blocks.clear();
    assert!(publisher.uncovered().await.unwrap().unattributed.is_empty());
    for file in [reserved, lost] {
        replace_file(&context, &file).await;
        assert_eq!(publisher.uncovered().await.unwrap().unattributed, [ip]);
    }
}

#[tokio::test]
async fn a_blocked_address_is_not_shared_but_may_become_reserved() {
    let (mut publisher, _, dir, all) = publisher().await;
    touch_address(&dir, "10.1.0.5");
    let block = BlockCidr::of("10.1.0.0/28".parse().unwrap());
    assert!(!publisher.can_share(block).await.unwrap());
    assert!(publisher.can_reserve(&all).await.unwrap());
}
