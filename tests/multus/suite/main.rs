// SPDX-License-Identifier: Apache-2.0
//! The real Multus calls the plugins of rdmanet on this machine's kernel.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test says what it lacks by failing"
)]

mod default_route;
mod devices;
mod ends;
mod handed_out;
mod networks;
mod refused;
mod requests;
mod thick;

use std::io::Write;
use std::process::{Command, Stdio};
use tests::{Answer, Value, json, programs};

/// A macvlan network on the node's `eth0`, with addresses of `subnet` without cooldown.
fn macvlan(name: &str, subnet: &str) -> Value {
    json!({
        "cniVersion": "1.1.0", "name": name, "type": "cni-ipoib", "master": "eth0", "mode": "macvlan",
        "capabilities": { "ips": true, "mac": true },
        "ipam": { "type": "rdma-ipam", "ranges": [[{ "subnet": subnet }]], "cooldown": 0 },
    })
}

/// Asserts that `rdmanet explain` finds one error in the answer of Multus, as a runtime shows it: `code` with its remedy, and the
/// plugin's own message, from `start` to our mark.
#[track_caller]
fn explains(answer: &Answer, code: u64, start: &str) {
    let error: Value = serde_json::from_str(&answer.stdout).unwrap();
    // `Error` of libcni's `pkg/types/types.go`.
    let parts = ["msg", "details"].map(|key| error[key].as_str().unwrap_or_default());
    let text = parts.join("; ");
    let mut command = Command::new(programs::program("rdmanet"))
        .args(["-o", "json", "explain", "-"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    command.stdin.take().unwrap().write_all(text.as_bytes()).unwrap();
    let output = command.wait_with_output().unwrap();
    let found: Value = serde_json::from_slice(&output.stdout).unwrap();
    let errors = found["errors"].as_array().unwrap();
    assert_eq!(errors.len(), 1, "{found} in {text}");
    assert_eq!(errors[0]["code"], code, "{found} in {text}");
    let message = errors[0]["message"].as_str().unwrap();
    assert!(message.starts_with(start), "{message:?} in {text}");
    assert!(
        text.contains(&format!("{message}; rdmanet error {code}")),
        "{message:?} in {text}"
    );
    assert!(errors[0]["remedy"].as_str().unwrap().len() > 1, "{found}");
}

/// The default routes of a pod, as `ip` shows them.
fn default_routes(pod: &tests::Pod) -> Vec<String> {
    let routes = pod.ip("route show default");
    routes.lines().map(|line| line.trim().to_owned()).collect()
}
