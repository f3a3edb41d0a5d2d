// SPDX-License-Identifier: Apache-2.0
//! A stolen token of one node's agent. The tests send every write and read that could harm another node, as plain HTTP
//! requests: kubectl reads before it patches, so it never sends some of them.
//!
//! Each request is first a dry run of an administrator. If the dry run succeeds and changes the object, the API server must
//! answer 403 to the thief. If the dry run fails, the schema or a rule of a definition refuses the request to everybody, so
//! the request shows nothing about rights and policies. Each change must therefore work for an administrator on at least
//! one object of the kind, except those of `targets::refused_to_all`. So must each object of `forged`, except the
//! binding of a pod.
//!
//! Invariant: after each request every object outside the thief's node is unchanged, and all except pools have the same
//! version. There are exceptions, and the tests show how far each goes:
//! - The thief can bind an address that is Kept for a pod of a `StatefulSet` to its own node, for the same pod. An agent
//!   does the same when the pod starts on its node.
//! - The thief can create an address object in another node's block, for its own node. A shared block needs that.
//! - The thief can create objects of its own node that the controller and other agents believe: a block of any size, and an
//!   address whose holder is any pod of a `StatefulSet`. The policies read neither the address spaces nor the pods.
//! - The thief can read any Pod whose name it knows. That a Pod is gone is evidence before an address is freed.

mod foreign;
mod forged;
mod targets;

use crate::{Identity, Server};
use http::{Method, StatusCode};
use kube::Client;
use kube::client::Body;
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use targets::Target;

/// The node whose token is stolen.
pub(crate) const THIEF: &str = "thief";

/// The node that the thief attacks.
pub(crate) const VICTIM: &str = "victim";

/// The status and the text of the API server's response.
async fn send(client: &Client, method: Method, path: &str, kind: &str, body: &Value) -> (StatusCode, String) {
    let request = http::Request::builder()
        .method(method)
        .uri(path)
        .header("content-type", kind)
        .body(Body::from(serde_json::to_vec(body).unwrap()))
        .unwrap();
    let answer = client.send(request).await.unwrap();
    let status = answer.status();
    let bytes = answer.into_body().collect_bytes().await.unwrap();
    (status, String::from_utf8_lossy(&bytes).into_owned())
}

async fn get(client: &Client, path: &str) -> (StatusCode, String) {
    send(client, Method::GET, path, "application/json", &json!({})).await
}

/// The object `there` with `change` merged into it (RFC 7396).
fn merged(there: &Value, change: &Value) -> Value {
    let (Value::Object(there), Value::Object(change)) = (there, change) else {
        return change.clone();
    };
    let mut all = there.clone();
    for (key, value) in change {
        if value.is_null() {
            all.remove(key);
        } else {
            let before = all.get(key).cloned().unwrap_or(Value::Null);
            all.insert(key.clone(), merged(&before, value));
        }
    }
    Value::Object(all)
}

fn has_null(change: &Value) -> bool {
    match change {
        Value::Null => true,
        Value::Object(members) => members.values().any(has_null),
        _ => false,
    }
}

/// A request against a target: its method, the suffix of its path, its content type and its body.
struct Try {
    method: Method,
    tail: String,
    kind: &'static str,
    body: Value,
}

/// Every request that could apply `change` to `there`.
fn ways(there: &Value, change: &Value) -> Vec<Try> {
    let after = merged(there, change);
    let mut unversioned = after.clone();
    unversioned["metadata"]
        .as_object_mut()
        .unwrap()
        .remove("resourceVersion");
    let operations: Vec<Value> = after
        .as_object()
        .unwrap()
        .iter()
        .filter(|(key, value)| !["apiVersion", "kind"].contains(&key.as_str()) && !value.is_null())
        .map(|(key, value)| json!({ "op": "add", "path": format!("/{key}"), "value": value }))
        .collect();
    let mut applied = change.clone();
    for key in ["apiVersion", "kind"] {
        applied[key] = there[key].clone();
    }
    applied["metadata"]["name"] = there["metadata"]["name"].clone();
    let mut all = Vec::new();
    for tail in ["", "/status"] {
        let mut add = |method: Method, tail: String, kind, body: &Value| {
            all.push(Try {
                method,
                tail,
                kind,
                body: body.clone(),
            });
        };
        let plain = tail.to_owned();
        add(Method::PUT, plain.clone(), "application/json", &after);
        add(Method::PUT, plain.clone(), "application/json", &unversioned);
        add(
            Method::PATCH,
            plain.clone(),
            "application/merge-patch+json",
            change,
        );
        add(
            Method::PATCH,
            plain.clone(),
            "application/json-patch+json",
            &Value::Array(operations.clone()),
        );
        add(
            Method::PATCH,
            plain,
            "application/strategic-merge-patch+json",
            change,
        );
        // With server-side apply, a null does not remove a field of another manager, so such a request would test
        // nothing.
        if !has_null(change) {
            let forced = format!("{tail}?fieldManager=thief&force=true");
            add(Method::PATCH, forced, "application/apply-patch+yaml", &applied);
        }
    }
    all
}

/// Every request that could delete `there`.
fn ends(there: &Value) -> Vec<Try> {
    let plain = json!({ "apiVersion": "v1", "kind": "DeleteOptions" });
    let exact = json!({
        "apiVersion": "v1", "kind": "DeleteOptions", "gracePeriodSeconds": 0, "propagationPolicy": "Orphan",
        "preconditions": { "uid": there["metadata"]["uid"], "resourceVersion": there["metadata"]["resourceVersion"] },
    });
    let end = |tail: &str, body: &Value| Try {
        method: Method::DELETE,
        tail: tail.to_owned(),
        kind: "application/json",
        body: body.clone(),
    };
    vec![end("", &plain), end("", &exact), end("/status", &plain)]
}

/// The object without what the API server counts on each write.
fn uncounted(mut object: Value) -> Value {
    if let Some(metadata) = object["metadata"].as_object_mut() {
        for counted in ["managedFields", "resourceVersion", "generation"] {
            metadata.remove(counted);
        }
    }
    object
}

/// Whether the request of an administrator succeeds and changes `there`. It is a dry run, so it stores nothing.
async fn works_for_admin(admin: &Client, path: &str, there: &Value, one: &Try) -> bool {
    let mut body = one.body.clone();
    let mut path = path.to_owned();
    if one.method == Method::DELETE {
        // The API server ignores the query of a DELETE that has a body.
        body["dryRun"] = json!(["All"]);
    } else {
        path += if path.contains('?') {
            "&dryRun=All"
        } else {
            "?dryRun=All"
        };
    }
    let (status, text) = send(admin, one.method.clone(), &path, one.kind, &body).await;
    status.is_success()
        && (one.method == Method::DELETE
            || uncounted(serde_json::from_str(&text).unwrap()) != uncounted(there.clone()))
}

/// The results of requests against objects of other nodes.
#[derive(Default)]
struct Results {
    /// The number of requests.
    count: usize,
    /// A sentence for each request that the API server should have refused.
    harm: Vec<String>,
    /// The kind of an object and a change of it: whether the change works for an administrator on an object of the kind.
    works: BTreeMap<(String, String), bool>,
}

impl Results {
    /// Sends a request that is one way to make `change`: as a dry run of an administrator, then as the thief. `before` is
    /// the object; it is read again after the request.
    async fn attempt(
        &mut self,
        [admin, thief]: [&Client; 2],
        target: &str,
        before: &mut Value,
        (change, one): (&str, Try),
    ) {
        let path = format!("{target}{}", one.tail);
        let works = works_for_admin(admin, &path, before, &one).await;
        let kind = before["kind"].as_str().unwrap().to_owned();
        *self.works.entry((kind, change.to_owned())).or_default() |= works;
        let (status, text) = send(thief, one.method.clone(), &path, one.kind, &one.body).await;
        let now = targets::read(admin, target).await;
        self.count += 1;
        if now != *before || (works && status != StatusCode::FORBIDDEN) {
            let changed = if now == *before { "unchanged" } else { "CHANGED" };
            let short: String = text.chars().take(200).collect();
            self.harm.push(format!(
                "{} {path} ({}) is answered {status}, object {changed}: {} {short}",
                one.method, one.kind, one.body
            ));
            *before = now;
        }
    }

    /// Sends every request that could apply `change`.
    async fn apply(&mut self, clients: [&Client; 2], target: &str, before: &mut Value, change: &Value) {
        for one in ways(&before.clone(), change) {
            self.attempt(clients, target, before, (&change.to_string(), one))
                .await;
        }
    }

    /// Fails if a request did harm, or if other changes than those of `refused` work for no administrator.
    fn check(&self, refused: &BTreeSet<(String, String)>) {
        assert!(
            self.harm.is_empty(),
            "{} requests change what is not the node's, or are not answered 403:\n{}",
            self.harm.len(),
            self.harm.join("\n")
        );
        let ineffective = self
            .works
            .iter()
            .filter(|(_, works)| !**works)
            .map(|(change, _)| change.clone());
        assert_eq!(
            &ineffective.collect::<BTreeSet<_>>(),
            refused,
            "changes that the API server does not make for an administrator either"
        );
    }
}

/// The thief reads a Pod of another node by its name, and no more of it. Returns the number of requests.
async fn reads_of_a_pod(client: &Client) -> usize {
    let path = foreign::pod_of_the_victim();
    let (status, text) = get(client, &path).await;
    assert_eq!(status, StatusCode::OK, "{text}");
    let all = forged::of_a_kubelet();
    for path in &all {
        let (status, text) = get(client, path).await;
        assert_eq!(status, StatusCode::FORBIDDEN, "{path}: {text}");
    }
    1 + all.len()
}

/// Combines the binding of a kept address with changes that the thief must not make.
async fn bindings(clients: [&Client; 2], kept: &str, bound: &Value, results: &mut Results) {
    let mut there = targets::read(clients[0], kept).await;
    for (key, value) in targets::with_a_binding() {
        let mut change = bound.clone();
        change["spec"][key] = value;
        results.apply(clients, kept, &mut there, &change).await;
    }
}

/// Uses the exceptions. Returns the number of requests.
async fn exceptions(
    admin: &Client,
    client: &Client,
    thief: &Identity,
    (kept, bound): (String, Value),
) -> usize {
    let there = targets::read(admin, &kept).await;
    let (status, text) = send(
        client,
        Method::PATCH,
        &kept,
        "application/merge-patch+json",
        &bound,
    )
    .await;
    assert_eq!(status, StatusCode::OK, "{text}");
    let mut expected = merged(&there, &bound);
    let now = targets::read(admin, &kept).await;
    for counted in ["resourceVersion", "generation"] {
        expected["metadata"][counted] = now["metadata"][counted].clone();
    }
    assert_eq!(now, expected, "only node, state and attachment change");

    let (block, address) = targets::inside_a_block(thief);
    let there = targets::read(admin, &block).await;
    let made = targets::make(client, &targets::addresses(), &address).await;
    let path = format!(
        "{}/{}",
        targets::addresses(),
        made["metadata"]["name"].as_str().unwrap()
    );
    assert_eq!(targets::read(admin, &path).await["spec"], address["spec"]);
    assert_eq!(targets::read(admin, &block).await, there);
    2 + reads_of_a_pod(client).await + own_objects(admin, client, thief).await
}

/// The thief creates objects of its own node that others believe, and changes them. Returns the number of requests.
async fn own_objects(admin: &Client, client: &Client, thief: &Identity) -> usize {
    let all = targets::believed(thief);
    for (directory, object, change) in &all {
        let made = targets::make(client, directory, object).await;
        let path = format!("{directory}/{}", made["metadata"]["name"].as_str().unwrap());
        let kind = "application/merge-patch+json";
        let (status, text) = send(client, Method::PATCH, &path, kind, change).await;
        assert_eq!(status, StatusCode::OK, "PATCH {path} {change}: {text}");
        let now = targets::read(admin, &path).await;
        assert_eq!(now["spec"], merged(&object["spec"], &change["spec"]));
    }
    2 * all.len()
}

/// Sends all requests with the token of the node `THIEF`, whose agents run in `namespace`. Returns the number of
/// requests.
///
/// # Panics
/// If a request changed an object, or if the thief's node cannot do its own work.
pub async fn try_everything(server: &Server, namespace: &str) -> usize {
    let admin = server.admin().await;
    let thief = Identity::within(&admin, THIEF, namespace).await;
    let mut targets = targets::create(&admin, &thief, namespace).await;
    targets.extend(foreign::create(&admin, namespace).await);
    let client = server.with_token(&thief.token).await;
    targets::normal_requests(&client, &thief).await;
    let mut results = Results::default();
    let mut before = targets::snapshot(&admin, &targets).await;
    for target in &targets {
        let there = before.get_mut(&target.path).unwrap();
        for change in &target.changes {
            results
                .apply([&admin, &client], &target.path, there, change)
                .await;
        }
        for one in ends(there) {
            results
                .attempt([&admin, &client], &target.path, there, ("DELETE", one))
                .await;
        }
    }
    let exception = targets::kept_and_bound(&admin, &thief).await;
    bindings([&admin, &client], &exception.0, &exception.1, &mut results).await;
    results.check(&targets::refused_to_all(&exception.1));
    let mut count = results.count;
    count += collections(&client, &targets).await;
    count += made(&admin, &client, &thief, namespace).await;
    count += read([&admin, &client], namespace).await;
    let after = targets::snapshot(&admin, &targets).await;
    for (path, there) in &mut before {
        assert_eq!(after[path], *there, "{path}");
    }
    count + exceptions(&admin, &client, &thief, exception).await
}

/// Requests for all objects of a kind at once.
async fn collections(client: &Client, targets: &[Target]) -> usize {
    let mut all: Vec<&str> = targets
        .iter()
        .filter_map(|target| Some(target.path.rsplit_once('/')?.0))
        .collect();
    all.dedup();
    for path in &all {
        let (status, text) = send(client, Method::DELETE, path, "application/json", &json!({})).await;
        assert_eq!(status, StatusCode::FORBIDDEN, "DELETE {path}: {text}");
    }
    all.len()
}

/// Requests that create objects the thief may not create.
async fn made(admin: &Client, client: &Client, thief: &Identity, namespace: &str) -> usize {
    let mut all = forged::forged(thief, namespace);
    all.extend(forged::forged_for_the_cluster(namespace));
    for (path, body) in &all {
        let dry = format!("{path}?dryRun=All");
        let (status, text) = send(admin, Method::POST, &dry, "application/json", body).await;
        if path.ends_with("/binding") {
            // The pod has a node, and nothing changes the node of a pod.
            assert_eq!(status, StatusCode::CONFLICT, "POST {dry} {body}: {text}");
        } else {
            assert_eq!(status, StatusCode::CREATED, "POST {dry} {body}: {text}");
        }
        let (status, text) = send(client, Method::POST, path, "application/json", body).await;
        assert_eq!(status, StatusCode::FORBIDDEN, "POST {path} {body}: {text}");
    }
    all.len()
}

/// Requests that read what an administrator may read, and the thief may not. Returns the number of requests.
async fn read([admin, thief]: [&Client; 2], namespace: &str) -> usize {
    let all = forged::unreadable(namespace);
    for path in &all {
        let (status, text) = get(admin, path).await;
        assert_eq!(status, StatusCode::OK, "GET {path}: {text}");
        let (status, text) = get(thief, path).await;
        assert_eq!(status, StatusCode::FORBIDDEN, "GET {path}: {text}");
    }
    all.len()
}
