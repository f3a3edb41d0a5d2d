// SPDX-License-Identifier: Apache-2.0
//! Pools and clients for the tests of this crate and of the crates that link it.

#![allow(clippy::unwrap_used, reason = "a fixture that cannot be made fails its test")]

use crate::accepted_pool::AcceptedPool;
use crate::client::Clients;
use crate::pool::IpPool;
use clap::{Arg, Command};
use common::cni::Error;
use hyper::{Request, Response};
use kube::Client;
use kube::client::Body;
use serde_json::{Value, json};
use std::future::pending;
use std::sync::{Arc, Mutex, PoisonError};
use tower::service_fn;

/// The command line of a manifest's container: its command, its arguments, and the flag of each environment variable. A value
/// that the kubelet sets is the variable's name.
///
/// # Panics
/// If `command`, the program's, has no flag for a variable.
pub fn words_of(container: &Value, command: &Command) -> Vec<String> {
    let list = |key: &str| container[key].as_array().cloned().unwrap_or_default();
    let mut words: Vec<String> = [list("command"), list("args")]
        .concat()
        .iter()
        .map(|word| word.as_str().unwrap().to_owned())
        .collect();
    let subcommand = words.get(1).and_then(|word| command.find_subcommand(word));
    let command = subcommand.unwrap_or(command);
    for variable in list("env") {
        let name = variable["name"].as_str().unwrap();
        let mut flags = command.get_arguments();
        let flag = flags.find(|flag| flag.get_env().is_some_and(|env| env == name));
        let flag = flag.and_then(Arg::get_long);
        let flag = flag.unwrap_or_else(|| panic!("{} reads no {name}", command.get_name()));
        let value = variable["value"].as_str().unwrap_or(name);
        words.push(format!("--{flag}={value}"));
    }
    words
}

/// A pool called `name` of generation 3.
///
/// # Panics
/// If `spec` is not the spec of a pool.
pub fn pool(name: &str, spec: &Value) -> IpPool {
    serde_json::from_value(json!({
        "apiVersion": "rdmanet.io/v1alpha1", "kind": "IPPool",
        "metadata": { "name": name, "uid": format!("uid-{name}"), "generation": 3 }, "spec": spec,
    }))
    .unwrap()
}

/// Such a pool in the form that nodes use.
///
/// # Errors
/// Those of [`AcceptedPool::new`].
pub fn accepted_pool(name: &str, spec: &Value) -> Result<AcceptedPool, Error> {
    let pool = pool(name, spec);
    AcceptedPool::new(&pool, &pool.spec, 3)
}

/// A pool of a /24 in blocks of 16.
///
/// # Panics
/// Never: the spec is valid.
pub fn small_pool() -> AcceptedPool {
    accepted_pool(
        "rail0",
        &json!({ "ranges": [{ "subnet": "10.1.0.0/24", "gateway": "none" }], "blockSize": { "v4": 16 } }),
    )
    .unwrap()
}

/// Clients of an API server that never answers.
///
/// # Panics
/// Without a tokio runtime.
pub fn silent_clients() -> Clients {
    let never = service_fn(async |_: Request<Body>| {
        pending::<()>().await;
        Ok::<_, std::io::Error>(Response::new(Body::empty()))
    });
    Client::new(never, "default").into()
}

/// Clients of an API server that never answers. The task that requests a URI with `fatal` panics.
///
/// # Panics
/// Without a tokio runtime.
pub fn panicking_clients(fatal: &'static str) -> Clients {
    let never = service_fn(move |request: Request<Body>| async move {
        assert!(!request.uri().path().contains(fatal), "on purpose");
        pending::<()>().await;
        Ok::<_, std::io::Error>(Response::new(Body::empty()))
    });
    Client::new(never, "default").into()
}

/// Clients of an API server that answers a request for a path with an object. The task that requests a path with `fatal` panics.
///
/// # Panics
/// Without a tokio runtime.
pub fn panicking_answering_clients(
    fatal: &'static str,
    answer: impl Fn(&str) -> Value + Send + 'static,
) -> Clients {
    scripted_clients(move |uri| {
        let path = uri.split('?').next().unwrap_or(uri);
        assert!(!path.contains(fatal), "on purpose");
        (200, answer(path))
    })
}

/// Clients of an API server that answers a request for a URI with a status code and an object.
///
/// # Panics
/// Without a tokio runtime.
pub fn scripted_clients(mut answer: impl FnMut(&str) -> (u16, Value) + Send + 'static) -> Clients {
    answering_clients(move |_, uri, _| answer(uri))
}

/// Clients of an API server that answers each request, given by method, URI and body, with a status code and an object. A request
/// without a body has `null`. If `answer` panics, only the task of that request does.
///
/// # Panics
/// Without a tokio runtime.
pub fn answering_clients(answer: impl FnMut(&str, &str, &Value) -> (u16, Value) + Send + 'static) -> Clients {
    let answer = Arc::new(Mutex::new(answer));
    let answering = service_fn(move |request: Request<Body>| {
        let answer = answer.clone();
        async move {
            let (method, uri) = (request.method().to_string(), request.uri().to_string());
            let body = request.into_body().collect_bytes().await.unwrap();
            let body: Value = serde_json::from_slice(&body).unwrap_or_default();
            let (code, object) =
                (answer.lock().unwrap_or_else(PoisonError::into_inner))(&method, &uri, &body);
            let body = Body::from(object.to_string().into_bytes());
            Ok::<_, std::io::Error>(Response::builder().status(code).body(body).unwrap())
        }
    });
    Client::new(answering, "default").into()
}
