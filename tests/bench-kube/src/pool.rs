// SPDX-License-Identifier: Apache-2.0
//! A node's part of a pool, without an agent.

use ipam::clock::{Clock, KernelClock};
use ipam::config::Place;
use ipam::pool::{Allocation, Block, BlockState, Counters, FORMAT, PoolFile, PoolRange};
use ipam::store::{LOCK_WAIT, Node, NodeDisk, Store};
use std::path::Path;

/// Assigns the block `i`, of 256 addresses of pool `rail0`, to the node whose files are below `dir`, as its agent
/// would.
pub fn give_block(dir: &Path, i: usize) {
    let file = PoolFile {
        format: FORMAT,
        pool: "rail0".parse().unwrap(),
        uid: "bench".to_owned(),
        generation: 1,
        node: format!("node-{i}"),
        node_uid: format!("node-{i}"),
        boot_id: KernelClock.boot_id().unwrap(),
        quarantine_seconds: 600,
        cooldown_seconds: 0,
        allocation: Allocation::Blocks,
        ranges: vec![PoolRange {
            subnet: "10.60.0.0/16".parse().unwrap(),
            start: None,
            end: None,
            gateway: None,
            exclude: Vec::new(),
        }],
        reserved: Vec::new(),
        routes: Vec::new(),
        dns: common::cni::Dns::default(),
        namespaces: None,
        blocks: vec![Block {
            name: format!("default-4-0a3c{:02x}00-24", i + 1),
            cidr: format!("10.60.{}.0/24", i + 1).parse().unwrap(),
            epoch: 1,
            state: BlockState::Active,
        }],
        priority: 0,
        fallback: Vec::new(),
        counters: Counters::default(),
    };
    let node = Node {
        disk: &NodeDisk,
        clock: &KernelClock,
        lock_wait: LOCK_WAIT,
    };
    let place = Place::of_pool(dir, &file.pool);
    let store = Store::new(&place, &node).unwrap();
    store.enter().unwrap().write_pool(&file).unwrap();
}
