// SPDX-License-Identifier: Apache-2.0
use super::*;
use crate::pool_reconciler::context::{PoolContext, Target};
use crate::pool_reconciler::testing::{
    address_object, asked, claimant, commit_lease, commit_lease_of, node_with, refusal, scope_of,
};
use ipam::store::{RequestId, Sandbox, Store};
use serde_json::{Value, json};
use std::fs;
use std::path::Path;
use tempfile::TempDir;

const IP: &str = "10.1.0.5";

/// The object of the address, of the lease of `c1` that has ended.
fn object() -> Value {
    address_object(IP, "c1", "n")
}

/// A node on which the address rests. The API server has `object`, and the block of the address is shared.
async fn node(object: Value, status: u16) -> (PoolContext, Target, TempDir) {
    let (context, target, dir) = node_of(vec![object], status).await;
    with(&context, |store| release(store, "c1", IP, Sandbox::default())).await;
    (context, target, dir)
}

/// Gives the address to `container`, and ends the lease.
fn release(store: &Store<'_>, container: &str, ip: &str, sandbox: Sandbox) {
    commit_lease_of(store, container, sandbox, (ip, true));
    let owner = asked(container).owner;
    store.enter().unwrap().release(&owner).unwrap().unwrap();
}

/// A node whose API server has these objects. It answers a write of one of them with `status`.
async fn node_of(objects: Vec<Value>, status: u16) -> (PoolContext, Target, TempDir) {
    node_with(&[], move |uri, body| {
        if uri.contains("/ipblocks/") {
            let spec = json!({
                "pool": "rail0", "cidr": "10.1.0.0/28", "owner": { "node": "m", "nodeUID": "v" },
                "state": "Shared", "epoch": 1,
            });
            let metadata = json!({ "name": "default-4-0a010000-28" });
            return (
                200,
                json!({ "apiVersion": "rdmanet.io/v1alpha1", "kind": "IPBlock", "metadata": metadata, "spec": spec }),
            );
        }
        if uri.contains("/ipaddresses/") && status != 200 {
            return refusal(status);
        }
        if uri.contains("/ipaddresses/") {
            let is_named = |object: &&Value| uri.contains(object["metadata"]["name"].as_str().unwrap());
            let mut written = objects.iter().find(is_named).unwrap().clone();
            written["spec"]["attachment"] = body["spec"]["attachment"].clone();
            return (200, written);
        }
        (
            200,
            json!({ "apiVersion": "rdmanet.io/v1alpha1", "kind": "IPAddressList", "metadata": {}, "items": objects }),
        )
    })
    .await
}

/// The container of the object that passes to `container`, if one does.
async fn take(context: &PoolContext, target: &Target, container: &str) -> Option<String> {
    let taken = pass_to(context, target, container, None).await;
    Some(taken?.spec.attachment.unwrap().container_id)
}

/// The address that passes to an attachment of the pod `default/NAME`.
async fn take_for(context: &PoolContext, target: &Target, name: &str) -> String {
    let taken = pass_to(context, target, "new", Pod::of(&sandbox(name))).await;
    taken.unwrap().spec.address
}

/// The object that passes to `container` of this pod, if one does.
async fn pass_to(
    context: &PoolContext,
    target: &Target,
    container: &str,
    pod: Option<Pod>,
) -> Option<IpAddress> {
    let accepted = target.accepted.clone().unwrap();
    let scope = scope_of(target, &accepted);
    let asked = asked(container);
    let claimant = Claimant {
        pod,
        ..claimant(&asked)
    };
    let mut addresses = Addresses::new(context.clone());
    addresses.take_resting(scope, |_| true, &claimant).await.unwrap()
}

/// The sandbox of the pod `default/NAME`.
fn sandbox(name: &str) -> Sandbox {
    Sandbox {
        pod: Some(format!("default/{name}")),
        ..Sandbox::default()
    }
}

async fn with<T: Send + 'static>(
    context: &PoolContext,
    work: impl FnOnce(&Store<'_>) -> T + Send + 'static,
) -> T {
    let stores = &context.agent.stores;
    stores
        .with(&context.pool, move |store| Ok(work(store)))
        .await
        .unwrap()
}

#[tokio::test]
async fn a_resting_address_passes_to_another_attachment_and_its_record_stays() {
    let (context, target, _dir) = node(object(), 200).await;
    with(&context, |store| {
        let locked = store.enter().unwrap();
        locked
            .begin_asking(&asked("c1").owner, &RequestId::random())
            .unwrap();
    })
    .await;
    assert_eq!(take(&context, &target, "c2").await.as_deref(), Some("c2"));
    let (asks, records) = with(&context, |store| {
        (
            store.is_asking(&asked("c1").owner),
            store.releases().unwrap().len(),
        )
    })
    .await;
    assert!(!asks, "an answer to the attachment before becomes no lease");
    assert_eq!(records, 1, "the object stays for the cooldown if the ADD fails");
}

#[tokio::test]
async fn an_attachment_gets_back_its_own_resting_address() {
    let (context, target, _dir) = node(object(), 200).await;
    let ask = |store: &Store<'_>| {
        let locked = store.enter().unwrap();
        locked
            .begin_asking(&asked("c1").owner, &RequestId::random())
            .unwrap();
    };
    with(&context, ask).await;
    assert_eq!(take(&context, &target, "c1").await.as_deref(), Some("c1"));
    assert!(with(&context, |store| store.is_asking(&asked("c1").owner)).await);
}

/// The first address has passed to `c8`, whose ADD may be about to make its lease.
#[tokio::test]
async fn an_address_that_has_just_passed_on_is_taken_last() {
    let (passed, untouched) = ("10.1.0.5", "10.1.0.6");
    for (container, expected) in [("c9", untouched), ("c8", passed)] {
        let objects = [(passed, "c8"), (untouched, "c2")];
        let objects = objects.map(|(ip, container)| address_object(ip, container, "n"));
        let (context, target, _dir) = node_of(objects.to_vec(), 200).await;
        with(&context, move |store| {
            release(store, "c1", passed, sandbox("a"));
            release(store, "c2", untouched, sandbox("b"));
        })
        .await;
        let taken = pass_to(&context, &target, container, None).await;
        assert_eq!(taken.unwrap().spec.address, expected, "{container}");
    }
}

#[tokio::test]
async fn a_pod_gets_its_previous_address_before_those_that_have_rested_longer() {
    let (earlier, later) = ("10.1.0.5", "10.1.0.6");
    let objects = || {
        vec![
            address_object(earlier, "c1", "n"),
            address_object(later, "c2", "n"),
        ]
    };
    for (pod, expected) in [("b", later), ("a", earlier), ("other", earlier)] {
        let (context, target, _dir) = node_of(objects(), 200).await;
        with(&context, move |store| {
            release(store, "c1", earlier, sandbox("a"));
            release(store, "c2", later, sandbox("b"));
        })
        .await;
        assert_eq!(take_for(&context, &target, pod).await, expected, "{pod}");
    }
}

/// The store lists the records in the order of the directory, which depends on the file system.
#[tokio::test]
async fn of_addresses_that_have_rested_equally_long_the_lowest_passes_on() {
    let ips: Vec<String> = (1..15).map(|host| format!("10.1.0.{host}")).collect();
    let container = |ip: &str| format!("c{ip}");
    let objects = ips
        .iter()
        .map(|ip| address_object(ip, &container(ip), "n"))
        .collect();
    let (context, target, dir) = node_of(objects, 200).await;
    let rests = ips.clone();
    with(&context, move |store| {
        for ip in rests {
            release(store, &container(&ip), &ip, Sandbox::default());
        }
    })
    .await;
    end_at_once(dir.path(), &ips);
    let taken = pass_to(&context, &target, "new", None).await;
    assert_eq!(taken.unwrap().spec.address, ips[0]);
}

/// Gives all records of these addresses the time of the first one.
fn end_at_once(data: &Path, ips: &[String]) {
    let records = data.join("pools/rail0/releases");
    let end = |content: &str| content.trim_end().rsplit('\n').next().unwrap().to_owned();
    let first = end(&fs::read_to_string(records.join(&ips[0])).unwrap());
    for ip in ips {
        let content = fs::read_to_string(records.join(ip)).unwrap();
        fs::write(records.join(ip), content.replace(&end(&content), &first)).unwrap();
    }
}

#[tokio::test]
async fn an_address_that_a_lease_has_again_is_not_passed_on() {
    for container in ["c1", "c3"] {
        let (context, target, _dir) = node(object(), 200).await;
        with(&context, move |store| commit_lease(store, container, IP, true)).await;
        for claimant in ["c1", "c2"] {
            assert_eq!(
                take(&context, &target, claimant).await,
                None,
                "{container} {claimant}"
            );
        }
    }
}

#[tokio::test]
async fn only_bound_objects_of_this_registration_are_passed_on() {
    type Change = (&'static str, Value);
    let holder = json!({ "namespace": "default", "pod": "db-0", "statefulSet": "db", "network": "rail", "ifname": "net1" });
    let changes: [Change; 4] = [
        ("state", json!("Orphaned")),
        ("holder", holder),
        ("node", json!({ "node": "n", "nodeUID": "earlier" })),
        ("pool", json!("rail1")),
    ];
    for (member, value) in changes {
        let mut object = object();
        object["spec"][member] = value;
        let (context, target, _dir) = node(object, 200).await;
        assert_eq!(take(&context, &target, "c2").await, None, "{member}");
    }
}

#[tokio::test]
async fn an_object_that_another_process_has_changed_is_not_passed_on() {
    let (context, target, _dir) = node(object(), 409).await;
    assert_eq!(take(&context, &target, "c2").await, None);
}
