// SPDX-License-Identifier: Apache-2.0
//! A stolen token of one node's agent. The tests send every write and read that could harm another node, as plain HTTP
//! requests: kubectl reads before it patches, so it never sends some of them.
//!
//! Invariant: after each request every object outside the thief's node is unchanged, and all except pools have the same
//! version. There are three exceptions, and the tests show how far each goes:
//! - The thief can bind an address that is Kept for a pod of a `StatefulSet` to its own node, for the same pod. An agent
//!   does the same when the pod starts on its node.
//! - The thief can create an address object in another node's block, for its own node. A shared block needs that.
//! - The thief can read any Pod whose name it knows. That a Pod is gone is evidence before an address is freed.

mod targets;

use crate::{Identity, Server, objects};
use http::{Method, StatusCode};
use kube::Client;
use kube::client::Body;
use serde_json::{Value, json};
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
    let operations: Vec<Value> = ["/spec", "/status", "/metadata", "/note"]
        .into_iter()
        .filter(|path| !after[&path[1..]].is_null())
        .map(|path| json!({ "op": "add", "path": path, "value": after[&path[1..]] }))
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

/// The thief reads a Pod of another node by its name, and nothing else of it. Returns the number of requests.
async fn reads_of_a_pod(admin: &Client, client: &Client) -> usize {
    objects::account(admin, "default", "default").await;
    let mut pod = objects::pod(&json!({ "name": "of-the-victim" }), VICTIM);
    (pod["apiVersion"], pod["kind"]) = (json!("v1"), json!("Pod"));
    targets::make(admin, "/api/v1/namespaces/default/pods", &pod).await;
    let path = "/api/v1/namespaces/default/pods/of-the-victim";
    let get = async |path: &str| send(client, Method::GET, path, "application/json", &json!({})).await;
    let (status, text) = get(path).await;
    assert_eq!(status, StatusCode::OK, "{text}");
    let tails = [
        "/log",
        "/exec?command=id&stdout=1",
        "/attach",
        "/portforward",
        "/proxy/",
    ];
    for tail in tails {
        let (status, text) = get(&format!("{path}{tail}")).await;
        assert_eq!(status, StatusCode::FORBIDDEN, "{tail}: {text}");
    }
    1 + tails.len()
}

/// Uses the two exceptions. Returns the number of requests.
async fn exceptions(admin: &Client, client: &Client, thief: &Identity) -> usize {
    let (kept, bound) = targets::kept_and_bound(admin, thief).await;
    let there = targets::read(admin, &kept).await;
    let mut refused = 0;
    for (key, value) in targets::with_a_binding() {
        let mut change = bound.clone();
        change["spec"][key] = value;
        for one in ways(&there, &change) {
            refused += 1;
            let path = format!("{kept}{}", one.tail);
            send(client, one.method, &path, one.kind, &one.body).await;
            assert_eq!(targets::read(admin, &kept).await, there, "{path}: {}", one.body);
        }
    }
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
    refused + 2 + reads_of_a_pod(admin, client).await
}

/// Sends all requests with the token of the node `THIEF`, whose agents run in `namespace`. Returns the number of
/// requests.
///
/// # Panics
/// If a request changed an object, or if the thief's node cannot do its own work.
pub async fn try_everything(server: &Server, namespace: &str) -> usize {
    let admin = server.admin().await;
    let thief = Identity::within(&admin, THIEF, namespace).await;
    let targets = targets::create(&admin, &thief, namespace).await;
    let client = server.with_token(&thief.token).await;
    targets::normal_requests(&client, &thief).await;
    let (mut count, mut harm) = (0, Vec::new());
    let mut before = targets::snapshot(&admin, &targets).await;
    for target in &targets {
        let there = before[&target.path].clone();
        let mut tries: Vec<Try> = target
            .changes
            .iter()
            .flat_map(|change| ways(&there, change))
            .collect();
        tries.extend(ends(&there));
        for one in tries {
            count += 1;
            let path = format!("{}{}", target.path, one.tail);
            let (status, text) = send(&client, one.method.clone(), &path, one.kind, &one.body).await;
            let now = targets::read(&admin, &target.path).await;
            if now != before[&target.path] {
                let short: String = text.chars().take(200).collect();
                harm.push(format!(
                    "{} {path} ({}) is answered {status}: {} {short}",
                    one.method, one.kind, one.body
                ));
                before.insert(target.path.clone(), now);
            }
        }
    }
    assert!(
        harm.is_empty(),
        "{} requests change what is not the node's:\n{}",
        harm.len(),
        harm.join("\n")
    );
    count += collections(&client, &targets).await;
    count += made(&client, &thief, namespace).await;
    count += read(&client, namespace).await;
    let after = targets::snapshot(&admin, &targets).await;
    for (path, there) in &mut before {
        assert_eq!(after[path], *there, "{path}");
    }
    count + exceptions(&admin, &client, &thief).await
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
async fn made(client: &Client, thief: &Identity, namespace: &str) -> usize {
    let all = targets::forged(thief, namespace);
    for (path, body) in &all {
        let (status, text) = send(client, Method::POST, path, "application/json", body).await;
        assert!(
            status.is_client_error(),
            "POST {path} {body} is answered {status}: {text}"
        );
    }
    all.len()
}

/// Requests that read objects the thief may not read.
async fn read(client: &Client, namespace: &str) -> usize {
    let all = targets::secrets(namespace);
    for path in &all {
        let (status, text) = send(client, Method::GET, path, "application/json", &json!({})).await;
        assert_eq!(status, StatusCode::FORBIDDEN, "GET {path}: {text}");
    }
    all.len()
}
