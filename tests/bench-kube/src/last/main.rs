// SPDX-License-Identifier: Apache-2.0
//! Many nodes use a pool to its last address, with shared blocks.
//!
//!     bench-last RDMA-IPAM [NODES]
//!
//! Pods start one after another, each on the next node, and some in parallel, until every address of the pool is
//! allocated. Then each node starts one more, and then all of them end. A pod that fails is retried on its node, as
//! kubelet does.
//!
//! Invariant: the daemons are complete, with their sockets. No address is allocated twice. Every wait has a time limit.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "a measurement that cannot be made ends with what went wrong, and its result goes to stdout"
)]

mod pods;
mod report;

use api::{BlockState, IpAddress, IpBlock, IpPool};
use apiserver::Server;
use bench::machine::describe_with_load;
use bench_kube::gauge::Gauges;
use bench_kube::nodes::{self, Nodes};
use kube::api::ListParams;
use kube::{Api, Client};
use pods::Pods;
use report::{Band, Ends};
use std::path::PathBuf;
use std::time::{Duration, Instant};

/// The pool: 64 blocks of 16 addresses. The first and the last address of the subnet are never allocated.
const SUBNET: &str = "10.61.0.0/22";
const BLOCK: u32 = 16;
const SIZE: usize = 1022;

/// The name of the pool.
const POOL: &str = "rail0";

/// The utilization of the pool at the end of each band, in percent.
const BANDS: [usize; 5] = [50, 90, 95, 99, 100];

/// The time limit of every wait.
const TIMEOUT: Duration = Duration::from_secs(300);

#[tokio::main]
async fn main() {
    let mut args = std::env::args_os().skip(1);
    let plugin = PathBuf::from(args.next().expect("bench-last RDMA-IPAM [NODES]"));
    let count: usize = args.next().map_or(40, |n| n.to_str().unwrap().parse().unwrap());
    let server = Server::installed().await;
    let admin = server.admin().await;
    let gauges = Gauges::new(&server).await;
    let dir = tempfile::tempdir_in("/var/tmp").unwrap();
    nodes::pool(&server, POOL, SUBNET, BLOCK).await;
    let nodes = Nodes::start(&server, dir.path(), POOL, count, &[]).await;
    let pods = Pods::new(&plugin, &nodes);
    let mut bands = Vec::new();
    let mut from = 0;
    for full in BANDS {
        let to = SIZE * full / 100;
        let start = gauges.start().await;
        let calls = pods.add(from..to);
        let phase = gauges.stop(format!("to {full} %"), start).await;
        eprintln!("bench-last: {}", phase.line());
        let (blocks, shared) = blocks(&admin).await;
        bands.push(Band {
            to,
            calls,
            phase,
            blocks,
            shared,
        });
        from = to;
    }
    pods.assert_all_given(SIZE);
    println!("{}\n", describe_with_load());
    println!("{}", report::bands(&bands));
    let exhausted = until_exhausted(&admin).await;
    let start = gauges.start().await;
    let refused = pods.refuse();
    let phase = gauges.stop("one more on each node", start).await;
    eprintln!("bench-last: {}", phase.line());
    let begun = Instant::now();
    let released = pods.del();
    let apart = until_apart(&admin, begun).await;
    println!(
        "{}",
        report::ends(&Ends {
            exhausted,
            refused,
            requests: phase.total(),
            released,
            apart
        })
    );
    nodes.end().await;
}

/// The number of blocks, and how many of them are shared.
async fn blocks(admin: &Client) -> (usize, usize) {
    let all: Api<IpBlock> = Api::all(admin.clone());
    let all = all.list(&ListParams::default()).await.unwrap().items;
    let shared = all.iter().filter(|block| block.spec.state == BlockState::Shared);
    (all.len(), shared.count())
}

/// Waits until the status of the pool is exhausted.
async fn until_exhausted(admin: &Client) -> Duration {
    let pools: Api<IpPool> = Api::all(admin.clone());
    let begun = Instant::now();
    loop {
        let status = pools.get(POOL).await.unwrap().status.unwrap_or_default();
        let mut conditions = status.conditions.iter();
        if conditions.any(|one| one.type_ == "Exhausted" && one.status == "True") {
            return begun.elapsed();
        }
        assert!(
            begun.elapsed() < TIMEOUT,
            "the status of the pool is not exhausted"
        );
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
}

/// Waits until no block is shared and no address has an object.
async fn until_apart(admin: &Client, begun: Instant) -> Duration {
    let addresses: Api<IpAddress> = Api::all(admin.clone());
    loop {
        let objects = addresses.list(&ListParams::default()).await.unwrap().items.len();
        if objects == 0 && blocks(admin).await.1 == 0 {
            return begun.elapsed();
        }
        assert!(
            begun.elapsed() < TIMEOUT,
            "{objects} addresses still have objects"
        );
        tokio::time::sleep(Duration::from_millis(500)).await;
    }
}
