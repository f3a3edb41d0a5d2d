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

use tests::{Value, json};

/// A macvlan network on the node's `eth0`, with addresses of `subnet` without cooldown.
fn macvlan(name: &str, subnet: &str) -> Value {
    json!({
        "cniVersion": "1.1.0", "name": name, "type": "cni-ipoib", "master": "eth0", "mode": "macvlan",
        "capabilities": { "ips": true, "mac": true },
        "ipam": { "type": "rdma-ipam", "ranges": [[{ "subnet": subnet }]], "cooldown": 0 },
    })
}

/// The default routes of a pod, as `ip` shows them.
fn default_routes(pod: &tests::Pod) -> Vec<String> {
    let routes = pod.ip("route show default");
    routes.lines().map(|line| line.trim().to_owned()).collect()
}
