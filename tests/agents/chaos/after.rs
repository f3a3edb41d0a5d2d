// SPDX-License-Identifier: Apache-2.0
//! The checks after the last fault: the cluster must reach this state.

use crate::World;
use crate::machine::Machine;
use crate::pool::Pool;
use api::{IpAddress, IpBlock};
use kube::api::{Api, ListParams};
use kube::{Client, ResourceExt};
use std::collections::{BTreeMap, HashSet};
use std::time::{Duration, Instant};

/// How long the number of what is left may stay the same: many quarantines, so that only a leak or a hang lasts as long.
const TIMEOUT: Duration = Duration::from_secs(300);

/// The smallest number of what was left, and since when it has been that number.
struct Fewest {
    left: usize,
    since: Instant,
}

impl Fewest {
    fn new() -> Self {
        Self {
            left: usize::MAX,
            since: Instant::now(),
        }
    }

    /// Whether fewer are left than ever before, or were so within [`TIMEOUT`]. A slow machine needs long for each.
    fn is_recent(&mut self, left: usize) -> bool {
        if left < self.left {
            (self.left, self.since) = (left, Instant::now());
        }
        self.since.elapsed() < TIMEOUT
    }
}

/// Ends every pod, waits until no lease or address of a pod remains, and then allocates every address of the pools.
pub(crate) async fn check(world: &World, machines: &mut [Machine], addresses: usize, seed: u64) {
    for machine in machines.iter_mut() {
        machine.end_faults();
        for living in std::mem::take(&mut machine.pods) {
            machine.end_pod(&living).await;
        }
    }
    assert_eq!(world.ledger.len(), 0, "seed {seed}: the ledger itself");
    let admin = world.server.admin().await;
    world.replicas.retire(&admin).await;
    let mut fewest = Fewest::new();
    loop {
        let left = leftovers(&admin, machines).await;
        if left.is_empty() {
            break;
        }
        assert!(
            fewest.is_recent(left.len()),
            "seed {seed}: LEAK: after {TIMEOUT:?}:\n{}\n{}",
            left.join("\n"),
            machines.iter().map(Machine::log_tail).collect::<String>()
        );
        tokio::time::sleep(Duration::from_millis(500)).await;
    }
    println!("chaos: nothing is left of any pod");
    exhaust(world, machines, addresses, seed).await;
}

/// Leases without a pod, and blocks that differ between the API and the machines.
async fn leftovers(admin: &Client, machines: &[Machine]) -> Vec<String> {
    let mut left = Vec::new();
    let mut filed: BTreeMap<String, (String, u64)> = BTreeMap::new();
    for (machine, pool) in machines
        .iter()
        .flat_map(|machine| Pool::ALL.map(|pool| (machine, pool)))
    {
        let pool = machine.pool(pool);
        left.extend(leases(&pool).map(|lease| format!("{}: lease {lease}", machine.name)));
        let text = std::fs::read_to_string(pool.join("pool.json")).unwrap_or_default();
        let file: serde_json::Value = serde_json::from_str(&text).unwrap_or_default();
        for block in file["blocks"].as_array().into_iter().flatten() {
            let name = block["name"].as_str().unwrap().to_owned();
            let epoch = block["epoch"].as_u64().unwrap();
            if let Some((other, _)) = filed.insert(name.clone(), (machine.name.clone(), epoch)) {
                left.push(format!(
                    "block {name} is in the files of {other} and {}",
                    machine.name
                ));
            }
        }
    }
    let blocks = blocks(admin).await;
    let mut known = HashSet::new();
    for block in &blocks {
        let name = block.name_any();
        let epoch = u64::try_from(block.spec.epoch).unwrap();
        match filed.get(&name) {
            Some((machine, at)) if *machine == block.spec.owner.node && *at == epoch => {}
            other => left.push(format!(
                "block {name} is {:?} of {} at epoch {epoch}, in the files of {other:?}",
                block.spec.state, block.spec.owner.node
            )),
        }
        known.insert(name);
    }
    left.extend(
        filed
            .keys()
            .filter(|name| !known.contains(*name))
            .map(|name| format!("block {name}, in the file of {}, has no object", filed[name].0)),
    );
    let addresses = addresses(admin).await;
    left.extend(
        addresses
            .iter()
            .map(|address| format!("address {}", address.name_any())),
    );
    left
}

async fn blocks(admin: &Client) -> Vec<IpBlock> {
    let api: Api<IpBlock> = Api::all(admin.clone());
    api.list(&ListParams::default()).await.unwrap().items
}

async fn addresses(admin: &Client) -> Vec<IpAddress> {
    let api: Api<IpAddress> = Api::all(admin.clone());
    api.list(&ListParams::default()).await.unwrap().items
}

/// The leases of this boot.
fn leases(pool: &std::path::Path) -> impl Iterator<Item = String> {
    let boot = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap();
    let directory = pool.join(format!("boot-{}/leases", boot.trim()));
    std::fs::read_dir(directory)
        .into_iter()
        .flatten()
        .map(|entry| entry.unwrap().file_name().to_string_lossy().into_owned())
}

/// Allocates addresses on all machines at once until no machine gets another, and repeats this while some are missing.
async fn exhaust(world: &World, machines: &mut [Machine], addresses: usize, seed: u64) {
    let mut fewest = Fewest::new();
    while world.ledger.len() < addresses {
        let filling = machines.iter_mut().map(|machine| async {
            for pool in Pool::ALL {
                while machine.try_begin(pool).await {}
            }
        });
        futures::future::join_all(filling).await;
        let allocated = world.ledger.len();
        assert!(
            fewest.is_recent(addresses - allocated),
            "seed {seed}: LEAK: {allocated} of {addresses} addresses can be allocated, and no other in {TIMEOUT:?}:\n{}\n{}",
            holders(&world.server.admin().await, machines).await.join("\n"),
            machines.iter().map(Machine::log_tail).collect::<String>()
        );
    }
    println!("chaos: all {addresses} addresses of the pools can be allocated");
}

/// Who has the addresses of the pools: the blocks, the objects of addresses, and the number of leases of each machine.
async fn holders(admin: &Client, machines: &[Machine]) -> Vec<String> {
    let blocks = blocks(admin).await;
    let blocks = blocks.iter().map(|block| {
        let spec = &block.spec;
        let (name, owner) = (block.name_any(), &spec.owner.node);
        format!(
            "block {name} is {:?} of {owner} at epoch {}",
            spec.state, spec.epoch
        )
    });
    let addresses = addresses(admin).await;
    let addresses = addresses.iter().map(|address| {
        let (name, spec) = (address.name_any(), &address.spec);
        format!("address {name} is {:?} on {}", spec.state, spec.node.node)
    });
    let leases = machines.iter().flat_map(|machine| {
        Pool::ALL.map(|pool| {
            let count = leases(&machine.pool(pool)).count();
            format!("{} has {count} leases of {}", machine.name, pool.name())
        })
    });
    blocks.chain(addresses).chain(leases).collect()
}
