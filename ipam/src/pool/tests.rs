// SPDX-License-Identifier: Apache-2.0
mod file;
mod ranges;
mod standing;

use super::{Block, BlockState, FORMAT, PoolFile, PoolRange};

/// A pool of 10.0.0.0/24 with one active block.
pub(super) fn pool() -> PoolFile {
    PoolFile {
        format: FORMAT,
        pool: "rail0".parse().unwrap(),
        uid: "u".to_owned(),
        generation: 1,
        node: "n1".to_owned(),
        node_uid: "nu".to_owned(),
        boot_id: "00b00710-0000-4000-8000-000000000001".to_owned(),
        quarantine_seconds: 600,
        cooldown_seconds: 30,
        allocation: super::Allocation::Blocks,
        ranges: vec![range("10.0.0.0/24")],
        reserved: Vec::new(),
        routes: Vec::new(),
        dns: common::cni::Dns::default(),
        namespaces: None,
        blocks: vec![block("10.0.0.0/28", BlockState::Active)],
        priority: 0,
        fallback: Vec::new(),
        counters: super::Counters::default(),
    }
}

pub(super) fn range(subnet: &str) -> PoolRange {
    PoolRange {
        subnet: subnet.parse().unwrap(),
        start: None,
        end: None,
        gateway: None,
        exclude: Vec::new(),
    }
}

pub(super) fn block(cidr: &str, state: BlockState) -> Block {
    Block {
        name: format!("default-{cidr}"),
        cidr: cidr.parse().unwrap(),
        epoch: 1,
        state,
    }
}
