// SPDX-License-Identifier: Apache-2.0
//! The objects that a thief could harm, and the requests that could harm them.

use super::{THIEF, VICTIM, send};
use crate::Identity;
use http::Method;
use kube::Client;
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};

pub(super) const GROUP: &str = "/apis/rdmanet.io/v1alpha1";

/// An object, and the changes that the thief must not make.
pub(super) struct Target {
    pub(super) path: String,
    pub(super) changes: Vec<Value>,
}

/// Reads an object, without its managed fields. For a pool also without its version, which changes whenever a node
/// requests a block.
pub(super) async fn read(admin: &Client, path: &str) -> Value {
    let (_, text) = send(admin, Method::GET, path, "application/json", &json!({})).await;
    let mut object: Value = serde_json::from_str(&text).unwrap();
    let is_pool = object["kind"] == "IPPool";
    if let Some(metadata) = object["metadata"].as_object_mut() {
        metadata.remove("managedFields");
        if is_pool {
            metadata.remove("resourceVersion");
        }
    }
    object
}

pub(super) async fn snapshot(admin: &Client, targets: &[Target]) -> BTreeMap<String, Value> {
    let mut all = BTreeMap::new();
    for target in targets {
        let there = read(admin, &target.path).await;
        assert!(there["metadata"]["uid"].is_string(), "{}: {there}", target.path);
        all.insert(target.path.clone(), there);
    }
    all
}

pub(super) async fn make(admin: &Client, directory: &str, object: &Value) -> Value {
    let (status, text) = send(admin, Method::POST, directory, "application/json", object).await;
    assert!(status.is_success(), "POST {directory} {object}: {text}");
    serde_json::from_str(&text).unwrap()
}

async fn write_status(admin: &Client, path: &str, status: &Value) {
    let change = json!({ "status": status });
    let path = format!("{path}/status");
    let (done, text) = send(
        admin,
        Method::PATCH,
        &path,
        "application/merge-patch+json",
        &change,
    )
    .await;
    assert!(done.is_success(), "PATCH {path} {change}: {text}");
}

pub(super) fn block(third: u8, owner: &Value, state: &str) -> Value {
    json!({
        "apiVersion": "rdmanet.io/v1alpha1", "kind": "IPBlock",
        "metadata": { "name": format!("default-4-0a4d{third:02x}00-26") },
        "spec": { "pool": "loot", "cidr": format!("10.77.{third}.0/26"), "owner": owner, "epoch": 3, "state": state },
    })
}

pub(super) fn address(last: u8, node: &Value, state: &str, holder: Option<Value>) -> Value {
    let mut object = json!({
        "apiVersion": "rdmanet.io/v1alpha1", "kind": "IPAddress",
        "metadata": { "name": format!("default-0a4dc8{last:02x}") },
        "spec": {
            "pool": "loot", "address": format!("10.77.200.{last}"), "block": "10.77.200.0/24", "node": node, "state": state,
        },
    });
    if state != "Kept" {
        object["spec"]["attachment"] =
            json!({ "containerID": format!("c{last}"), "ifname": "net1", "network": "net" });
    }
    if let Some(holder) = holder {
        object["spec"]["holder"] = holder;
    }
    object
}

pub(super) fn holder(pod: &str) -> Value {
    json!({ "namespace": "default", "statefulSet": "db", "pod": pod, "network": "net", "ifname": "net1" })
}

/// Changes of metadata that could delete an object or hide it.
pub(super) fn of_metadata() -> Vec<Value> {
    let gone_node = json!([{ "apiVersion": "v1", "kind": "Node", "name": "nobody", "uid": "00000000-0000-0000-0000-000000000000" }]);
    vec![
        json!({ "metadata": { "labels": { "stolen": "yes" } } }),
        json!({ "metadata": { "finalizers": ["example.com/stays"] } }),
        json!({ "metadata": { "ownerReferences": gone_node } }),
    ]
}

fn of_block(thief: &Value) -> Vec<Value> {
    let mut all = of_metadata();
    let orphaned = json!({ "by": THIEF, "since": "2026-01-01T00:00:00Z" });
    all.extend([
        json!({ "spec": { "state": "Orphaned", "orphaned": orphaned } }),
        json!({ "spec": { "state": "Active", "owner": thief, "epoch": 4, "orphaned": null } }),
        json!({ "spec": { "owner": thief, "epoch": 4 } }),
        json!({ "spec": { "state": "Draining" } }),
        json!({ "spec": { "state": "Shared" } }),
        json!({ "spec": { "epoch": 99 } }),
        json!({ "spec": { "pool": "other" } }),
        json!({ "status": { "used": 0, "free": 64, "observedGeneration": 9 } }),
    ]);
    all
}

fn of_address(thief: &Value) -> Vec<Value> {
    let mut all = of_metadata();
    all.extend([
        json!({ "spec": { "state": "Orphaned" } }),
        json!({ "spec": { "state": "Kept", "holder": holder("db-9"), "attachment": null } }),
        json!({ "spec": { "state": "Bound", "node": thief } }),
        json!({ "spec": { "state": "Bound", "node": thief, "holder": null,
            "attachment": { "containerID": "t", "ifname": "net1", "network": "net" } } }),
        json!({ "spec": { "state": "Bound", "node": thief, "holder": holder("db-9"),
            "attachment": { "containerID": "t", "ifname": "net1", "network": "net" } } }),
        json!({ "spec": { "attachment": { "containerID": "t", "ifname": "net9", "network": "net" } } }),
        json!({ "spec": { "pool": "other" } }),
    ]);
    all
}

fn of_pool() -> Vec<Value> {
    let through_me = json!([{ "dst": "0.0.0.0/0", "gw": "10.77.0.66" }]);
    let ranges = json!([{ "subnet": "10.78.0.0/16" }]);
    let mut all = of_metadata();
    all.extend([
        json!({ "metadata": { "finalizers": null } }),
        json!({ "spec": { "priority": 9 } }),
        json!({ "spec": { "ranges": ranges, "routes": through_me } }),
        json!({ "status": { "accepted": { "ranges": ranges, "routes": through_me } } }),
        json!({ "status": { "accepted": null } }),
        json!({ "status": { "accepted": { "namespaceSelector": null } } }),
        json!({ "status": { "observedGeneration": 99 } }),
        json!({ "status": { "conditions": [] } }),
        json!({ "status": { "counters": { "size": 0, "used": 0, "free": 0, "blocks": 0 } } }),
        json!({ "status": { "sharing": ["default-4-0a4d0000-26"] } }),
        json!({ "status": { "requests": null } }),
        json!({ "status": { "requests": { VICTIM: null } } }),
        json!({ "status": { "requests": { VICTIM: { "v4": "2030-01-01T00:00:00Z" } } } }),
        json!({ "status": { "requests": { "third": { "v4": "2030-01-01T00:00:00Z" } } } }),
        json!({ "status": null }),
    ]);
    all
}

fn of_node() -> Vec<Value> {
    let condition = |kind: &str, status: &str| json!({ "status": { "conditions": [{ "type": kind, "status": status, "reason": "Stolen", "message": "" }] } });
    let mut all = of_metadata();
    all.extend([
        condition("rdmanet.io/LinksReady", "False"),
        condition("Ready", "False"),
        json!({ "status": { "capacity": { "cpu": "1" } } }),
        json!({ "spec": { "unschedulable": true } }),
    ]);
    all
}

/// The changes, each with the kind of its object, that the API server refuses to administrators too. `bound` is
/// the binding of a kept address.
pub(super) fn refused_to_all(bound: &Value) -> BTreeSet<(String, String)> {
    let [mut of_pool, mut of_address] = [bound.clone(), bound.clone()];
    of_pool["spec"]["pool"] = json!("other");
    of_address["spec"]["address"] = json!("10.77.200.51");
    [
        ("IPBlock", json!({ "spec": { "pool": "other" } })),
        ("IPBlock", json!({ "spec": { "epoch": 99 } })),
        ("IPAddress", json!({ "spec": { "pool": "other" } })),
        ("IPAddress", of_pool),
        ("IPAddress", of_address),
        // The scale of a Deployment is a part of it.
        ("Scale", json!("DELETE")),
    ]
    .map(|(kind, change)| {
        let text = change.as_str().map_or_else(|| change.to_string(), str::to_owned);
        (kind.to_owned(), text)
    })
    .into()
}

/// Creates the objects that the thief attacks.
pub(super) async fn create(admin: &Client, thief: &Identity, namespace: &str) -> Vec<Target> {
    let victim = Identity::within(admin, VICTIM, namespace).await;
    let [thief, victim] = [&thief.node, &victim.node].map(|node| serde_json::to_value(node).unwrap());
    let mut all = Vec::new();
    blocks_and_addresses(admin, [&thief, &victim], &mut all).await;
    let pool = json!({
        "apiVersion": "rdmanet.io/v1alpha1", "kind": "IPPool", "metadata": { "name": "loot", "finalizers": ["rdmanet.io/addresses-in-use"] },
        "spec": { "ranges": [{ "subnet": "10.77.0.0/16" }] },
    });
    make(admin, &format!("{GROUP}/ippools"), &pool).await;
    let path = format!("{GROUP}/ippools/loot");
    let status = json!({
        "observedGeneration": 1, "accepted": { "ranges": [{ "subnet": "10.77.0.0/16" }], "namespaceSelector": { "matchLabels": { "a": "b" } } },
        "counters": { "size": 9, "used": 1, "free": 8, "blocks": 1 },
        "conditions": [{ "type": "Ready", "status": "True", "reason": "Accepted", "message": "", "lastTransitionTime": "2026-01-01T00:00:00Z" }],
        "requests": { VICTIM: { "v4": "2026-01-01T00:00:00Z" } },
    });
    write_status(admin, &path, &status).await;
    all.push(Target {
        path,
        changes: of_pool(),
    });
    others(admin, namespace, &mut all).await;
    all
}

async fn blocks_and_addresses(admin: &Client, [thief, victim]: [&Value; 2], all: &mut Vec<Target>) {
    let owners = [
        (victim, "Active"),
        (victim, "Draining"),
        (victim, "Orphaned"),
        (victim, "Shared"),
        (thief, "Shared"),
    ];
    for (third, (owner, state)) in (0..).zip(owners) {
        let object = make(admin, &format!("{GROUP}/ipblocks"), &block(third, owner, state)).await;
        let path = format!(
            "{GROUP}/ipblocks/{}",
            object["metadata"]["name"].as_str().unwrap()
        );
        write_status(admin, &path, &json!({ "used": 7, "free": 50 })).await;
        all.push(Target {
            path,
            changes: of_block(thief),
        });
    }
    let states = [
        ("Bound", None),
        ("Bound", Some(holder("db-0"))),
        ("Orphaned", None),
        ("Orphaned", Some(holder("db-1"))),
        ("Kept", Some(holder("db-2"))),
    ];
    for (last, (state, holder)) in (1..).zip(states) {
        let object = make(
            admin,
            &format!("{GROUP}/ipaddresses"),
            &address(last, victim, state, holder),
        )
        .await;
        let path = format!(
            "{GROUP}/ipaddresses/{}",
            object["metadata"]["name"].as_str().unwrap()
        );
        all.push(Target {
            path,
            changes: of_address(thief),
        });
    }
}

async fn others(admin: &Client, namespace: &str, all: &mut Vec<Target>) {
    let space = json!({
        "apiVersion": "rdmanet.io/v1alpha1", "kind": "AddressSpace", "metadata": { "name": "loot" },
        "spec": { "pools": [{ "name": "loot", "uid": "u", "generation": 1, "shiftV4": 6, "shiftV6": 10, "stretches": [] }] },
    });
    make(admin, &format!("{GROUP}/addressspaces"), &space).await;
    let mut changes = of_metadata();
    changes.push(json!({ "spec": { "pools": [] } }));
    all.push(Target {
        path: format!("{GROUP}/addressspaces/loot"),
        changes,
    });
    let lease = json!({
        "apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": { "name": "rdmanet-controller" },
        "spec": { "holderIdentity": "rdmanet-controller-a" },
    });
    let directory = format!("/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases");
    make(admin, &directory, &lease).await;
    all.push(Target {
        path: format!("{directory}/rdmanet-controller"),
        changes: vec![json!({ "spec": { "holderIdentity": THIEF } })],
    });
    all.push(Target {
        path: format!("/api/v1/nodes/{VICTIM}"),
        changes: of_node(),
    });
    let event = json!({
        "apiVersion": "events.k8s.io/v1", "kind": "Event", "metadata": { "name": "told", "namespace": "default" },
        "eventTime": "2026-01-01T00:00:00.000000Z", "reportingController": "rdmanet-agent", "reportingInstance": VICTIM,
        "action": "Watch", "reason": "LinkUp", "type": "Normal", "note": "link ib0 has carrier again",
        "regarding": { "kind": "Node", "name": VICTIM },
    });
    let directory = "/apis/events.k8s.io/v1/namespaces/default/events";
    make(admin, directory, &event).await;
    let labels = json!({ "metadata": { "labels": { "stolen": "yes" } } });
    all.push(Target {
        path: format!("{directory}/told"),
        changes: vec![
            json!({ "series": { "count": 9, "lastObservedTime": "2026-01-01T00:00:09.000000Z" } }),
            labels.clone(),
        ],
    });
    // The same object in the older API of Events, which the policies do not match.
    all.push(Target {
        path: "/api/v1/namespaces/default/events/told".to_owned(),
        changes: vec![json!({ "count": 9, "message": "stolen" }), labels],
    });
}

/// The normal requests of an agent. They must succeed; otherwise a rejection of the others proves nothing.
pub(super) async fn normal_requests(client: &Client, thief: &Identity) {
    let own = serde_json::to_value(&thief.node).unwrap();
    let mut mine = block(99, &own, "Active");
    mine["spec"]["epoch"] = json!(1);
    let made = make(client, &format!("{GROUP}/ipblocks"), &mine).await;
    let path = format!("{GROUP}/ipblocks/{}", made["metadata"]["name"].as_str().unwrap());
    write_status(client, &path, &json!({ "used": 0, "free": 64 })).await;
    let (status, text) = send(client, Method::DELETE, &path, "application/json", &json!({})).await;
    assert!(status.is_success(), "{text}");
    let address = address(99, &own, "Bound", None);
    let made = make(client, &format!("{GROUP}/ipaddresses"), &address).await;
    let path = format!(
        "{GROUP}/ipaddresses/{}",
        made["metadata"]["name"].as_str().unwrap()
    );
    let (status, text) = send(client, Method::DELETE, &path, "application/json", &json!({})).await;
    assert!(status.is_success(), "{text}");
    let request =
        json!({ "requests": { THIEF: { "v4": "2026-01-01T00:00:00Z", "addresses": ["default-0a4dc801"] } } });
    write_status(client, &format!("{GROUP}/ippools/loot"), &request).await;
    let none = json!({ "requests": { THIEF: null } });
    write_status(client, &format!("{GROUP}/ippools/loot"), &none).await;
}

/// The directory of address objects.
pub(super) fn addresses() -> String {
    format!("{GROUP}/ipaddresses")
}

/// Creates an address that is kept for a pod of the victim. Returns its path, and the change with which the thief binds it to
/// its own node for the same pod.
pub(super) async fn kept_and_bound(admin: &Client, thief: &Identity) -> (String, Value) {
    let victim = json!({ "node": VICTIM, "nodeUID": "u" });
    let kept = address(50, &victim, "Kept", Some(holder("db-3")));
    let made = make(admin, &addresses(), &kept).await;
    let path = format!("{}/{}", addresses(), made["metadata"]["name"].as_str().unwrap());
    let attachment = json!({ "containerID": "t", "ifname": "net1", "network": "net" });
    let bound = json!({ "spec": { "state": "Bound", "node": thief.node, "attachment": attachment } });
    (path, bound)
}

/// Values of the spec that the thief must not combine with the binding of a kept address.
pub(super) fn with_a_binding() -> [(&'static str, Value); 6] {
    [
        ("holder", holder("db-9")),
        ("holder", Value::Null),
        ("state", json!("Orphaned")),
        ("node", json!({ "node": "third", "nodeUID": "u" })),
        ("pool", json!("other")),
        ("address", json!("10.77.200.51")),
    ]
}

/// The path of a block of the victim, and an address in it for the thief's node.
pub(super) fn inside_a_block(thief: &Identity) -> (String, Value) {
    let path = format!("{GROUP}/ipblocks/default-4-0a4d0000-26");
    let own = serde_json::to_value(&thief.node).unwrap();
    let mut inside = address(0, &own, "Bound", None);
    inside["metadata"]["name"] = json!("default-0a4d0005");
    inside["spec"]["address"] = json!("10.77.0.5");
    inside["spec"]["block"] = json!("10.77.0.0/26");
    (path, inside)
}

/// Objects of the thief's own node that the controller and other agents believe, each with its directory and the change that
/// follows: a block of half of all IPv4 addresses, and an address whose holder is a pod of another node.
pub(super) fn believed(thief: &Identity) -> [(String, Value, Value); 2] {
    let own = serde_json::to_value(&thief.node).unwrap();
    let mut half = block(0, &own, "Active");
    half["metadata"]["name"] = json!("default-4-80000000-1");
    half["spec"]["cidr"] = json!("128.0.0.0/1");
    half["spec"]["epoch"] = json!(1);
    let held = address(52, &own, "Bound", Some(holder("db-7")));
    let kept = json!({ "spec": { "state": "Kept", "attachment": null } });
    [
        (
            format!("{GROUP}/ipblocks"),
            half,
            json!({ "spec": { "epoch": 2 } }),
        ),
        (addresses(), held, kept),
    ]
}
