// SPDX-License-Identifier: Apache-2.0
//! A node's part of a pool, without an agent.

use ipam::clock::{Clock, KernelClock};
use ipam::config::Place;
use ipam::pool::PoolFile;
use ipam::store::{LOCK_WAIT, Node, NodeDisk, Store};
use serde_json::json;
use std::path::Path;

/// Assigns the block `i`, of 256 addresses of pool `rail0`, to the node whose files are below `dir`, as its agent
/// would.
pub fn give_block(dir: &Path, i: usize) {
    let name = format!("node-{i}");
    let file: PoolFile = serde_json::from_value(json!({
        "format": 1, "pool": "rail0", "uid": "bench", "generation": 1, "node": name, "nodeUID": name,
        "bootID": KernelClock.boot_id().unwrap(), "quarantineSeconds": 600, "cooldownSeconds": 0,
        "ranges": [{ "subnet": "10.60.0.0/16" }],
        "blocks": [{
            "name": format!("default-4-0a3c{:02x}00-24", i + 1), "cidr": format!("10.60.{}.0/24", i + 1),
            "epoch": 1, "state": "active",
        }],
    }))
    .unwrap();
    let node = Node {
        disk: &NodeDisk,
        clock: &KernelClock,
        lock_wait: LOCK_WAIT,
    };
    let place = Place::of_pool(dir, &file.pool);
    let store = Store::new(&place, &node).unwrap();
    store.enter().unwrap().write_pool(&file).unwrap();
}
